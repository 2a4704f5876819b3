"""What is asked of a pull request through GitHub's ``gh``: which one a run was of, and its one comment.

What a pull request's run left is data of somebody unknown. It is told in the comment with everything taken out that
GitHub would act on: mentions, references, links, pictures and HTML.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from probe.errors import ProbeError

MARK = "<!-- the preview of this change -->"
LONGEST = 60_000
"""Characters of a comment: GitHub takes 65,536."""

_GAP = "\u200b"
_LIVE = (
    r"&(?!lt;)(?=[#\w])",  # an entity
    r"<(?=[\w/!?])",  # a tag or an address
    r"[@#](?=\w)",  # a mention, an issue
    r"(?i)\bgh-(?=\d)",  # an issue
    r"\](?=[(:])",  # a link, a picture, what a reference leads to
    r"!(?=\[)",
    r"(?i):(?=//)|\bwww(?=\.)",  # an address
)
"""What GitHub would act on begins so."""


def number(repository: str, owner: str, branch: str, commit: str) -> int | None:
    """The open pull request of a branch whose newest commit is this one; None where there is none.

    Args:
        repository: ``owner/name`` of the repository it goes into.
        owner: of the repository that the branch is in.
    """
    query = ["-X", "GET", f"repos/{repository}/pulls", "-f", "state=open", "-f", f"head={owner}:{branch}"]
    for pull in json.loads(_gh(*query)):
        if pull["head"]["sha"] == commit:
            return int(pull["number"])
    return None


def comment(repository: str, pull: int, facts: str, url: str) -> None:
    """Write the pull request's comment, or write it anew where it has one.

    Args:
        facts: what changes, Markdown of unknown origin.
        url: address of the preview.
    """
    body = f"{MARK}\n[What this change does]({url}), with the changed pages before and after.\n\n{harmless(facts)}"
    every = _gh("--paginate", "--slurp", f"repos/{repository}/issues/{pull}/comments?per_page=100")
    mine = [
        found["id"]
        for page in json.loads(every)
        for found in page
        if found["body"].startswith(MARK) and found["user"]["type"] == "Bot"
    ]
    place = f"repos/{repository}/issues/comments/{mine[0]}" if mine else f"repos/{repository}/issues/{pull}/comments"
    _gh("-X", "PATCH" if mine else "POST", place, "--input", "-", given=json.dumps({"body": body}))


def harmless(text: str) -> str:
    """Markdown without anything that GitHub would act on, and not too long for a comment.

    A gap that nobody sees parts what would be acted on, in code as elsewhere: what is read there is what was written.
    Of entities only the one for ``<`` is left, which is never a tag.
    """
    for live in _LIVE:
        text = re.sub(live, rf"\g<0>{_GAP}", text)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST].rpartition(chr(10))[0]}\n\nThe rest is on the preview's page."


def _gh(*arguments: str, given: str | None = None) -> Any:
    try:
        done = subprocess.run(["gh", "api", *arguments], input=given, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ProbeError("GitHub is asked with gh, which is not installed here.") from None
    if done.returncode:
        raise ProbeError(f"GitHub did not do it: {(done.stderr or done.stdout).strip()}")
    return done.stdout
