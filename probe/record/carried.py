"""What a tiny twin's run says of a published config: which twin, and which of its findings carry over.

A block of the checkpoint takes over what was found on the twin's block that is built like it. A number carries over
only where the run found it equal to a config entry: the checkpoint's own entry then stands in its place.
"""

from __future__ import annotations

from typing import Any

from .. import experiments
from ..checkpoints import targets
from ..derive import likeness
from ..errors import ProbeError
from ..measure.shapes import block_sizes
from ..schema import Evidence, Experiment, Shape
from ..standard import StandardizedTransformer
from .findings import Findings, Half, twin, twin_findings


def twin_for(model: StandardizedTransformer) -> tuple[Findings, Evidence, list[int], list[int] | None]:
    """The twin whose class is this one's and whose blocks cover every block of this one; of several, the likest."""
    family = model.loaded.target.family
    candidates = []
    for target in targets(family):
        if target.kind != "tiny":
            continue
        candidate = twin(family, target.id)
        if type(candidate._module) is not type(model._module) or candidate.has_vision != model.has_vision:
            continue
        blocks = likeness.covered(_built(model), _built(candidate))
        tower_blocks = likeness.covered(_built_tower(model), _built_tower(candidate)) if model.has_vision else None
        if blocks is not None and (tower_blocks is not None or not model.has_vision):
            candidates.append((evidence(model, candidate, blocks, tower_blocks), blocks, tower_blocks))
    if not candidates:
        raise ProbeError(
            f"No tiny twin of {family} has the class {type(model._module).__name__} and all the block shapes of "
            f"{model.loaded.target.id}: add one to TWINS in families/{family}.py, shrunk from this checkpoint's config."
        )
    behind, blocks, tower_blocks = min(candidates, key=lambda found: len(found[0].differs))
    return twin_findings(family, behind.twin), behind, blocks, tower_blocks


def evidence(
    checkpoint: StandardizedTransformer, twin: StandardizedTransformer, blocks: list[int], vision: list[int] | None
) -> Evidence:
    """What the two share, in words, and the entries of their configs that say something else."""
    kinds = len(set(blocks))
    of = "all of one kind" if kinds == 1 else f"of {kinds} kinds"
    shared = [
        f"the class {type(twin._module).__name__}",
        f"the module tree and layer type of each of the {len(blocks)} blocks, {of}",
    ]
    if vision is not None:
        shared.append(f"the tower {type(twin.vision._module).__name__} and the module tree of its {len(vision)} blocks")
    same, differs = likeness.flags(checkpoint._module.config, twin._module.config)
    shared.append(f"{same} entries of the config that are no sizes")
    return Evidence(twin=twin.loaded.target.id, shared=shared, differs=differs)


def _built(model: StandardizedTransformer) -> likeness.Stackwise:
    return likeness.built(model.layers, model.layer_types)


def _built_tower(model: StandardizedTransformer) -> likeness.Stackwise:
    return likeness.built(model.vision.layers, ["full_attention"] * len(model.vision.layers))


def carried(half: Half, blocks: list[int], model: StandardizedTransformer, *, vision: bool) -> Half:
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
    takes its place, or what its modules, built, hold by that name. The others belong to the twin and are left out.
    Where the checkpoint has neither, the twin's verdict says nothing about it.
    """
    quirk = next(q for q in experiments.QUIRKS if q.slug == experiment.slug and (q.about == "vision") == vision)
    if quirk.built is not None:
        return quirk.record(quirk.built(model), len(blocks))
    where = None if experiment.blocks is None else [i for i, twin in enumerate(blocks) if twin in experiment.blocks]
    entries = {name: _entry(model, key, vision=vision) for name, key in experiment.explained.items()}
    absent = [experiment.explained[name] for name, entry in entries.items() if entry is None]
    explained = {name: entry[0] for name, entry in entries.items() if entry is not None}
    numbers = {name: entry[1] for name, entry in entries.items() if entry is not None}
    if absent or (where == [] and experiment.verdict == "yes"):
        why = (
            f"the twin's number is its config's {absent[0]}, which this config does not have"
            if absent
            else "the twin's blocks that it holds on are like none of this checkpoint's"
        )
        return experiment.model_copy(
            update={
                "verdict": "inconclusive",
                "blocks": None,
                "measured": {},
                "explained": {},
                "statement": f"Not known: {why}.",
            }
        )
    update: dict[str, Any] = {"blocks": where, "measured": numbers, "explained": explained}
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


def _entry(model: StandardizedTransformer, key: str, *, vision: bool) -> tuple[str, Any] | None:
    """A number's name and its value: a config's entry; where the config leaves it to the class, what every built module
    with an attribute of that name holds, called by the first one's path. None where there is neither, or two differ.
    """
    value = _config_entry(model, key, vision=vision)
    if value is not None:
        return key, value
    name = key.split(".")[-1]
    root = model.vision._module if vision else model._module
    held = [(path, vars(module)[name]) for path, module in root.named_modules() if _is_number(vars(module).get(name))]
    if not held or any(other != held[0][1] for _, other in held):
        return None
    return f"{held[0][0]}.{name}", held[0][1]


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
