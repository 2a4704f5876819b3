"""What a family module declares against what a run shows: nothing on the modules as they are, both readings on a wrong
one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from probe import cli, registry
from probe.checkpoints import Target, load, targets
from probe.errors import ProbeError
from probe.measure.run import measure
from probe.record import findings
from probe.record.contradictions import contradictions
from probe.standard import StandardizedTransformer, family_module
from probe.values.location import Location

TWINS = [target for family in registry.modules() for target in targets(family) if target.kind == "tiny"]


@pytest.mark.parametrize("target", TWINS, ids=lambda target: f"{target.family}-{target.id}")
def test_the_modules_declare_what_the_runs_show(target: Target) -> None:
    assert list(contradictions(measure(findings.twin(target.family, target.id)))) == []


SOFTMAX = "source.attention_interface_1.source.nn_functional_softmax_0"
MOVES = {
    "the input of the MLP read at the attention's norm": (
        "llama tiny LlamaDecoderLayer",
        {"mlp_input": "input_layernorm.output"},
    ),
    "keys and values swapped": (
        "llama tiny-mha LlamaAttention",
        {
            "attention_keys": "source.attention_interface_1.inputs[0][3]",
            "attention_values": "source.attention_interface_1.inputs[0][2]",
        },
    ),
    "the pattern read before the softmax": (
        "llama tiny LlamaAttention",
        {"attention_probabilities": f"{SOFTMAX}.input"},
    ),
    "the scores read after the softmax": ("llama tiny LlamaAttention", {"attention_scores": f"{SOFTMAX}.output"}),
    "the activation read before its function": ("llama tiny LlamaMLP", {"mlp_activation": "gate_proj.output"}),
    "a contribution read before its norm": ("gemma4_text tiny Gemma4TextAttention", {"attention_output": "output[0]"}),
    "the stream inside the block read at the norm after the attention": (
        "gemma3_text tiny Gemma3DecoderLayer",
        {"layer_mid": "post_attention_layernorm.input"},
    ),
    "router logits read after the scores": (
        "gemma4_text tiny-moe Gemma4TextMLP",
        {"router_logits": "parent.router.source.nn_functional_softmax_0.output"},
    ),
}
"""What is moved where: family, twin and native class, and value -> wrong place."""


@pytest.fixture(params=MOVES)
def moved(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Target, dict[str, str]]]:
    """A family module that names wrong places: the twin to probe, and value -> wrong place."""
    where, places = MOVES[request.param]
    family, twin, native = where.split()
    host = next(host for cls, host in family_module(family).ENVOYS.items() if cls.__name__ == native)
    for name, at in places.items():
        value = host.standard_values()[name]
        monkeypatch.setattr(value, "location", Location.parse(at))
    yield Target(family, twin, "tiny"), places
    findings.forget()


def test_a_wrong_place_is_told_with_both_readings(moved: tuple[Target, dict[str, str]]) -> None:
    target, places = moved
    with pytest.raises(ProbeError) as caught:
        findings.find(StandardizedTransformer(load(target, attn="eager")), None, findings.silent)
    assert caught.value.status == 3
    for name, at in places.items():
        told = str(caught.value).partition(f".{name} is declared at {at}, and derived from the run it is at ")[2]
        assert told and not told.startswith(f"{at},")
    assert f"families/{target.family}.py" in str(caught.value)


def test_the_probe_ends_with_status_3(moved: tuple[Target, dict[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    target, places = moved
    findings.forget()
    assert cli.main([target.family, "--checkpoint", target.id, "--json"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and all(f"declared at {at}, and derived" in err for at in places.values())
