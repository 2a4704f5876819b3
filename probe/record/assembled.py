"""From a target to its record: load, measure, and put together what was found."""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib import metadata
from typing import Any

from ..checkpoints import Loaded, Target, load
from ..checkpoints.implementation import default_attention
from ..measure import tower, values
from ..measure.shapes import block_sizes
from ..schema import SCHEMA_VERSION, Checkpoint, Evidence, Fact, Images, Provenance, Record, Vision
from ..standard import StandardizedTransformer
from . import configs
from .about import about
from .carried import carried, twin_for
from .findings import Findings, Half, Progress, find, silent, twin_findings
from .modules import Modules
from .modules import carried as carried_modules
from .modules import rows as weight_rows
from .subtitle import subtitle


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
    say = progress or silent
    if target.kind == "config":
        return _of_config(target, dtype, say)
    if target.kind == "tiny" and attn is None and dtype is None and device == "cpu":
        return _of_findings(twin_findings(target.family, target.id, say))
    say("loading", 0.0)
    model = StandardizedTransformer(load(target, attn="eager", dtype=dtype, device=device, offline=offline))
    return _of_findings(find(model, attn, say))


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
        modules=found.modules,
        vision=vision,
        behind=None,
        images=found.images,
    )


def _record(
    model: StandardizedTransformer,
    *,
    prompt: str | None,
    text: Half,
    rows: list[Any],
    facts: list[Fact],
    modules: Modules,
    vision: Vision | None,
    behind: Evidence | None,
    images: Images | None = None,
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
        sizes=configs.sizes(model) | _stream_width(rows),
        block_sizes=_differing(model),
        config=configs.text_rows(model),
        vision_config=configs.vision_rows(model) if vision is not None else configs.wrapper_rows(model),
        layer_types=model.layer_types,
        shapes=text.shapes,
        blocks=text.blocks,
        values=rows,
        identities=text.identities,
        experiments=text.experiments,
        pictures=text.pictures,
        facts=facts,
        weights=weight_rows(modules.weights),
        returned=modules.returned,
        outputs=modules.outputs,
        printout=repr(model),
        vision=vision,
        images=images,
    )


def _stream_width(rows: list[Any]) -> dict[str, int]:
    """The width that the rows' shapes show of the stream, where it has a name of its own."""
    widths = [row.shape[-1] for row in rows if row.shape and values.STREAM_WIDTH in row.dims]
    return {values.STREAM_WIDTH: widths[0]} if widths else {}


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
        pictures=half.pictures,
    )


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "transformers", "nnsight")}


def provenance(model: StandardizedTransformer) -> Provenance:
    """What ran: versions and device, no time and no path. Local version labels are left out."""
    versions = {name: version.split("+")[0] for name, version in _versions().items()}
    device = next(model._module.parameters()).device.type
    return Provenance(**versions, device=device, python=".".join(platform.python_version_tuple()[:2]))


def _of_config(target: Target, dtype: str | None, say: Progress) -> Record:
    """The record of a published config: built on meta, with a twin's run behind it."""
    say("building on meta", 0.0)
    model = StandardizedTransformer(load(target, attn="eager", dtype=dtype))
    found, behind, blocks, tower_blocks = twin_for(model)
    measured = values.Measured(
        values.refused_by_default(model),
        why=f"built from its config and not run; the run of {behind.twin} stands behind it",
    )
    say("writing", 0.9)
    text = carried(found.text, blocks, model, vision=False)
    vision = None
    if tower_blocks is not None and found.vision is not None:
        half = carried(found.vision, tower_blocks, model, vision=True)
        described = tower.describe_config(model, tower.describe(found.run))
        vision = _vision(model, described, half, values.rows(model, measured, vision=True))
    return _record(
        model,
        prompt=None,
        text=text,
        rows=values.rows(model, measured, vision=False),
        facts=[],
        modules=carried_modules(found.modules, found.run.model, model, blocks, tower_blocks),
        vision=vision,
        behind=behind,
    )
