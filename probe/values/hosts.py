"""Hosts: the envoys that carry standard values in a text model, as Llama's tree has them.

A family that differs subclasses a host and moves the values that are elsewhere; what it does not mention stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from nnsight.intervention.envoy import Envoy

from .value import StandardValue


class Part(Envoy):
    """An envoy whose children get their envoy class by the end of their path, the longest first, or by native class."""

    def _resolve_envoy_class(self, module: torch.nn.Module, path: str) -> type[Envoy]:
        end = path
        while end:
            if end in self._envoys:
                return self._envoys[end]
            end = end.partition(".")[2]
        return next((self._envoys[cls] for cls in type(module).__mro__ if cls in self._envoys), Part)


class Host(Part):
    """An envoy with standard values.

    Attributes:
        role: ``layer``, ``attention``, ``mixer``, ``mlp`` or ``moe``; empty where it has none of these.
        recurrence: of a mixer, what the function that runs its recurrence computes, a key of `derive.kernels.KINDS`;
            None where no such function ran.
    """

    role = ""
    recurrence: ClassVar[str | None] = None
    _declared: ClassVar[dict[str, StandardValue]]

    @classmethod
    def standard_values(cls) -> dict[str, StandardValue]:
        """The values this host class declares, in the order of a forward pass, base classes first."""
        if "_declared" not in vars(cls):
            found: dict[str, StandardValue] = {}
            for base in reversed(cls.__mro__):
                for name, attribute in vars(base).items():
                    if isinstance(attribute, StandardValue):
                        found[name] = attribute
            cls._declared = found
        return cls._declared

    def refusal(self, value: StandardValue) -> str | None:
        """Why this load cannot give ``value``, or None; answered once a load."""
        cache = self.__dict__.setdefault("_refusals", {})
        key = (value.name, self._attn_implementation)
        if key not in cache:
            cache[key] = value.refusal(self)
        return cache[key]

    def support(self) -> dict[str, str | None]:
        """Every value of this host: None where it can be read, the reason where it cannot."""
        return {name: self.refusal(value) for name, value in self.standard_values().items()}

    def note_held(self, value: StandardValue, held: Any) -> None:
        """Keep the shape of what a run had at a value's location, for :meth:`held_shape`."""
        shape = tuple(held.shape) if isinstance(held, torch.Tensor) else None
        self.__dict__.setdefault("_held", {})[value.name] = shape

    def held_shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of the tensor at a value's location when it was last read; None where none was."""
        shape: tuple[int, ...] | None = self.__dict__.get("_held", {}).get(name)
        return shape

    @property
    def _attn_implementation(self) -> str | None:
        return getattr(getattr(self._module, "config", None), "_attn_implementation", None)

    @property
    def call_size(self) -> tuple[int, int] | None:
        """``(batch, seq)`` of the forward pass that is running."""
        return getattr(self.root, "_call_size", None)

    @property
    def layout_heads(self) -> int | None:
        """The number of heads that stand side by side in this host's tensors, where it has any."""
        return None

    @property
    def axis_sizes(self) -> dict[str, int]:
        """Sizes of the axes that a tensor of the running forward pass may fold."""
        batch, seq = self.call_size or (0, 0)
        found = {"batch": batch, "seq": seq, "query": seq, "num_heads": self.layout_heads}
        found["num_kv_heads"] = getattr(self, "num_kv_heads", None)
        return {name: size for name, size in found.items() if size}


class Layer(Host):
    """A block. Defaults: a norm before each of two sublayers, both adds in the block."""

    role = "layer"

    layer_input = StandardValue("Residual", "input", "The residual stream entering the block")
    attention_norm_output = StandardValue(
        "Residual", "input_layernorm.output", "The normed stream entering the attention"
    )
    layer_mid = StandardValue(
        "Residual", "post_attention_layernorm.input", "The residual stream after the attention add", live=True
    )
    mlp_norm_output = StandardValue("Residual", "post_attention_layernorm.output", "The normed stream entering the MLP")
    mlp_input = StandardValue("Residual", "mlp.input", "What the MLP is called with")
    layer_output = StandardValue(
        "Residual", "output", "The residual stream leaving the block, a tensor even when the block returns a tuple"
    )


class SandwichLayer(Layer):
    """A block that norms each sublayer before and after."""

    layer_mid = StandardValue("Residual", "pre_feedforward_layernorm.input", Layer.layer_mid.description, live=True)
    mlp_norm_output = StandardValue("Residual", "pre_feedforward_layernorm.output", Layer.mlp_norm_output.description)


