"""The commands of ``python -m probe.preview``: ``build`` a preview, ``publish`` a site, ``post`` and ``remove`` one.

All but ``build`` need the standard library only, git and GitHub's ``gh``.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from probe.arguments import Parser, whole
from probe.errors import ProbeError, unforeseen
from probe.preview import publish, pull
from probe.store import ROOT

MOST_SHOTS = 12
_POST = """\
The pull request is the open one whose newest commit the run was of. The environment says which run: REPOSITORY is
owner/name, HEAD_OWNER, HEAD_BRANCH and HEAD_COMMIT are the branch's, PAGES_URL is where the published branch is served.
Where there is no such pull request any more, nothing is done."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status; every error ends as one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    try:
        _run(options)
    except ProbeError as error:
        if options.debug:
            traceback.print_exc()
        print(error, file=sys.stderr)
        return error.status
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        print(f"{unforeseen(error)} (--debug shows the traceback)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped." if sys.stderr.isatty() else "Stopped.", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.verb == "build":
        from probe.preview.build import preview

        made = preview(options.base, options.out, options.records, options.screenshots)
        print(f"{made.headline}\n{made.site / 'change' / 'index.html'}")
    elif options.verb == "publish":
        publish.publish(options.site, options.remote, options.branch, None)
    elif options.verb == "remove":
        publish.remove(options.remote, options.branch, options.number)
    else:
        _post(options.preview, options.remote, options.branch)


def _post(preview: Path, remote: str, branch: str) -> None:
    """Publish what a pull request's run built, and comment on it."""
    repository, owner, head, commit, url = map(
        _said, ("REPOSITORY", "HEAD_OWNER", "HEAD_BRANCH", "HEAD_COMMIT", "PAGES_URL")
    )
    number = pull.number(repository, owner, head, commit)
    if number is None:
        print("The pull request is closed or has a newer commit; nothing is published.")
        return
    facts = preview / "change.md"
    if facts.is_symlink() or not facts.is_file():
        raise ProbeError(f"There is no preview at {preview}: it lacks change.md.")
    publish.publish(preview / "site", remote, branch, number)
    address = f"{url.rstrip('/')}/{publish.folder(number)}/change/"
    pull.comment(repository, number, facts.read_text(encoding="utf-8", errors="replace"), address)
    print(address)


def _said(name: str) -> str:
    if not (value := os.environ.get(name)):
        raise ProbeError(
            f"The environment does not say {name}; `python -m probe.preview post --help` tells what it is."
        )
    return value


def _parser() -> Parser:
    parser = Parser(prog="python -m probe.preview", description="Previews of changes, and the branch they are on.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("build", help="build the preview of the working tree against a git revision")
    made.add_argument("base", metavar="BASE", help="git revision that the change will go into")
    made.add_argument("--out", type=Path, default=ROOT / "build" / "preview", help="folder (default: build/preview)")
    made.add_argument(
        "--records", type=Path, metavar="DIR", help="records of the change (default: measured where it can affect them)"
    )
    made.add_argument(
        "--screenshots", type=whole(0, "a number"), default=MOST_SHOTS, metavar="N",
        help=f"changed pages that are shown before and after, at most (default: {MOST_SHOTS})",
    )  # fmt: skip
    site = verbs.add_parser("publish", help="put a site on the branch of published pages")
    site.add_argument("site", type=Path, metavar="SITE", help="folder of a built site")
    post = verbs.add_parser("post", help="publish a pull request's preview, and comment on it", epilog=_POST)
    post.add_argument("preview", type=Path, metavar="PREVIEW", help="folder that `build` made")
    gone = verbs.add_parser("remove", help="take a preview off the branch")
    gone.add_argument("number", type=whole(1, "a number"), metavar="N", help="the pull request")
    for verb in (site, post, gone):
        verb.add_argument("--remote", default="origin", help="git remote, or its address (default: origin)")
        verb.add_argument("--branch", default="gh-pages", help="branch of published pages (default: gh-pages)")
    return parser
