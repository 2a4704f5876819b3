"""The record itself: what one probe of one checkpoint found, key by key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from ..schema_version import SCHEMA_VERSION
from .images import Images
from .modules import Output, Returned, Weight
from .part import Part, Scalar
from .pictures import Picture


class ListedCheckpoint(Part):
    """One entry of the page's checkpoint selector."""

    id: str = Field(description="Hub id, or the name of a tiny twin")
    kind: Literal["tiny", "config", "weights", "missing"] = Field(
        description="what stands behind it; `missing`: no record can be made here"
    )
    file: str | None = Field(None, description="file name of its record without `.json`; null when missing")
    reason: str | None = Field(None, description="why there is no record; required when missing")

    @model_validator(mode="after")
    def _missing_needs_reason(self) -> ListedCheckpoint:
        if (self.kind == "missing") != (self.reason is not None):
            raise ValueError("a missing checkpoint has a reason, and only a missing one")
        return self


class Declared(Part):
    """A constant of the family module, as the page's last section shows it."""

    name: str
    value: str = Field(description="source form of the value")
    doc: str | None = None


class About(Part):
    """What no run can show: the family module's own words, and the list of checkpoints."""

    title: str
    subtitle: str = Field(description="one sentence, composed from what was measured on this checkpoint")
    module: str = Field(description="import path of the family module; empty where the family has none")
    doc: str = Field(description="the family module's docstring, Markdown; empty where the family has no module")
    declared: list[Declared] = []
    checkpoints: list[ListedCheckpoint] = Field(description="in the order of the page's selector")


class Checkpoint(Part):
    id: str = Field(description="Hub id, `tiny…`, or the name of a local directory")
    kind: Literal["tiny", "config", "weights"]
    architecture: str = Field(description="class that was built or loaded")
    model_type: str = Field(
        description="the wrapper's model_type on a vision-language checkpoint, else the text model's"
    )
    task: Literal["text-generation", "image-text-to-text"]
    digest: str = Field(description="sha256 of the weights; of the config for kind `config`")
    dtype: str = Field(description="dtype of the weights as loaded")
    parameters: int = Field(description="number of parameters, tied ones once")
    attn: str = Field(description="attention implementation of a default load")
    prompt: str | None = Field(None, description="the text that was run; null where nothing ran")
    config_source: str | None = Field(
        None, description="where the config.json was taken from, if it is not the checkpoint's own file"
    )


class Provenance(Part):
    torch: str
    transformers: str
    nnsight: str
    device: str
    python: str


class Evidence(Part):
    """For a `config` record: the run that stands behind its claims."""

    twin: str = Field(description="checkpoint id of the tiny twin")
    shared: list[str] = Field(description="what was compared and found equal, in words")
    differs: list[str] = Field([], description="what is not the same on the twin, in words")


class Row(Part):
    name: str
    value: Scalar | list[Scalar]


class Feeder(Part):
    """A module whose result reaches one sublayer alone, and not the block's sum."""

    path: str = Field(description="native path of the module from the block")
    module: str = Field(description="its native class")


class Sublayer(Part):
    """One add of a block, in forward order."""

    host: str = Field(description="standard name of the module that hosts its values; empty for the block itself")
    kind: Literal["attention", "mixer", "mlp", "moe", "branch"]
    module: str = Field(description="native class of the host")
    recurrence: Literal["delta", "lru", "mlstm", "scan", "wkv"] | None = Field(
        None,
        description="what the function that runs a mixer's recurrence computes: a (gated) delta rule, a linear recurrent "
        "unit, an mLSTM, a state-space scan, or RWKV's weighted average; null where no such function ran",
    )
    fed_by: list[Feeder] = Field(
        [],
        description="modules, one after another, whose result is added to the stream on the way into this sublayer alone",
    )
    pre_norm: str | None = Field(description="native child name of the norm the sublayer reads through")
    post_norm: str | None = Field(description="native child name of the norm between the sublayer and the add")
    contribution: str = Field(description="name of the value that is added to the stream")
    parallel_with_next: bool = Field(
        default=False, description="whether the next sublayer reads the same point of the stream"
    )


class Factor(Part):
    """Something that multiplies a contribution or the whole sum."""

    name: str
    kind: Literal["buffer", "parameter", "constant"]
    applies_to: Literal["sum", "contribution"]
    contribution: str | None = Field(
        None, description="name of the contribution; with its host where a block has several of that name"
    )


