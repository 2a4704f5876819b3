"""Rendering a template from its context class, and reading the context a template documents."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from probe.render.text import breakable, cell, prose, whole

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "templates"
LINE = re.compile(r"^\s*(\w+): (.+?)\s*$")
INDENT = re.compile(r"^[ \t]+", re.M)


class Unindented(Extension):
    """Leaves the templates' own indentation out of what they give: a browser makes nothing of it."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return INDENT.sub("", source)


@cache
def environment() -> Environment:
    """The one Jinja environment: strict and escaping, with the filters of our own that name functions of `text`."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Unindented],
    )
    made.filters |= {"prose": prose, "breakable": breakable, "cell": cell, "whole": whole}
    return made


def template_name(context: type) -> str:
    """``VisionSection`` is rendered by ``vision_section.html``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", context.__name__).lower() + ".html"


def render(context: Any) -> Markup:
    """Renders the template of ``context``'s class with its fields."""
    template = environment().get_template(template_name(type(context)))
    return Markup(template.render({f.name: getattr(context, f.name) for f in fields(context)}))


def documented(source: str) -> dict[str, str]:
    """The context that a template's opening comment lists: name to type."""
    comment = source.removeprefix("{#").partition("#}")[0]
    return {m[1]: m[2] for line in comment.splitlines()[1:] if (m := LINE.match(line))}
