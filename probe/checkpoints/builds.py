"""Targets that need no weights from outside: tiny twins, and published configs built on the meta device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from probe.checkpoints import classes, digest, tokens, twins
from probe.checkpoints.devices import checked
from probe.checkpoints.published import published, stem
from probe.checkpoints.repairs import repair
from probe.checkpoints.target import Loaded, Target
from probe.errors import ProbeError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def load_twin(target: Target, *, attn: str, dtype: str | None, device: str) -> Loaded:
    """Builds a tiny twin and compares it with its pinned digest. Raises: ProbeError if it is not the pinned one."""
    checked(device)
    spec = twins.spec(target.family, target.id)
    module = twins.build(target.family, target.id, attn=attn)
    found = twins.verified_digest(target.family, target.id, module)
    wanted = torch_dtype(dtype) or torch.float32
    if wanted is not torch.float32:
        module.to(wanted)
        found = digest.of_weights(module)
    if device != "cpu":
        module.to(device)
    task = classes.task(module.config)
    processor = None
    if task == "image-text-to-text":
        from probe.checkpoints import images

        processor = images.processor(module.config, spec.get("image", {}))
    return Loaded(
        target=target,
        module=module,
        config=module.config,
        tokenizer=processor.tokenizer if processor else tokens.tokenizer(),
        processor=processor,
        task=task,
        digest=found,
        dtype=str(wanted).removeprefix("torch."),
        parameters=digest.parameters(module),
        config_source=f"shrunk from families/configs/{spec['config']}.json",
    )


def load_config(target: Target, *, attn: str, dtype: str | None) -> Loaded:
    """Builds a published config's class on meta: every module and shape, no memory, nothing that could run."""
    name = stem(target.id)
    if name is None:
        raise ProbeError(f"There is no published config of {target.id} here: give a directory or Hub id with weights.")
    entry = published(name)
    config = classes.config_from(entry.config)
    config._attn_implementation = attn
    wanted = torch_dtype(dtype) or published_dtype(config)
    repair(config)
    with torch.device("meta"), twins.uninitialised(wanted):
        module = classes.model_class(config)(config)
    module.tie_weights()
    module.eval().requires_grad_(False)
    return Loaded(
        target=target,
        module=module,
        config=config,
        tokenizer=None,
        processor=None,
        task=classes.task(config),
        digest=digest.of_config(entry.config),
        dtype=str(wanted).removeprefix("torch."),
        parameters=digest.parameters(module),
        config_source=entry.source,
    )


def torch_dtype(name: str | None) -> torch.dtype | None:
    """A floating dtype by its name, with or without ``torch.``. Raises: ProbeError if it is none."""
    if name is None:
        return None
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ProbeError(f"{name!r} is not a floating dtype of torch: use float32, bfloat16 or float16.")
    return found


def published_dtype(config: PreTrainedConfig) -> torch.dtype:
    """The dtype a config names, its text config's if the wrapper names none; float32 if neither does."""
    found = config.dtype or config.get_text_config(decoder=True).dtype or torch.float32
    return found if isinstance(found, torch.dtype) else getattr(torch, found)