class Attention(Host):
    """An attention that calls transformers' shared attention interface."""

    role = "attention"

    attention_queries = StandardValue(
        "Queries", "source.attention_interface_1.inputs[0][1]", "The queries entering attention", copy=True
    )
    attention_keys = StandardValue(
        "Keys", "source.attention_interface_1.inputs[0][2]", "The keys entering attention", copy=True
    )
    attention_values = StandardValue(
        "Values", "source.attention_interface_1.inputs[0][3]", "The values entering attention", copy=True
    )
    attention_scores = StandardValue(
        "Pattern",
        "source.attention_interface_1.source.nn_functional_softmax_0.input",
        "The attention scores entering the softmax, masked",
    )
    attention_probabilities = StandardValue(
        "Pattern",
        "source.attention_interface_1.source.nn_functional_dropout_0.output",
        "The attention pattern the values are mixed with",
    )
    attention_head_outputs = StandardValue(
        "HeadOutputs", "source.attention_interface_1.output[0]", "The per-head outputs before the output projection"
    )
    attention_premix = StandardValue(
        "HeadOutputs", "o_proj.input", "Every head's output side by side, as the output projection takes it"
    )
    attention_output = StandardValue("Residual", "output[0]", "What the attention adds to the residual stream")

    @property
    def head_dim(self) -> int:
        return int(self._module.head_dim)

    @property
    def qk_head_dim(self) -> int:
        return int(getattr(self._module, "qk_head_dim", self._module.head_dim))

    @property
    def num_heads(self) -> int:
        return _width(self._module.q_proj) // self.qk_head_dim

    @property
    def num_kv_heads(self) -> int:
        return self.num_heads // int(getattr(self._module, "num_key_value_groups", 1))

    @property
    def layout_heads(self) -> int | None:
        return self.num_heads


class PostNormedAttention(Attention):
    """An attention whose contribution is the output of the norm that follows it."""

    attention_output = StandardValue(
        "Residual",
        "parent.post_attention_layernorm.output",
        "What the attention adds to the residual stream: the post-attention norm's output",
    )


class Mlp(Host):
    """A gated MLP."""

    role = "mlp"

    mlp_activation = StandardValue(
        "Neurons",
        "act_fn.output",
        "The activation function's output",
        absent="This MLP keeps no activation module of its own",
    )
    mlp_neurons = StandardValue(
        "Neurons",
        "down_proj.input",
        "What the down projection receives: act(gate)·up on a gated MLP, the activation itself otherwise",
        absent="This MLP keeps no down projection of its own",
    )
    mlp_output = StandardValue("Residual", "output", "What the MLP adds to the residual stream")

    @property
    def intermediate_size(self) -> int | None:
        projection = getattr(self._module, "down_proj", None) or getattr(self._module, "fc2", None)
        return _width_in(projection) if projection is not None else None


class PostNormedMlp(Mlp):
    """An MLP whose contribution is the output of the norm that follows it."""

    mlp_output = StandardValue(
        "Residual",
        "parent.post_feedforward_layernorm.output",
        "What the MLP adds to the residual stream: the post-feedforward norm's output",
    )


def _width(projection: torch.nn.Module) -> int:
    """Output features of a linear layer, or of the one it wraps."""
    return int(_linear(projection).out_features)


def _width_in(projection: torch.nn.Module) -> int:
    """Input features of a linear layer, or of the one it wraps."""
    return int(_linear(projection).in_features)


def _linear(projection: torch.nn.Module) -> Any:
    return projection if isinstance(projection, torch.nn.Linear) else projection.linear


def below(label: str, blocks: Any) -> Iterable[tuple[str, int, Host]]:
    """Every host in a list of blocks as ``(label, block, envoy)``, the labels beginning with ``label``."""
    for index, block in enumerate(blocks):
        yield from _descend(label, index, block)


def _descend(
    label: str, index: int, envoy: Any, names: Mapping[int, str] = MappingProxyType({})
) -> Iterable[tuple[str, int, Host]]:
    """The hosts of a block, each under its standard names; ``names`` has those that a block further up gives."""
    if isinstance(envoy, Host):
        yield label, index, envoy
    given: dict[int, str] = {id(getattr(envoy, alias)): f"{label}.{alias}" for alias in envoy._aliases}
    for name, child in envoy._named_children():
        known = {**names, **given}
        yield from _descend(known.get(id(child), f"{label}.{name}"), index, child, known)
