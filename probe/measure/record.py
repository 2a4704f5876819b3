"""From a target to its record: load, measure, and put together what was found."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

from .. import experiments
from ..checkpoints import Loaded, Target, load, targets
from ..errors import ProbeError
from ..experiments.facts import facts
from ..schema import SCHEMA_VERSION, Checkpoint, Evidence, Experiment, Fact, Identity, Provenance, Record, Shape, Vision
from ..standard import StandardizedTransformer
from . import configs, evidence, tower, values
from .about import about
from .default import default_attention, implementation
from .edits import edit_all
from .identities import all_identities
from .run import Run, measure
from .shapes import block_sizes, shapes
from .subtitle import subtitle
from .trace import Key, read_all

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Half:
    """What was found about one stack, the text model's or the tower's."""

    shapes: list[Shape]
    blocks: list[int]
    identities: list[Identity]
    experiments: list[Experiment]


@dataclass(frozen=True)
class Findings:
    """Everything the runs of one checkpoint gave; ``run`` is kept for what a published config must be compared with."""

    run: Run
    measured: values.Measured
    text: Half
    vision: Half | None
    facts: list[Fact]


def probe_target(
    target: Target,
    *,
    attn: str | None = None,
    dtype: str | None = None,
    device: str = "cpu",
    offline: bool = False,
    progress: Progress | None = None,
) -> Record:
    """Probe one checkpoint.

    Args:
        target: what to probe.
        attn: the attention implementation the page calls the default; None is what transformers would choose.
        dtype: dtype of the weights; None is float32 for a twin, as published otherwise.
        device: where real weights run.
        offline: ask the Hub for nothing.
        progress: told about the steps.

    Raises:
        ProbeError: the checkpoint cannot be loaded, what its family module declares contradicts the run, or an
            identity does not hold.
    """
    say = progress or _silent
    if target.kind == "config":
        return _of_config(target, dtype, say)
    if target.kind == "tiny" and attn is None and dtype is None and device == "cpu":
        return _of_findings(twin_findings(target.family, target.id, say))
    say("loading", 0.0)
    model = StandardizedTransformer(load(target, attn="eager", dtype=dtype, device=device, offline=offline))
    return _of_findings(_findings(model, attn, say))


def _silent(step: str, share: float) -> None:
    del step, share


def _findings(model: StandardizedTransformer, attn: str | None, say: Progress) -> Findings:
    say("reading every value", 0.2)
    run = measure(model)
    say("evaluating identities", 0.35)
    text_identities, vision_identities = all_identities(run)
    _refuse_broken(model, [*text_identities, *vision_identities])
    say("reading under the default attention", 0.45)
    reasons = _under(run, attn or default_attention(model._module))
    say("editing every value", 0.55)
    effects = edit_all(run)
    say("running the experiments", 0.7)
    text_experiments, vision_experiments = experiments.run_all(run)
    say("measuring facts", 0.9)
    text = Half(*shapes(run, run.text, model.layer_types), text_identities, text_experiments)
    vision = None
    if run.vision is not None:
        vision = Half(
            *shapes(run, run.vision, ["full_attention"] * len(run.vision)), vision_identities, vision_experiments
        )
    return Findings(run, values.Measured(reasons, run.readings, effects), text, vision, facts(run))


def _refuse_broken(model: StandardizedTransformer, found: Sequence[Identity]) -> None:
    broken = [identity for identity in found if not identity.holds]
    if broken:
        what = "; ".join(f"{identity.name} ({identity.expression}): {identity.reason}" for identity in broken)
        raise ProbeError(
            f"{model.loaded.target.family}, {model.loaded.target.id}: {len(broken)} identities do not hold, "
            f"so no record is written. {what}.",
            status=3,
        )


def _under(run: Run, attn: str) -> dict[Key, str]:
    """What another attention implementation says of the values it does not give; the others are read for real."""
    reasons = values.refused_by_default(run.model) if attn == default_attention(run.model._module) else {}
    with implementation(run.model._module, attn):
        read = read_all(run.model, run.inputs)
    silent = [key for key in run.readings if key not in read and key not in reasons]
    if silent:
        raise ProbeError(f"Under {attn!r}, {silent[0].name} was neither read nor refused; correct its location.")
    return reasons


def _of_findings(found: Findings) -> Record:
    model = found.run.model
    vision = None
    if found.vision is not None:
        described = tower.describe(found.run)
        rows = values.rows(model, found.measured, vision=True)
        vision = _vision(model, described, found.vision, rows)
    return _record(
        model,
        prompt=found.run.prompt,
        text=found.text,
        rows=values.rows(model, found.measured, vision=False),
        facts=found.facts,
        vision=vision,
        behind=None,
    )


def _record(
    model: StandardizedTransformer,
    *,
    prompt: str | None,
    text: Half,
    rows: list[Any],
    facts: list[Fact],
    vision: Vision | None,
    behind: Evidence | None,
) -> Record:
    loaded: Loaded = model.loaded
    return Record(
        version=SCHEMA_VERSION,
        family=loaded.target.family,
        about=about(model.family, loaded.target.family, subtitle(text.shapes, text.blocks, text.experiments)),
        checkpoint=Checkpoint(
            id=loaded.target.id,
            kind=loaded.target.kind,
            architecture=type(model._module).__name__,
            model_type=model._module.config.model_type,
            task=loaded.task,
            digest=loaded.digest,
            dtype=loaded.dtype,
            parameters=loaded.parameters,
            attn=default_attention(model._module),
            prompt=prompt,
            config_source=loaded.config_source,
        ),
        provenance=provenance(model),
        evidence=behind,
        sizes=configs.sizes(model),
        block_sizes=_differing(model),
        config=configs.text_rows(model),
        vision_config=configs.vision_rows(model) if vision is not None else None,
        layer_types=model.layer_types,
        shapes=text.shapes,
        blocks=text.blocks,
        values=rows,
        identities=text.identities,
        experiments=text.experiments,
        facts=facts,
        printout=repr(model),
        vision=vision,
    )


def _differing(model: StandardizedTransformer) -> dict[str, list[int | None]]:
    """The sizes that are not the same on every block, one entry a block."""
    every = [block_sizes(layer) for layer in model.layers]
    names = dict.fromkeys(name for sizes in every for name in sizes)
    columns = {name: [sizes.get(name) for sizes in every] for name in names}
    return {name: column for name, column in columns.items() if len(set(column)) > 1}


def _vision(model: StandardizedTransformer, described: Any, half: Half, rows: list[Any]) -> Vision:
    return Vision(
        title=model.vision.title,
        module=type(model.vision._module).__name__,
        sizes=configs.vision_sizes(model),
        path=described.path,
        rows=described.rows,
        positions=described.positions,
        masking=described.masking,
        final_norm=described.final_norm,
        shapes=half.shapes,
        blocks=half.blocks,
        values=rows,
        identities=half.identities,
        experiments=half.experiments,
    )


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "transformers", "nnsight")}


def provenance(model: StandardizedTransformer) -> Provenance:
    """What ran: versions and device, no time and no path. Local version labels are left out."""
    versions = {name: version.split("+")[0] for name, version in _versions().items()}
    device = next(model._module.parameters()).device.type
    return Provenance(**versions, device=device, python=".".join(platform.python_version_tuple()[:2]))


@lru_cache(maxsize=64)
def _twin(family: str, twin: str) -> StandardizedTransformer:
    """A tiny twin, built once a process."""
    return StandardizedTransformer(
        load(next(t for t in targets(family) if t.kind == "tiny" and t.id == twin), attn="eager")
    )


_found: dict[tuple[str, str], Findings] = {}


def twin_findings(family: str, twin: str, say: Progress = _silent) -> Findings:
    """The findings on a tiny twin, measured once a process."""
    if (family, twin) not in _found:
        _found[family, twin] = _findings(_twin(family, twin), None, say)
    return _found[family, twin]


def _of_config(target: Target, dtype: str | None, say: Progress) -> Record:
    """The record of a published config: built on meta, with a twin's run behind it."""
    say("building on meta", 0.0)
    model = StandardizedTransformer(load(target, attn="eager", dtype=dtype))
    found, behind, blocks, tower_blocks = _twin_for(model)
    measured = values.Measured(
        values.refused_by_default(model),
        why=f"built from its config and not run; the run of {behind.twin} stands behind it",
    )
    say("writing", 0.9)
    text = _carried(found.text, blocks, model, vision=False)
    vision = None
    if tower_blocks is not None and found.vision is not None:
        half = _carried(found.vision, tower_blocks, model, vision=True)
        described = tower.describe_config(model, tower.describe(found.run))
        vision = _vision(model, described, half, values.rows(model, measured, vision=True))
    return _record(
        model,
        prompt=None,
        text=text,
        rows=values.rows(model, measured, vision=False),
        facts=[],
        vision=vision,
        behind=behind,
    )