class Shape(Part):
    """One distinct block shape: blocks of one shape have the same wiring, classes and sizes."""

    label: str = Field(description="short name, e.g. `sliding attention · mixture`")
    layer_type: str | None
    topology: Literal["sequential", "parallel"]
    sublayers: list[Sublayer]
    factors: list[Factor] = []
    identity: str = Field(description="the block's sum over standard names, ending in `== layer_output`")
    module: str = Field(description="native class of the block")
    sizes: dict[str, int] = Field({}, description="the sizes of a block of this shape")
    lends: str | None = Field(None, description="`own` or `borrowed` keys and values, where blocks differ")

    def factors_of(self, sublayer: Sublayer) -> list[Factor]:
        """What multiplies one sublayer's contribution, which a factor names alone or with its host."""
        names = (sublayer.contribution, f"{sublayer.host}.{sublayer.contribution}")
        return [each for each in self.factors if each.applies_to == "contribution" and each.contribution in names]


class Held(Part):
    """How what a hook gets at a value's place differs from the value."""

    shape: list[int] | None = Field(
        description="of the tensor there, in the run that `shape` of the value was measured in; null if it is no tensor"
    )
    view: str | None = Field(
        description="the value as an expression: on `tensor`, what the hook gets, or on `kwargs`, what the module was "
        "called with; in the names of `dims` and `config`; null where no single one fits"
    )


class HfPath(Part):
    """Where the tensor is, in plain PyTorch terms."""

    path: str = Field(
        description="dotted path for `get_submodule`, with `{i}` for the block's index; empty for the root"
    )
    side: Literal["in", "out", "op"] = Field(
        description="module input, module output, or an operation inside its forward"
    )
    element: int | str | None = Field(
        None, description="position in the arguments or outputs; the operation's name for `op`"
    )
    held: Held | None = Field(
        None,
        exclude_if=lambda held: held is None,
        description="only where the tensor there is not the value as it is, and a run showed it",
    )


class Edit(Part):
    """What an edit of the value did in the run."""

    logits: float = Field(description="largest change of a logit, one significant digit")
    exact: float | None = Field(
        None,
        description="for a contribution: largest difference between the edit, times the block's factor, and what layer_output moved by",
    )
    blocks: list[int] | None = Field(None, description="the blocks it was edited on; null where that is all of them")


Lack = Literal["fused kernel", "another way"]
"""Why a value is not there under another attention than the one it needs."""

Pass = Literal["last", "each token", "each head"]
"""Which times that a place is passed in one forward a value is of."""

PASSES: dict[Pass, str] = {"last": "the last time", "each token": "once a token", "each head": "for each head"}
"""The same in words."""


class Value(Part):
    """One standard value on one host."""

    host: str = Field(description="`model`, `model.layers[i]`, `model.layers[i].self_attn`, …")
    module: str = Field(description="native class of the host")
    name: str
    layout: str
    dims: list[str]
    description: str
    location: str | None = Field(description="machine form: an nnsight path from the host; null when nothing serves it")
    read_at: str = Field(description="the location in words")
    hf: HfPath | None
    blocks: list[int] | None = Field(description="the blocks that have it; null for a value of the whole model")
    needs: Literal["eager"] | None = Field(None, description="the load it needs")
    reason: str | None = Field(None, description="the sentence a refusal gives, where some block or some load has none")
    lack: Lack | None = Field(
        None,
        exclude_if=lambda lack: lack is None,
        description="for a value that needs another load: under the default one the attention is one fused kernel, or "
        "the module's forward goes another way",
    )
    code: str | None = Field(
        None,
        exclude_if=lambda code: code is None,
        description="the function whose PyTorch code the value is read inside, where another package's code may run in "
        "its place, which has no such value",
    )
    passes: list[Pass] = Field(
        [],
        exclude_if=lambda passes: not passes,
        description="where its place is passed several times in a forward, which of them the value is of: the last, "
        "or one a token, for each head where each has its own",
    )
    shape: list[int] | None = Field(None, description="measured on the first block that has it")
    reads: bool | None
    edits: bool | None = Field(description="false: read-only or without effect; null: nothing was run")
    edit: Edit | None = None
    why: str | None = Field(None, description="required where reads or edits is null")

    @model_validator(mode="after")
    def _null_needs_why(self) -> Value:
        if (self.reads is None or self.edits is None) and not self.why:
            raise ValueError(f"{self.host}.{self.name}: a null needs a reason in `why`")
        return self


