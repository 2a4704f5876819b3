"""The published branch: previews come, are renewed and go, the site stays; what others pushed is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import markdown
import pytest

from probe.errors import ProbeError
from probe.preview import publish as publishing
from probe.preview.command import main
from probe.preview.pull import MARK, harmless

GH = """\
#!{python}
import json, os, sys
asked = sys.argv[1:]
given = sys.stdin.read() if "--input" in asked else None
with open(os.environ["FAKE_GH"] + "/log", "a") as log:
    log.write(json.dumps([asked, given]) + "\\n")
for part, answer in json.load(open(os.environ["FAKE_GH"] + "/answers")).items():
    if part in " ".join(asked):
        print(json.dumps(answer))
        break
else:
    sys.exit("gh: Not Found")
"""
COMMIT = "f" * 40


@dataclass
class Forge:
    """A bare repository in the place of the remote, and a stand-in for ``gh``."""

    folder: Path

    @property
    def remote(self) -> str:
        return str(self.folder / "remote.git")

    def site(self, **files: str) -> Path:
        folder = self.folder / "preview" / "site"
        for path in folder.rglob("*"):
            path.unlink(missing_ok=True) if path.is_file() else None
        for name, text in {"index": "front", **files}.items():
            path = folder / f"{name.replace('__', '/')}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder.parent / "change.md").write_text("One family changed.\n")
        return folder

    def run(self, *arguments: str) -> int:
        return main([*arguments, "--remote", self.remote])

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", "-C", self.remote, *arguments], capture_output=True, text=True, check=True).stdout

    def files(self) -> dict[str, str]:
        names = self.git("ls-tree", "-r", "--name-only", "gh-pages").split()
        return {name: self.git("show", f"gh-pages:{name}") for name in names if name != ".nojekyll"}

    def answers(self, **answers: object) -> None:
        (self.folder / "answers").write_text(
            json.dumps({key.replace("__", "/"): value for key, value in answers.items()})
        )

    def asked(self) -> list[tuple[list[str], str | None]]:
        return [tuple(json.loads(line)) for line in (self.folder / "log").read_text().splitlines()]


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forge:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "remote.git")], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(GH.format(python=sys.executable))
    (tmp_path / "bin" / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GH", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    said = {"REPOSITORY": "org/atlas", "HEAD_OWNER": "someone", "HEAD_BRANCH": "fix", "HEAD_COMMIT": COMMIT}
    for name, value in {**said, "PAGES_URL": "https://org.example/atlas"}.items():
        monkeypatch.setenv(name, value)
    return Forge(tmp_path)


def test_the_site_and_its_previews_share_a_branch_of_one_commit(forge: Forge) -> None:
    assert forge.run("publish", str(forge.site(llama="a page"))) == 0
    publishing.publish(forge.site(change="of 7"), forge.remote, "gh-pages", 7)
    publishing.publish(forge.site(change="of 12"), forge.remote, "gh-pages", 12)
    publishing.publish(forge.site(changed="of 7 again"), forge.remote, "gh-pages", 7)
    site = {"index.html": "front", "llama.html": "a page"}
    seventh = {"previews/pr-7/index.html": "front", "previews/pr-7/changed.html": "of 7 again"}
    twelfth = {"previews/pr-12/index.html": "front", "previews/pr-12/change.html": "of 12"}
    assert forge.files() == site | seventh | twelfth
    assert forge.run("publish", str(forge.site(gemma="another page"))) == 0
    assert forge.files() == {"index.html": "front", "gemma.html": "another page"} | seventh | twelfth
    assert forge.run("remove", "7") == 0 and forge.run("remove", "99") == 0
    assert forge.files() == {"index.html": "front", "gemma.html": "another page"} | twelfth
    assert forge.git("rev-list", "--count", "gh-pages").strip() == "1"
    assert forge.git("ls-tree", "--name-only", "gh-pages", ".nojekyll").strip() == ".nojekyll"


def test_what_was_never_published_is_removed_without_a_branch(forge: Forge) -> None:
    assert forge.run("remove", "7") == 0 and forge.git("for-each-ref") == ""
    publishing.publish(forge.site(), forge.remote, "gh-pages", 7)
    assert forge.run("remove", "7") == 0 and "index.html" not in "".join(forge.files())


def test_what_another_run_pushed_in_between_is_kept(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    forge.run("publish", str(forge.site()))
    fetch, others = publishing._fetch, iter([3, 4])

    def slow(tree: Path, address: str, branch: str) -> str:
        was = fetch(tree, address, branch)
        if (other := next(others, None)) is not None:
            monkeypatch.setattr(publishing, "_fetch", fetch)
            publishing.publish(forge.folder / "preview" / "site", forge.remote, "gh-pages", other)
            monkeypatch.setattr(publishing, "_fetch", slow)
        return was

    monkeypatch.setattr(publishing, "_fetch", slow)
    publishing.publish(forge.site(), forge.remote, "gh-pages", 5)
    assert set(forge.files()) == {"index.html", *(f"previews/pr-{n}/index.html" for n in (3, 4, 5))}


@pytest.mark.parametrize("kind", ["link", "none", "large"])
def test_what_is_not_a_plain_site_is_not_published(
    forge: Forge, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = forge.site()
    if kind == "link":
        (site / "passwd.html").symlink_to("/etc/passwd")
    elif kind == "none":
        (site / "index.html").unlink()
    else:
        monkeypatch.setattr(publishing, "LARGEST", 3)
    assert forge.run("publish", str(site)) == 2
    assert {"link": "is no plain file", "none": "There is no site", "large": "are the most"}[
        kind
    ] in capsys.readouterr().err
    assert forge.git("for-each-ref") == ""


def test_a_site_brings_neither_previews_nor_git(forge: Forge) -> None:
    site = forge.site(previews__pr_1__x="forged")
    (site / ".git").mkdir()
    (site / ".git" / "config").write_text("")
    publishing.publish(site, forge.remote, "gh-pages", None)
    assert forge.files() == {"index.html": "front"}


def test_a_remote_that_is_not_there_is_one_sentence(forge: Forge) -> None:
    with pytest.raises(ProbeError, match="git ls-remote failed"):
        publishing.publish(forge.site(), str(forge.folder / "nowhere"), "gh-pages", None)


def test_a_preview_is_posted_once_and_its_comment_renewed(forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    forge.site(change__index="what it does")
    pulls = [{"number": 3, "head": {"sha": "0" * 40}}, {"number": 8, "head": {"sha": COMMIT}}]
    theirs = {"id": 1, "body": f"{MARK} forged", "user": {"type": "User"}}
    forge.answers(issues__8__comments=[[theirs]], atlas__pulls=pulls)
    assert forge.run("post", str(forge.folder / "preview")) == 0
    assert "previews/pr-8/change/index.html" in forge.files()
    assert capsys.readouterr().out == "https://org.example/atlas/previews/pr-8/change/\n"
    asked, given = forge.asked()[-1]
    assert "POST" in asked and "repos/org/atlas/issues/8/comments" in asked
    body = json.loads(given or "")["body"]
    assert body.startswith(MARK) and "(https://org.example/atlas/previews/pr-8/change/)" in body
    assert "One family changed." in body

    mine = {"id": 2, "body": body, "user": {"type": "Bot"}}
    forge.answers(issues__8__comments=[[theirs], [mine]], issues__comments__2={}, atlas__pulls=pulls)
    assert forge.run("post", str(forge.folder / "preview")) == 0
    asked, _ = forge.asked()[-1]
    assert "PATCH" in asked and "repos/org/atlas/issues/comments/2" in asked


def test_nothing_is_published_for_a_pull_request_that_moved_on(
    forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    forge.site()
    forge.answers(atlas__pulls=[{"number": 8, "head": {"sha": "0" * 40}}])
    assert forge.run("post", str(forge.folder / "preview")) == 0
    assert "nothing is published" in capsys.readouterr().out and forge.git("for-each-ref") == ""
    asked, _ = forge.asked()[0]
    assert "head=someone:fix" in asked and "state=open" in asked


def test_what_github_would_act_on_is_taken_out_of_a_comment() -> None:
    told = harmless(
        "@team #12 GH-7 &#64;team &commat;team <img src=x> ![p](http://e) [a](ftp://e) [r]: www.e <!-- x -->"
    )
    live = "@team #12 GH-7 &#64; &commat; <img <! ]( ![ ]: http:// ftp:// www.e".split()
    assert [part for part in live if part in told] == []
    seen = "“a &lt; b” `q @ k.T` `x < y` `<s>` `&lt;` `a & b` Tom & Ann"
    assert harmless(seen).replace("\u200b", "") == seen
    page = markdown.markdown(harmless(seen)).replace("\u200b", "")
    assert page == "<p>" + (
        "“a &lt; b” <code>q @ k.T</code> <code>x &lt; y</code> <code>&lt;s&gt;</code> <code>&amp;lt;</code> "
        "<code>a &amp; b</code> Tom &amp; Ann</p>"
    )
    long = harmless("a line\n" * 20_000)
    assert len(long) < 61_000 and long.endswith("The rest is on the preview's page.")


def test_a_post_without_its_environment_is_one_sentence(
    forge: Forge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEAD_COMMIT")
    assert forge.run("post", str(forge.folder / "preview")) == 2
    assert capsys.readouterr().err.startswith("The environment does not say HEAD_COMMIT")
