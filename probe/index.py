"""The index: what the site publishes as ``index.json``, one entry a family and one a checkpoint.

It is what the front page searches, and a catalog for programs. Every url in it is relative to the site's root. The
module is light: pydantic only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from probe.schema import Part

INDEX_VERSION = 1


class IndexedCheckpoint(Part):
    """A checkpoint that has a record."""

    id: str = Field(description="Hub id, or the name of a tiny twin")
    kind: Literal["tiny", "config", "weights"] = Field(
        description="`tiny`: seeded weights were run; `config`: built without weights; `weights`: real weights were run"
    )
    url: str = Field(description="its page")
    record: str = Field(description="its record, JSON as `records/schema.json` documents it")
    architecture: str = Field(description="class that was built or loaded")
    model_type: str = Field(description="the wrapper's model_type on a vision-language checkpoint")
    parameters: int = Field(description="number of parameters, tied ones once")
    blocks: int = Field(description="number of blocks of the text model")
    hidden_size: int | None = None
    vision: bool = Field(description="whether it has a vision encoder")
    quirks: list[str] = Field(description="slugs of the quirks that hold on it")


class IndexedValue(Part):
    """A value that some checkpoint of the family serves, at one place."""

    host: str = Field(description="`model`, `model.layers[i]`, `model.layers[i].self_attn`, …")
    name: str = Field(description="standard name")
    path: str | None = Field(
        description="native path for `get_submodule`, with `{i}` for the block's index; empty for the root"
    )
    side: Literal["in", "out", "op"] | None = Field(description="input, output, or an operation inside the forward")
    element: int | str | None = Field(None, description="position, key, or the operation's name")
    url: str = Field(description="its row")


class IndexedModule(Part):
    """A module by the path that ``get_submodule`` takes."""

    path: str = Field(description="native path, with `{i}` for an index")
    url: str = Field(description="the table that has it, from the site's root")


class IndexedFamily(Part):
    """A family: the text model's model_type."""

    family: str
    title: str
    subtitle: str
    url: str
    classes: list[str] = Field(description="native classes of the checkpoints, the blocks and their sublayers")
    organisations: list[str] = Field(description="owners of the Hub ids, listed ones without a record included")
    topologies: list[str] = Field(description="`sequential`, `parallel`")
    mixers: list[str] = Field(
        description="`attention`, the recurrence of another sequence mixer as records name it, or its host's name"
    )
    feed_forward: list[str] = Field(description="`mlp`, `moe`, or nothing")
    vision: bool
    quirks: list[str] = Field(description="slugs of the quirks that hold on any checkpoint")
    checkpoints: list[IndexedCheckpoint] = Field(description="in the order of the page's selector")
    without_record: list[str] = Field(description="ids of known checkpoints that have no record")
    values: list[IndexedValue]
    modules: list[str] = Field(
        description="paths of the modules as `print(model)` names them, with `{i}` for an index; rows of `url#printout`"
    )
    called: list[IndexedModule] = Field([], description="the modules that a forward called, by their native paths")
    images: list[IndexedModule] = Field([], description="the modules that an image passes before the text model")


class IndexedTopic(Part):
    """A page over all families: of a value or of a quirk."""

    name: str = Field(description="standard name of the value, or slug of the quirk")
    label: str
    url: str
    families: int = Field(description="how many families serve the value, or have the quirk")
    also: list[str] = Field([], description="what other tools call the value, as `probe.names` declares it")


class Index(Part):
    """The whole index."""

    version: Annotated[int, Field(alias="schema", le=INDEX_VERSION, description="version of this format")]
    families: list[IndexedFamily]
    values: list[IndexedTopic]
    quirks: list[IndexedTopic]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
