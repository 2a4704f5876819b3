"""``print(model)``: the native modules under their standard names, and every standard value with its layout.

Equal blocks in a row are written once, with their range.
"""

from __future__ import annotations

from typing import Any

import torch
from nnsight.intervention.envoy import Envoy

_INDENT = "  "


def printout(root: Any) -> str:
    """The printout of a standardized model."""
    named = {path: alias for alias, path in root._aliases.items()}
    lines = []
    for name, child in root._named_children():
        if name not in _containers(root):
            lines += _entry(named.get(name, name), child)
    for alias, path in _in_order(root):
        if "." in path:
            lines += _entry(alias, getattr(root, alias))
    lines += _values(root)
    return _wrap(type(root._module).__name__, lines)


def _containers(root: Any) -> set[str]:
    """Children of the root whose parts the aliases show; they are not written a second time."""
    return {path.split(".")[0] for path in root._aliases.values() if "." in path}


def _in_order(root: Any) -> list[tuple[str, str]]:
    """The root's aliases in the order of a forward pass."""
    order = ["embed_tokens", "layers", "norm", "lm_head", "vision", "projector"]
    return sorted(
        root._aliases.items(), key=lambda item: (order.index(item[0]) if item[0] in order else len(order), item[0])
    )


def _entry(name: str, envoy: Envoy) -> list[str]:
    head, *rest = _describe(envoy)
    return [f"({name}): {head}", *rest]


def _describe(envoy: Envoy) -> list[str]:
    module = envoy._module
    if isinstance(module, torch.nn.ModuleList):
        return _run_lengths(envoy)
    named = {path: alias for alias, path in envoy._aliases.items()}
    lines: list[str] = []
    for name, child in envoy._named_children():
        lines += _entry(named.get(name, name), child)
    for alias, path in envoy._aliases.items():
        if "." in path and alias not in envoy._child_map:
            lines += _entry(alias, getattr(envoy, alias))
    lines += _values(envoy)
    extra = module.extra_repr()
    if not lines:
        return [f"{type(module).__name__}({extra})"]
    return _wrap(type(module).__name__, ([extra] if extra else []) + lines).split("\n")


def _values(envoy: Any) -> list[str]:
    values: dict[str, Any] = getattr(type(envoy), "standard_values", dict)()
    return [str(value) for value in values.values()]


def _run_lengths(blocks: Envoy) -> list[str]:
    runs: list[tuple[int, int, list[str]]] = []
    for index, block in enumerate(blocks):
        described = _describe(block)
        if runs and runs[-1][2] == described:
            runs[-1] = (runs[-1][0], index, described)
        else:
            runs.append((index, index, described))
    lines: list[str] = []
    for start, end, (head, *rest) in runs:
        name = f"({start})" if start == end else f"({start}-{end})"
        count = "" if start == end else f"{end - start + 1} x "
        lines += [f"{name}: {count}{head}", *rest]
    return _wrap(type(blocks._module).__name__, lines).split("\n")


def _wrap(name: str, lines: list[str]) -> str:
    body = "\n".join(_INDENT + line for line in lines)
    return f"{name}(\n{body}\n)" if lines else f"{name}()"