def _twin_for(model: StandardizedTransformer) -> tuple[Findings, Evidence, list[int], list[int] | None]:
    """The twin whose class is this one's and whose blocks cover every block of this one; of several, the likest."""
    family = model.loaded.target.family
    candidates = []
    for target in targets(family):
        if target.kind != "tiny":
            continue
        twin = _twin(family, target.id)
        if type(twin._module) is not type(model._module) or twin.has_vision != model.has_vision:
            continue
        blocks = evidence.covered(_built(model), _built(twin))
        tower_blocks = evidence.covered(_built_tower(model), _built_tower(twin)) if model.has_vision else None
        if blocks is not None and (tower_blocks is not None or not model.has_vision):
            candidates.append((evidence.evidence(model, twin, blocks, tower_blocks), blocks, tower_blocks))
    if not candidates:
        raise ProbeError(
            f"No tiny twin of {family} has the class {type(model._module).__name__} and all the block shapes of "
            f"{model.loaded.target.id}: add one to TWINS in families/{family}.py, shrunk from this checkpoint's config."
        )
    behind, blocks, tower_blocks = min(candidates, key=lambda candidate: len(candidate[0].differs))
    return twin_findings(family, behind.twin), behind, blocks, tower_blocks


def _built(model: StandardizedTransformer) -> evidence.Stackwise:
    return evidence.built(model.layers, model.layer_types)


