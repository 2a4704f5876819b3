"""The values inside MLPs that are built unlike others, against plain hooks, and the equations told of them."""

from __future__ import annotations

import torch

from probe.measure.collect import all_identities
from probe.measure.run import measure
from probe.standard.inputs import prepare
from probe.standard.trace import Key, read_all
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


def test_an_activation_that_all_blocks_share_is_read_where_each_calls_it() -> None:
    """The blocks of OpenAI's first GPT have one module for it, so that its own output is another block's too."""
    model = standardized("openai-gpt", "tiny")
    blocks = model._module.transformer.h
    assert len({id(block.mlp.act) for block in blocks}) == 1
    _, inputs = prepare(model)
    values = read_all(model, inputs)
    for index, block in enumerate(blocks):
        given = values[Key("model.layers[i]", index, "mlp_input")]
        with torch.no_grad():
            assert torch.equal(
                values[Key("model.layers[i].mlp", index, "mlp_activation")], block.mlp.act(block.mlp.c_fc(given))
            )
    assert _equations("openai-gpt")["activation"] == "act_fn(c_fc(mlp_input)) == mlp_activation"


def _equations(family: str) -> dict[str, str]:
    """The equations that hold about MLPs' interiors, by name."""
    text, _ = all_identities(measure(standardized(family, "tiny")))
    inner = ("activation", "neurons", "down projection")
    return {found.name: found.expression for found in text if found.holds and found.name.startswith(inner)}


def test_layers_in_a_part_of_the_mlp_are_told_by_their_path() -> None:
    assert _equations("cpmant") == {
        "activation": "act_fn(w_in.w_0(mlp_input)) == mlp_activation",
        "neurons": "mlp_activation * w_in.w_1(mlp_input) == mlp_neurons",
        "down projection": "down_proj(mlp_neurons) == mlp_output",
    }


def test_nothing_is_told_of_an_mlp_by_the_input_of_another() -> None:
    """LongCat's second MLP of a block reads a later point of the stream than `mlp_input`."""
    text, _ = all_identities(measure(standardized("longcat_flash", "tiny")))
    about = {found.name for found in text if found.name.endswith("in mlps.1")}
    assert about == {"down projection in mlps.1"}
