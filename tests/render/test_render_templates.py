"""Templates: short, and given exactly the context that they document."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from jinja2 import meta

from probe.preview import page
from probe.render import answers, changelog, context, guide, overviews
from probe.render.compare import pages as compared
from probe.render.templating import ROOT, TEMPLATES, documented, environment, template_name

CONTEXTS = {
    template_name(cls): cls
    for module in (context, overviews, answers, page, compared, changelog, guide)
    for cls in vars(module).values()
    if is_dataclass(cls) and isinstance(cls, type) and (TEMPLATES / template_name(cls)).is_file()
}
FILES = sorted(p.name for p in TEMPLATES.glob("*.html") if p.name != "macros.html")


@pytest.mark.parametrize("name", FILES)
def test_the_documented_context_is_the_rendered_context(name: str) -> None:
    source = (TEMPLATES / name).read_text()
    given = {f.name: str(f.type) for f in fields(CONTEXTS[name])}
    assert documented(source) == given
    assert meta.find_undeclared_variables(environment().parse(source)) == set(given)


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda p: p.name)
def test_templates_are_short_and_open_with_a_comment(path: Path) -> None:
    source = path.read_text()
    assert source.startswith("{#")
    assert len(source.splitlines()) < 90


@pytest.mark.parametrize("path", sorted((ROOT / "probe" / "render").rglob("*.py")), ids=lambda p: p.stem)
def test_no_css_and_no_script_inside_python(path: Path) -> None:
    assert not re.search(
        r"style=|<style|<script|addEventListener|fill=|stroke=|\{\s*[a-z-]+:\s*[^}]+;\s*\}", path.read_text()
    )