def _built_tower(model: StandardizedTransformer) -> evidence.Stackwise:
    return evidence.built(model.vision.layers, ["full_attention"] * len(model.vision.layers))


def _carried(half: Half, blocks: list[int], model: StandardizedTransformer, *, vision: bool) -> Half:
    """A twin's findings on a checkpoint whose block ``i`` is built like the twin's block ``blocks[i]``."""
    found: list[Shape] = []
    index_of: list[int] = []
    for envoy, twin_block in zip(model.vision.layers if vision else model.layers, blocks, strict=True):
        shape = half.shapes[half.blocks[twin_block]].model_copy(update={"sizes": block_sizes(envoy)})
        if shape not in found:
            found.append(shape)
        index_of.append(found.index(shape))
    carried = [_carry(experiment, blocks, model, vision=vision) for experiment in half.experiments]
    return Half(found, index_of, [], carried)


def _carry(experiment: Experiment, blocks: list[int], model: StandardizedTransformer, *, vision: bool) -> Experiment:
    """A twin's verdict on the checkpoint: on the blocks built like those it holds on, with the config's numbers.

    A number carries over only where the twin's run found it equal to a config entry; the checkpoint's own entry then
    takes its place. The others belong to the twin and are left out. Where the checkpoint's config has no such entry,
    the twin's verdict says nothing about it.
    """
    quirk = next(q for q in experiments.QUIRKS if q.slug == experiment.slug and (q.about == "vision") == vision)
    if quirk.built is not None:
        return quirk.record(quirk.built(model), len(blocks))
    where = None if experiment.blocks is None else [i for i, twin in enumerate(blocks) if twin in experiment.blocks]
    numbers = {name: _config_entry(model, key, vision=vision) for name, key in experiment.explained.items()}
    absent = [experiment.explained[name] for name, value in numbers.items() if value is None]
    if absent:
        why = f"the twin's number is its config's {absent[0]}, which this config does not have"
        return experiment.model_copy(
            update={
                "verdict": "inconclusive",
                "blocks": None,
                "measured": {},
                "explained": {},
                "statement": f"Not known: {why}.",
            }
        )
    update: dict[str, Any] = {"blocks": where, "measured": numbers}
    if experiment.verdict == "yes":
        update["statement"] = _said(quirk, experiment, numbers, where, len(blocks))
    return experiment.model_copy(update=update)


def _said(
    quirk: experiments.Quirk, experiment: Experiment, numbers: dict[str, Any], where: list[int] | None, total: int
) -> str:
    """The quirk's sentence with the checkpoint's own numbers; where it needs the twin's, the twin's, and said so."""
    words = {name: value for name, value in experiment.measured.items() if not _is_number(value)}
    try:
        return quirk.say({**words, **numbers}, where, total)
    except KeyError:
        return f"On the twin: {experiment.statement}"


def _is_number(value: Any) -> bool:
    """Whether a measured entry is a number, or a list that has one."""
    if isinstance(value, list):
        return any(_is_number(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _config_entry(model: StandardizedTransformer, key: str, *, vision: bool) -> Any:
    """A config entry by its dotted name: the tower's or the text model's, else the wrapper's own; None if absent."""
    own = model.vision._module.config if vision else model.text_config
    for config in (own, model._module.config):
        value: Any = config
        for step in key.split("."):
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        if value is not None:
            return value
    return None
