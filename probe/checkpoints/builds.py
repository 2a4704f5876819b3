"""Targets that need no weights from outside: tiny twins, and published configs built on the meta device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from probe import registry
from probe.checkpoints import classes, digest, factory, tokens, twins
from probe.checkpoints.devices import checked
from probe.checkpoints.published import part, published, stem
from probe.checkpoints.repairs import repair
from probe.checkpoints.target import Loaded, Target, Task
from probe.errors import ProbeError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def load_twin(target: Target, *, attn: str, dtype: str | None, device: str, made: bool = False) -> Loaded:
    """Builds a tiny twin and compares it with its pinned digest.

    Args:
        made: take the twin that is made for every decoder, also where the family's module declares twins.

    Raises:
        ProbeError: it is not the pinned one. A decoder that is newer than the families' table has no pins.
    """
    checked(device)
    family = registry.get(target.family)
    module, found, source = (
        _declared_twin(target, attn) if family.declares_twins and not made else _default_twin(family, target.id, attn)
    )
    wanted = torch_dtype(dtype) or torch.float32
    if wanted is not torch.float32:
        module.to(wanted)
        found = digest.of_weights(module)
    if device != "cpu":
        module.to(device)
    task = _task(module.config)
    processor = None
    if task == "image-text-to-text":
        from probe.checkpoints import images

        processor = images.processor(module.config, twins.spec(target.family, target.id).get("image", {}))
    return Loaded(
        target=target,
        module=module,
        config=module.config,
        tokenizer=processor.tokenizer if processor else _tokenizer(module.config),
        processor=processor,
        task=task,
        digest=found,
        dtype=str(wanted).removeprefix("torch."),
        parameters=digest.parameters(module),
        config_source=source,
    )


def _declared_twin(target: Target, attn: str) -> tuple[Any, str, str]:
    """A twin that the family's module declares: model, digest, and what it is shrunk from."""
    spec = twins.spec(target.family, target.id)
    module = twins.build(target.family, target.id, attn=attn)
    found = twins.verified_digest(target.family, target.id, module)
    return module, found, f"shrunk from families/configs/{spec['config']}.json"


def _default_twin(family: registry.Family, name: str, attn: str) -> tuple[Any, str, str]:
    """A twin of the factory's: model, digest, and what it is shrunk from."""
    from probe.checkpoints.factory import pins

    module = factory.build_default(family.name, name, attn=attn)
    unpinned = family.name not in registry.table()
    found = digest.of_weights(module) if unpinned else pins.verified_digest(family.name, name, module)
    return module, found, factory.config_source(family.name, name)


def _task(config: PreTrainedConfig) -> Task:
    """What is run of a checkpoint: of a wrapper whose images no processor of ours reads, the text model alone."""
    return classes.task(config) if config.model_type in tokens.WRAPPERS else "text-generation"


def _tokenizer(config: PreTrainedConfig) -> Any:
    """Our tokenizer; None where the vocabulary is too small for it."""
    small = config.get_text_config(decoder=True).vocab_size < tokens.VOCAB_SIZE
    return None if small else tokens.tokenizer()


def load_config(target: Target, *, attn: str, dtype: str | None) -> Loaded:
    """Builds a published config's class on meta: every module and shape, no memory, nothing that could run.

    Of a wrapper around a family that declares no twins of its own, the text model alone is built where it has a class.
    """
    name = stem(target.id)
    if name is None:
        raise ProbeError(f"There is no published config of {target.id} here: give a directory or Hub id with weights.")
    entry = published(name)
    config, source = _full_size(target.family, name)
    config._attn_implementation = attn
    wanted = torch_dtype(dtype) or published_dtype(config)
    repair(config)
    with torch.device("meta"), twins.uninitialised(wanted):
        module = _model_class(config)(config)
    module.tie_weights()
    module.eval().requires_grad_(False)
    return Loaded(
        target=target,
        module=module,
        config=config,
        tokenizer=None,
        processor=None,
        task=_task(config),
        digest=digest.of_config(entry.config),
        dtype=str(wanted).removeprefix("torch."),
        parameters=digest.parameters(module),
        config_source=source,
    )


def _full_size(family: str, name: str) -> tuple[PreTrainedConfig, str]:
    """The config object of a published config, or of the text model alone inside a foreign wrapper; and its source."""
    entry, about = published(name), registry.get(family)
    inner = None if about.declares_twins else part(name, about.root, about.name)
    if not inner:
        return classes.config_from(entry.config), entry.source
    dtype: dict[str, Any] = {key: entry.config[key] for key in ("dtype", "torch_dtype") if key in entry.config}
    source = f"{entry.source}; the text model alone, without its {entry.config['model_type']} wrapper"
    return classes.config_from({**dtype, **entry.config[inner]}), source


def _model_class(config: PreTrainedConfig) -> Any:
    if config.model_type in tokens.WRAPPERS:
        return classes.model_class(config)
    from probe.checkpoints.factory import build

    return build.model_class(config)


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