class Identity(Part):
    """An equation that was evaluated."""

    name: str
    expression: str
    blocks: list[int] | None = Field(description="blocks it was evaluated on; null for one of the whole model")
    holds: bool
    max_abs_error: float = Field(description="largest absolute difference over all blocks, one significant digit")
    tolerance: float
    dtype: str
    broken: list[int] | None = Field(
        None,
        exclude_if=lambda broken: broken is None,
        description="the blocks on which it does not hold; null where it holds, and for one of the whole model",
    )
    reason: str | None = Field(None, description="required when it does not hold")


class Experiment(Part):
    """The verdict on one quirk."""

    slug: str
    label: str = Field(description="the chip's text")
    verdict: Literal["yes", "no", "n/a", "inconclusive"]
    blocks: list[int] | None = Field(
        None, description="the blocks it holds on; null where it is not a property of blocks"
    )
    measured: dict[str, Scalar | list[Scalar]] = {}
    explained: dict[str, str] = Field(
        {},
        description="for a measured number that a config entry names: the entry's name; the two were compared and are equal",
    )
    statement: str | None = Field(None, description="one sentence; required for yes and inconclusive")

    @model_validator(mode="after")
    def _verdict_needs_statement(self) -> Experiment:
        if self.verdict in ("yes", "inconclusive") and not self.statement:
            raise ValueError(f"{self.slug}: {self.verdict} needs a statement")
        return self


class Fact(Part):
    """A measured number, or the answer to a question with yes or no, that is neither an identity nor a quirk."""

    name: str
    label: str
    value: bool | int | float = Field(description="the number; `true` or `false` where the label may hold or not")
    unit: str | None = None
    measured: dict[str, Scalar | list[Scalar]] = Field(
        {},
        exclude_if=lambda measured: not measured,
        description="what else the statement tells, by name: numbers, names and blocks; left out where that is nothing",
    )
    statement: str


class PathNode(Part):
    """One station of the image's way into the text model."""

    label: str
    value: str | None = Field(None, description="the standard value read there")
    note: str | None = None
    repeat: int | None = Field(None, description="number of blocks, on the node that stands for them")
    shape: list[int] | None = None


class Vision(Part):
    """The vision encoder of a vision-language checkpoint."""

    title: str
    module: str
    sizes: dict[str, int]
    path: list[PathNode]
    rows: str
    positions: str
    masking: str
    final_norm: str
    shapes: list[Shape]
    blocks: list[int]
    values: list[Value]
    identities: list[Identity]
    experiments: list[Experiment]
    pictures: list[Picture] = []


class Record(Part):
    """Everything one probe of one checkpoint found."""

    version: Annotated[int, Field(alias="schema", le=SCHEMA_VERSION, description="version of this format")]
    family: str = Field(description="model_type of the text model")
    about: About
    checkpoint: Checkpoint
    provenance: Provenance
    evidence: Evidence | None = None
    sizes: dict[str, int]
    block_sizes: dict[str, list[int | None]] = Field(
        {}, description="a list with one entry a block, for each size that differs between blocks"
    )
    config: list[Row]
    vision_config: list[Row] | None = None
    layer_types: list[str]
    shapes: list[Shape]
    blocks: list[int] = Field(description="for each block the index of its shape")
    values: list[Value]
    identities: list[Identity]
    experiments: list[Experiment]
    facts: list[Fact] = []
    pictures: list[Picture] = []
    weights: list[Weight] = Field([], description="the projections whose rows or columns are heads or experts")
    returned: list[Returned] = Field([], description="what each module of a block returns")
    outputs: list[Output] = Field([], description="what the model returns under each flag that asks for more")
    printout: str
    vision: Vision | None = None
    images: Images | None = Field(
        None,
        exclude_if=lambda images: images is None,
        description="how an image enters, module by module; only where a prompt with one was run",
    )

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="after")
    def _consistent(self) -> Record:
        if len(self.blocks) != len(self.layer_types):
            raise ValueError("blocks and layer_types have one entry a block each")
        if any(not 0 <= shape < len(self.shapes) for shape in self.blocks):
            raise ValueError("blocks points at a shape that is not there")
        if (self.checkpoint.kind == "config") != (self.evidence is not None):
            raise ValueError("a config record names the twin behind it, and only a config record")
        return self

    def as_json(self) -> dict[str, Any]:
        """The record as plain JSON data, with the keys' published names."""
        return self.model_dump(mode="json", by_alias=True)


def json_schema() -> dict[str, Any]:
    """The published JSON schema of a record."""
    return Record.model_json_schema(by_alias=True)
