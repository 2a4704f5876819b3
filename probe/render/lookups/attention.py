"""Tables about the attention: whose keys and values a block takes, and the projections with their heads."""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.know.subject import Subject, code, modules, say
from probe.render.text import block_list, figure, prose

LINEAR = re.compile(r"\((\w+)\): (\w*Linear\w*)\(in_features=(\d+), out_features=(\d+), bias=(\w+)\)")
OPEN = re.compile(r"^( *)\(([\w-]+)\): (?:\d+ x )?(\w+)\($")


def borrowing(subject: Subject) -> Lookup | None:
    """The blocks that take another block's keys and values, by the block that they take them from.

    A run found for every borrower the last earlier block of its layer type that projects keys and values; by that rule
    the table of a checkpoint that was only built is made as well.
    """
    found = subject.quirks.get("borrowed-kv")
    behind = next((e for e in (subject.run.experiments if subject.run else []) if e.slug == "borrowed-kv"), None)
    if found is None or not found.blocks or behind is None or not behind.measured.get("last_of_its_kind"):
        return None
    kinds = subject.record.layer_types
    served: dict[int, list[int]] = {}
    for block in found.blocks:
        own = [i for i in range(block) if kinds[i] == kinds[block] and i not in found.blocks]
        if not own:
            return None
        served.setdefault(own[-1], []).append(block)
    measured = found.measured.get("lenders")
    if measured is not None and measured != sorted(served):
        return None
    rows = [
        [code(f"layers[{lender}]"), code(kinds[lender]), Markup(block_list(blocks))]
        for lender, blocks in sorted(served.items())
    ]
    head = ["keys and values of", "layer type", "serve blocks"]
    return Lookup("l-borrowing", "Borrowed keys and values", prose(found.statement or ""), head, rows)


def projections(subject: Subject) -> Lookup | None:
    """The attention's linear layers with their sizes, and what of a size is heads times their width."""
    rows = []
    for sizes, where, linears in _printed(subject):
        for name, taken, given, bias in linears:
            mixing = name in ("o_proj", _last(subject))
            heads = _heads(taken if mixing else given, sizes)
            on = Markup("") if not heads else Markup("in: {}" if mixing else "out: {}").format(heads)
            size = say("[{out}, {in_}]", out=figure(given), in_=figure(taken))
            rows.append([code(name), size, on, Markup("yes" if bias else "no"), Markup(where)])
    if not rows:
        return None
    lead = prose(
        "Sizes as the printout has them. Heads times their width is given where exactly one such product is the "
        "size; in what order a projection that yields several things at once holds them, sizes do not tell."
    )
    head = ["projection", "weight [out, in]", "heads", "bias", "blocks"]
    return Lookup("l-projections", "The attention's projections", lead, head, rows)


Linears = list[tuple[str, int, int, bool]]


def _printed(subject: Subject) -> list[tuple[dict[str, int], str, Linears]]:
    """The linear layers of every shape's attention, out of the printout, once where shapes have the same."""
    blocks = _blocks(subject.record.printout)
    found: dict[tuple[object, ...], tuple[dict[str, int], list[int], Linears]] = {}
    for shape, indices in subject.shapes():
        hosts = [sub.host for sub in shape.sublayers if sub.kind == "attention" and sub.host]
        text = blocks.get(indices[0])
        if not hosts or text is None:
            continue
        linears = _linears(text, hosts[0])
        sizes = subject.record.sizes | shape.sizes
        key = (tuple(linears), *(sizes.get(name) for name in ("num_heads", "num_kv_heads", "head_dim", "qk_head_dim")))
        found.setdefault(key, (sizes, [], linears))[1].extend(indices)
    return [(sizes, subject.where(sorted(indices)), linears) for sizes, indices, linears in found.values()]


def _blocks(printout: str) -> dict[int, list[str]]:
    """The printout's lines of each block of the text model, by the block's index."""
    lines = printout.splitlines()
    start = next((k for k, line in enumerate(lines) if line.strip().startswith("(layers): ModuleList(")), None)
    found: dict[int, list[str]] = {}
    if start is None:
        return found
    indent = len(lines[start]) - len(lines[start].lstrip())
    current: list[int] = []
    for line in lines[start + 1 :]:
        depth = len(line) - len(line.lstrip())
        if depth <= indent:
            break
        opened = OPEN.match(line)
        if opened and depth == indent + 2:
            first, _, last = opened[2].partition("-")
            current = list(range(int(first), int(last or first) + 1))
            found |= {block: [] for block in current}
        elif current:
            for block in current:
                found[block].append(line)
    return found


def _linears(lines: list[str], host: str) -> Linears:
    """Name, in and out features and bias of the linear layers directly inside a block's host."""
    depth: int | None = None
    found: Linears = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        opened = OPEN.match(line)
        if depth is None:
            if opened and opened[2] == host:
                depth = indent
        elif indent <= depth:
            break
        elif indent == depth + 2 and (linear := LINEAR.fullmatch(line.strip())):
            found.append((linear[1], int(linear[3]), int(linear[4]), linear[5] == "True"))
    return found


def _heads(size: int, sizes: dict[str, int]) -> Markup:
    """``9 heads × 64`` where one number of heads times its width is the size, and no other."""
    pairs = {
        (sizes[count], sizes[width])
        for count in ("num_heads", "num_kv_heads")
        for width in ("head_dim", "qk_head_dim")
        if count in sizes and width in sizes
    }
    fits = [(count, width) for count, width in pairs if count * width == size]
    return Markup("{} heads × {}").format(*fits[0]) if len(fits) == 1 else Markup("")


def _last(subject: Subject) -> str:
    """Name of the projection that takes the heads' outputs side by side; empty where no row shows one."""
    premix = next((v for v in subject.record.values if v.name == "attention_premix" and v.location), None)
    steps = modules(premix.location) if premix and premix.location and premix.hf and premix.hf.side == "in" else []
    return steps[-1] if steps else ""
