"""The values inside an MLP that gates its contribution after the down projection, against plain hooks."""

from __future__ import annotations

import torch

from probe.measure.run import prepare
from probe.measure.trace import Key, read_all
from tests.derive.summaries import standardized


def test_a_layer_that_makes_a_gate_is_no_down_projection() -> None:
    """RWKV's MLP is sigmoid(receptance) · value(relu(key)²): the gate's layer runs last, and its output is as wide."""
    model = standardized("rwkv", "tiny")
    _, inputs = prepare(model)
    values = read_all(model, inputs)
    mlp = model._module.rwkv.blocks[1].feed_forward
    taken: list[torch.Tensor] = []
    key = mlp.key.register_forward_hook(lambda module, args, out: taken.append(out.relu().square()))
    value = mlp.value.register_forward_hook(lambda module, args, out: taken.append(args[0]))
    with torch.no_grad():
        model._module(**inputs)
    key.remove()
    value.remove()
    squared, given = taken
    assert torch.equal(squared, given)
    for name in ("mlp_activation", "mlp_neurons"):
        assert torch.equal(values[Key("model.layers[i].mlp", 1, name)], given)
    assert model.layers[1].mlp.intermediate_size == given.shape[-1] == 4 * 96
