"""``llms.txt``: what the site has and where, as plain Markdown for a program that reads it."""

from __future__ import annotations

from probe.index import Index, IndexedFamily

HEAD = """\
# Transformer Atlas

> How each transformer family's block is wired, what its internal values are called, where each is read in the Hugging
> Face implementation, and whether an edit of it takes effect. Every statement comes from loading a checkpoint and
> measuring.

A family is named by its text model's model_type. What a page says stands in its record, as JSON: read that, not the
HTML. `null` with a reason means that nothing was measured.

## Data

- [index.json]({0}index.json): every family and checkpoint, with the native place of each value
- [index.schema.json]({0}index.schema.json): what the keys of the index mean
- [records/schema.json]({0}records/schema.json): what the keys of a record mean
- [kernels.json]({0}kernels.json): how far other packages' kernels are from the PyTorch code in whose place they run
- [kernels.schema.json]({0}kernels.schema.json): what its keys mean
- [CITATION.cff]({0}CITATION.cff): how to cite this site and its records
- [Data]({0}data/): how to read them
- [How we know]({0}how-we-know/): what measured means here
"""


def llms(index: Index, site: str) -> str:
    """The text. ``site``: the site's address, with a slash at its end."""
    parts = [HEAD.format(site), "## Families\n", *(_family(entry, site) for entry in index.families)]
    parts += ["\n## Values\n", *(f"- [{v.name}]({site}{v.url}): on {v.families} families" for v in index.values)]
    parts += ["\n## Quirks\n", *(f"- [{q.label}]({site}{q.url}): on {q.families} families" for q in index.quirks)]
    return "\n".join(parts) + "\n"


def _family(entry: IndexedFamily, site: str) -> str:
    first = next(c for c in entry.checkpoints if c.url == entry.url)
    return f"- [{entry.title}]({site}{entry.url}): `{entry.family}`, [record]({site}{first.record}). {entry.subtitle}"
