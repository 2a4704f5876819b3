"""The standard layer on the tiny twins: reading, writing, refusing, steering, skipping, printing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from probe.checkpoints import load, resolve
from probe.checkpoints.images import test_image as make_image
from probe.standard import StandardizedTransformer, UnavailableValue
from probe.values.location import Location

Twin = Callable[..., StandardizedTransformer]
PROMPT = "The Eiffel Tower is in"


def test_a_value_is_the_native_tensor(twin: Twin) -> None:
    model = twin("llama", "tiny")
    with torch.no_grad(), model.trace(PROMPT):
        read = model.layers[1].self_attn.attention_output.save()
        native = model.model.layers[1].self_attn.output[0].save()
    assert torch.equal(read, native)


def test_an_assignment_reaches_the_logits(twin: Twin) -> None:
    model = twin("gemma4_text", "tiny")
    with torch.no_grad(), model.trace(PROMPT):
        before = model.logits.save()
    with torch.no_grad(), model.trace(PROMPT):
        model.layers[2].mlp.mlp_output = torch.zeros_like(model.layers[2].mlp.mlp_output)
        added = model.layers[2].mlp.mlp_output.save()
        after = model.logits.save()
    assert added.abs().max() == 0
    assert (after - before).abs().max() > 1e-3


def test_an_assignment_and_an_edit_in_place_do_the_same(twin: Twin) -> None:
    model = twin("llama4_text", "tiny-interleaved")
    outcomes = []
    for in_place in (True, False):
        with torch.no_grad(), model.trace(PROMPT):
            weights = model.layers[1].mlp.router_logits
            if in_place:
                weights[:, 0] = 3.0
            else:
                changed = weights.clone()
                changed[:, 0] = 3.0
                model.layers[1].mlp.router_logits = changed
            outcomes.append(model.logits.save())
    assert torch.equal(*outcomes)


def test_writing_the_stream_inside_a_block_moves_the_stream_and_not_only_the_mlp(twin: Twin) -> None:
    model = twin("llama", "tiny")
    with torch.no_grad(), model.trace(PROMPT):
        mid = model.layers[0].layer_mid
        model.layers[0].layer_mid = torch.zeros_like(mid)
        mlp = model.layers[0].mlp.mlp_output.save()
        out = model.layers[0].layer_output.save()
    torch.testing.assert_close(out, mlp)


def test_keys_are_private_to_the_block_that_attends_with_them(twin: Twin) -> None:
    """Blocks 4 to 7 borrow; zeroing the lender's keys leaves the borrower's, an edit of its projection does not."""
    model = twin("gemma4_text", "tiny")
    with torch.no_grad(), model.trace(PROMPT):
        untouched = model.layers[4].self_attn.attention_keys.save()
    with torch.no_grad(), model.trace(PROMPT):
        model.layers[2].self_attn.attention_keys[:] = 0
        private = model.layers[4].self_attn.attention_keys.save()
    with torch.no_grad(), model.trace(PROMPT):
        model.layers[2].self_attn.k_proj.output[:] = 0
        reached = model.layers[4].self_attn.attention_keys.save()
    assert torch.equal(private, untouched)
    assert reached.abs().max() == 0


def test_the_shared_experts_copy_is_its_own_and_its_edit_is_carried_back(twin: Twin) -> None:
    model = twin("llama4_text", "tiny")
    with torch.no_grad(), model.trace(PROMPT):
        shared = model.layers[0].mlp.shared_expert_output.save()
        routed = model.layers[0].mlp.routed_output.save()
        added = model.layers[0].mlp.mlp_output.save()
    torch.testing.assert_close(shared + routed, added)
    with torch.no_grad(), model.trace(PROMPT):
        model.layers[0].mlp.shared_expert_output[:] = 0
        left = model.layers[0].mlp.mlp_output.save()
    torch.testing.assert_close(left, routed)


@pytest.mark.parametrize(
    ("family", "name", "read"),
    [
        ("llama", "tiny", lambda model: model.layers[1].self_attn.attention_scores),
        ("gemma4_text", "tiny", lambda model: model.layers[0].mlp.router_logits),
        ("llama4_text", "tiny", lambda model: model.layers[0].mlp.expert_weights),
        ("gemma4_text", "tiny-moe", lambda model: model.layers[0].per_layer_output),
    ],
)
def test_a_value_the_load_cannot_give_raises_the_sentence_of_support_before_the_model_runs(
    twin: Twin, family: str, name: str, read: Callable[[StandardizedTransformer], torch.Tensor]
) -> None:
    model = twin(family, name, "sdpa")
    ran = []
    handle = model._module.register_forward_hook(lambda *_: ran.append(True))
    try:
        with pytest.raises(UnavailableValue) as caught, torch.no_grad(), model.trace(PROMPT):
            read(model)
    finally:
        handle.remove()
    sentences = {reason for values in model.support().values() for reason in values.values() if isinstance(reason, str)}
    assert any(sentence in str(caught.value) for sentence in sentences)
    assert not ran


def test_support_says_by_block_where_blocks_differ(twin: Twin) -> None:
    support = twin("llama4_text", "tiny-interleaved").support()["model.layers[i].mlp"]
    assert support["mlp_output"] is None
    assert support["mlp_neurons"][0] is None and "down_proj" in support["mlp_neurons"][1]
    assert "routing slot" in support["expert_weights"]


def test_support_follows_the_attention_implementation(twin: Twin) -> None:
    eager = twin("llama", "tiny", "eager").support()["model.layers[i].self_attn"]
    fused = twin("llama", "tiny", "sdpa").support()["model.layers[i].self_attn"]
    changed = {name for name in eager if eager[name] != fused[name]}
    assert changed == {"attention_scores", "attention_probabilities"}
    assert "attn_implementation='eager'" in fused["attention_scores"]


def test_next_token_probs_are_read_only(twin: Twin) -> None:
    model = twin("llama", "tiny")
    with pytest.raises(UnavailableValue, match="read-only"), torch.no_grad(), model.trace(PROMPT):
        model.next_token_probs = torch.zeros(1, model.vocab_size)


def test_steering_adds_the_vector_to_the_stream(twin: Twin) -> None:
    model = twin("llama", "tiny")
    vector = torch.linspace(-1, 1, model.hidden_size)
    with torch.no_grad(), model.trace(PROMPT):
        before = model.layers[1].layer_output.save()
    with torch.no_grad(), model.trace(PROMPT):
        model.steer(1, vector, factor=2.0, positions=-1)
        after = model.layers[1].layer_output.save()
    moved = after - before
    torch.testing.assert_close(moved[:, -1], (2 * vector)[None])
    assert moved[:, :-1].abs().max() == 0


def test_skipped_blocks_hand_their_input_on(twin: Twin) -> None:
    model = twin("llama", "tiny")
    with torch.no_grad(), model.trace(PROMPT):
        entering = model.layers[1].layer_input.save()
        leaving = None
    with torch.no_grad(), model.trace(PROMPT):
        model.skip_layers(1, 2)
        leaving = model.final_norm_output.save()
    torch.testing.assert_close(leaving, model.norm._module(entering))


@pytest.mark.parametrize(("family", "name"), [("gemma4_text", "tiny"), ("llama", "tiny"), ("llama4_text", "tiny")])
def test_projecting_the_last_stream_gives_the_logits(twin: Twin, family: str, name: str) -> None:
    model = twin(family, name)
    with torch.no_grad(), model.trace(PROMPT):
        last = model.layers[-1].layer_output.save()
        logits = model.logits.save()
    with torch.no_grad():
        torch.testing.assert_close(model.project_on_vocab(last), logits)


def test_each_invoke_reads_its_own_rows_also_of_values_that_fold_the_batch(twin: Twin) -> None:
    model = twin("gemma4_text", "tiny-moe")
    prompts = ["The Eiffel Tower", "The Great Wall.."]
    alone = []
    for prompt in prompts:
        with torch.no_grad(), model.trace(prompt):
            alone.append(model.layers[0].mlp.router_logits.save())
    with torch.no_grad(), model.trace() as tracer:
        with tracer.invoke(prompts[0]):
            first = model.layers[0].mlp.router_logits.save()
        with tracer.invoke(prompts[1]):
            second = model.layers[0].mlp.router_logits.save()
    for together, one in zip((first, second), alone, strict=True):
        torch.testing.assert_close(together[:, -one.shape[1] :], one)


def test_several_prompts_pass_a_loss_that_has_no_rows(twin: Twin) -> None:
    model = twin("dbrx", "tiny")
    vector = torch.randn(model.hidden_size, generator=torch.Generator().manual_seed(0))
    alone = []
    for factor in (0.0, 1.0):
        with torch.no_grad(), model.trace(PROMPT):
            model.steer(0, vector, factor)
            alone.append(model.logits.save())
    with torch.no_grad(), model.trace() as tracer:
        with tracer.invoke(PROMPT):
            plain = model.logits.save()
        with tracer.invoke(PROMPT):
            model.steer(0, vector)
            steered = model.logits.save()
    assert model._module(torch.tensor([[1, 2, 3]])).aux_loss.ndim == 0
    torch.testing.assert_close(plain, alone[0])
    torch.testing.assert_close(steered, alone[1])
    assert (steered - plain).abs().max() > 1e-3


def test_the_tower_is_traced_with_its_images(twin: Twin) -> None:
    model = twin("llama4_text", "tiny-vision")
    with torch.no_grad(), model.trace("<image> What is this?", images=[make_image()]):
        mask = model.vision.image_token_mask.save()
        tower = model.vision.tower_output.save()
        features = model.vision.image_features.save()
        first = model.layers[0].layer_input.save()
    assert tower.shape[-1] == model.vision.vision_hidden_size
    assert int(mask.sum()) == features.shape[0]
    assert torch.equal(first[mask], features)


def test_the_printout_uses_standard_names_and_writes_equal_blocks_once(twin: Twin) -> None:
    text = repr(twin("llama4_text", "tiny"))
    assert "(layers): ModuleList(" in text and "feed_forward" not in text
    assert "(0-7): 8 x Llama4TextDecoderLayer(" not in text, "a chunked block has a query norm, a full one has none"
    assert "(0-2): 3 x Llama4TextDecoderLayer(" in text
    assert "(router_logits) -> RouterLogits [batch seq num_experts]: The router's logits" in text
    assert "(input_size): [batch, seq] of the current call; read-only" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output", "the module's own output"),
        ("input_layernorm.output", "the child module input_layernorm's output"),
        ("parent.post_attention_layernorm.output", "the sibling module post_attention_layernorm's output"),
        (
            "source.attention_interface_1.inputs[0][2]",
            "inside the forward: the arguments of attention_interface_1, element 2",
        ),
        (
            "source.attention_interface_1.source.nn_functional_softmax_0.input",
            "inside the forward: the input of nn_functional_softmax_0 inside attention_interface_1",
        ),
        ("router.source.torch_topk_0.output[1]", "inside router's forward: the output of torch_topk_0, element 1"),
        (
            "parent.source.hidden_states_view_0.output",
            "inside the parent module's forward: the output of hidden_states_view_0",
        ),
    ],
)
def test_a_location_survives_parsing_and_says_where_it_is(text: str, words: str) -> None:
    location = Location.parse(text)
    assert str(location) == text
    assert location.words() == words


@pytest.mark.parametrize("name", ["llama/tiny", "falcon/tiny", "llama4_text/tiny-interleaved", "jetmoe/tiny"])
def test_no_refusal_names_an_operation(name: str) -> None:
    """A reader needs words about the model: an operation's name is one of the tracer's."""
    family, _, checkpoint = name.partition("/")
    model = StandardizedTransformer(load(resolve(checkpoint, family), attn="sdpa"))
    reasons = [host.refusal(value) for _, _, host in model.hosts() for value in host.standard_values().values()]
    said = {reason for reason in reasons if reason}
    assert said and not [reason for reason in said if re.search(r"[a-z]_\d+\b", reason)]
