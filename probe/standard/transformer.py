"""The standardized transformer: any supported model on nnsight, with one set of names for its parts and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from nnsight.modeling.transformers import TransformersModel

from ..checkpoints import Loaded, resolve
from ..checkpoints import load as load_checkpoint
from ..errors import ProbeError
from ..values.hosts import Host, below
from ..values.readout import Readout, number
from ..values.root import Root
from ..values.value import UnavailableValue
from .batching import PassScalars
from .block_sums import BlockSum, block_sums
from .families import family_of
from .held_scale import linear_part
from .printing import printout


class StandardizedTransformer(TransformersModel, Root):
    """A loaded model whose modules and values answer to the standard names.

    ``model.layers[i].self_attn.attention_output`` reads and writes the same thing on every family; ``model.vision``
    is the tower of a vision-language checkpoint. Values are read inside ``with model.trace(prompt):``.

    Args:
        checkpoint: what :func:`probe.checkpoints.load` returned, or a name it can load: a Hub id, a local directory,
            a GGUF file.
        family: what stands for the family's module; None is the module, or what is derived where there is none.
        load: passed on to :func:`probe.checkpoints.load` for a name, e.g. ``attn="sdpa"``, ``device="cuda"``.

    Raises:
        ProbeError: the name cannot be loaded, or its family has no module.
    """

    _batcher_class = PassScalars

    def __init__(self, checkpoint: Loaded | str, *, family: Any = None, **load: Any) -> None:
        if isinstance(checkpoint, str):
            checkpoint = load_checkpoint(resolve(checkpoint), **load)
        self.loaded = checkpoint
        self.family = family or family_of(checkpoint)
        if own := getattr(self.family, "ROOT", None):
            self.__class__ = type(type(self).__name__, (type(self),), dict(own))
        self._call_size: tuple[int, int] | None = None
        self._opened = False
        self._block_sums: list[BlockSum] | None = None
        super().__init__(
            checkpoint.module,
            task=checkpoint.task,
            tokenizer=checkpoint.tokenizer,
            processor=checkpoint.processor,
            rename=self.family.RENAME,
            envoys=self.family.ENVOYS,
        )
        self._module.register_forward_pre_hook(self._note_size, with_kwargs=True)

    def _wrap(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Without a tokenizer or processor (a build from a config) there is no pipeline, and none is needed."""
        if self.tokenizer is None and self.processor is None:
            return module
        return super()._wrap(module, *args, **kwargs)

    def _note_size(self, _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensor = kwargs.get("input_ids", kwargs.get("inputs_embeds", args[0] if args else None))
        if isinstance(tensor, torch.Tensor):
            self._call_size = (int(tensor.shape[0]), int(tensor.shape[1]))

    def interleave(self, *args: Any, **kwargs: Any) -> Any:
        """Run interleaved, with the operations that any standard value is read at addressable from the start."""
        if not self._opened:
            self._opened = True
            for _, _, host in self.hosts():
                for value in host.standard_values().values():
                    if host.refusal(value) is None:
                        value.location.open(host)
        return super().interleave(*args, **kwargs)

    @property
    def text_config(self) -> Any:
        return self._module.config.get_text_config()

    @property
    def has_vision(self) -> bool:
        """Whether the loaded checkpoint has a vision tower under its standard name."""
        return "vision" in self._aliases

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def hidden_size(self) -> int:
        """The text config's hidden size, or the token embedding's width where it names none; what blocks pass on is as
        wide but for a few families.
        """
        found = getattr(self.text_config, "hidden_size", None)
        return int(self._module.get_input_embeddings().weight.shape[-1] if found is None else found)

    @property
    def vocab_size(self) -> int:
        return int(self.text_config.vocab_size)

    @property
    def num_heads(self) -> int | None:
        return self._of_attention("num_heads")

    @property
    def num_kv_heads(self) -> int | None:
        return self._of_attention("num_kv_heads")

    @property
    def head_dim(self) -> int | None:
        return self._of_attention("head_dim")

    @property
    def qk_head_dim(self) -> int | None:
        return self._of_attention("qk_head_dim")

    def _of_attention(self, name: str) -> int | None:
        """A size of the first block that has an attention; None where no block has one."""
        for _, _, host in below("model.layers[i]", self.layers):
            size = getattr(host, name, None) if host.role == "attention" else None
            if size is not None:
                return int(size)
        return None

    @property
    def intermediate_size(self) -> int | None:
        """Width of the dense MLP: as the family module says, of the first host that has one, or None."""
        if hasattr(self.family, "intermediate_size"):
            return int(self.family.intermediate_size(self))
        for _, _, host in below("model.layers[i]", self.layers):
            size = host.intermediate_size if hasattr(type(host), "intermediate_size") else None
            if size is not None:
                return int(size)
        return None

    @property
    def layer_types(self) -> list[str]:
        """One entry a block: the config's own, or by the roles of the block's hosts.

        An attention counts as `full_attention`, another mixer as `mixer`; a block with neither goes by its last host.
        """
        declared = getattr(self.text_config, "layer_types", None)
        if declared and len(declared) == self.num_layers:
            return list(declared)
        roles: list[list[str]] = [[] for _ in self.layers]
        for _, index, host in below("model.layers[i]", self.layers):
            roles[index].append(host.role)
        return [_layer_type(found) for found in roles]

    def hosts(self) -> Iterable[tuple[str, int | None, Host]]:
        """Every host of the model as ``(label, block, envoy)``: ``("model.layers[i].mlp", 3, …)``."""
        yield "model", None, self
        yield from below("model.layers[i]", self.layers)
        if self.has_vision:
            yield "model.vision", None, self.vision
            yield from below("model.vision.layers[i]", self.vision.layers)

    def support(self) -> dict[str, Any]:
        """For every host and value: None where it can be read, else the reason; by block where blocks differ."""
        found: dict[str, dict[str, dict[int | None, str | None]]] = {}
        for label, block, host in self.hosts():
            for name, value in host.standard_values().items():
                found.setdefault(label, {}).setdefault(name, {})[block] = host.refusal(value)
        return {
            label: {name: _same_or_by_block(reasons) for name, reasons in values.items()}
            for label, values in found.items()
        }

    def hosts_of(self, name: str, role: str | None = None) -> list[tuple[int, Host]]:
        """The blocks that serve a value of a part of a block under this load, and the part that has it in each.

        Args:
            role: only parts of this role, such as ``attention`` or ``moe``.

        Raises:
            UnavailableValue: none does; the message is the reason.
        """
        found = [(i, host) for _, i, host in below("model.layers[i]", self.layers) if role in (None, host.role)]
        reasons = [(block, host, host.support()[name]) for block, host in found if name in host.standard_values()]
        serving = [(block, host) for block, host, reason in reasons if reason is None]
        if not serving:
            why = f"No {role or 'part'} of a block of {self.loaded.target.family} has {name}."
            raise UnavailableValue(reasons[0][2] if reasons else why)
        return serving

    def block_sums(self) -> list[BlockSum]:
        """For each block what multiplies the stream that enters it and each contribution, in the sum that leaves it.

        Measured once a load, in two forward passes; see :class:`~probe.standard.block_sums.BlockSum`.

        Raises:
            ProbeError: a block's output is no sum with weights that are the same in every run.
        """
        if self._block_sums is None:
            self._block_sums = block_sums(self)
        return self._block_sums

    @property
    def readout(self) -> Readout:
        """From the last block to the logits: as the family says, or norm, head, and the softcap the config has."""
        found: Readout | None = getattr(self.family, "READOUT", None)
        return found or Readout(cap=getattr(self.text_config, "final_logit_softcapping", None))

    def project_on_vocab(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits a residual stream would give: final norm, head, and what the model does past it.

        Args:
            hidden: ``[…, hidden_size]``.

        Returns:
            ``[…, vocab_size]``.
        """
        *before, head = self._readout_modules()
        hidden = hidden * number(self.readout.leaving, self.text_config)
        for module in before:
            hidden = module(hidden)
        return self.after_head(head(hidden * number(self.readout.entering, self.text_config)))

    def attribute(self, parts: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        """What each part of a last stream gives to the head's logits, with the final norm's scale held at the stream's.

        The parts of a stream give what the stream gives, less the biases of norm and head, which belong to no part;
        before what the model does past the head.

        Args:
            parts: ``[…, hidden_size]``, several times the stream's shape or once.
            stream: ``[batch, seq, hidden_size]``, what leaves the last block.

        Returns:
            ``[…, vocab_size]``.
        """
        *before, head = self._readout_modules()
        leaving = number(self.readout.leaving, self.text_config)
        parts, stream = parts * leaving, stream * leaving
        for module in before:
            parts, stream = linear_part(module, stream)(parts), module(stream)
        entering = number(self.readout.entering, self.text_config)
        return linear_part(head, stream * entering)(parts * entering)

    def _readout_modules(self) -> list[Any]:
        if not self.readout.modules:
            raise ProbeError(
                f"{self.loaded.target.id}: between the last block and the head stands more than modules, so a stream "
                "cannot be projected on the vocabulary."
            )
        return [self.get(path) for path in self.readout.modules]

    def after_head(self, logits: torch.Tensor) -> torch.Tensor:
        """What the model does to the head's logits: a scale, a softcap, or nothing."""
        return self.readout.after_head(logits, self.text_config)

    def skip_layers(self, start: int, end: int | None = None) -> None:
        """Inside a trace: blocks ``start`` to ``end`` (included) hand their input on unchanged."""
        for index in range(start, (start if end is None else end) + 1):
            block = self.layers[index]
            block.skip(block.layer_input)

    def steer(
        self, layers: int | Sequence[int], vector: torch.Tensor, factor: float = 1.0, positions: Any = slice(None)
    ) -> None:
        """Inside a trace: add ``factor * vector`` to the stream leaving each of ``layers``, at ``positions``.

        Args:
            layers: one block or several, in ascending order.
            vector: ``[hidden_size]`` or anything that broadcasts to ``[batch, seq, hidden_size]``.
            factor: multiplies the vector.
            positions: index into the sequence axis.
        """
        for index in [layers] if isinstance(layers, int) else layers:
            self.layers[index].layer_output[:, positions] += factor * vector

    def __repr__(self) -> str:
        return printout(self)


def _layer_type(roles: list[str]) -> str:
    if "attention" in roles:
        return "full_attention"
    return "mixer" if "mixer" in roles else roles[-1] if roles else "full_attention"


def _same_or_by_block(reasons: dict[int | None, str | None]) -> Any:
    distinct = set(reasons.values())
    return distinct.pop() if len(distinct) == 1 else reasons
