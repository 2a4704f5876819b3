"""The snippet that sums a text model's attention on image tokens, in one forward and while generating."""

from __future__ import annotations

from probe.schema import Images, Record

SUMS = """\
inputs = processor(text=prompt, images=[image], return_tensors="pt")
on_image = inputs["input_ids"][0] == model.config.image_token_id

with torch.no_grad():
    patterns = model(**inputs, output_attentions=True).attentions
# of each block, for each head: how much of the last token's attention is on the image
shares = [pattern[0, :, -1, on_image].sum(-1) for pattern in patterns]

generated = model.generate(
    **inputs, max_new_tokens=3, do_sample=False, output_attentions=True, return_dict_in_generate=True
)
steps = []
for step, patterns in enumerate(generated.attentions):
    seen = torch.cat([on_image, torch.zeros(step, dtype=torch.bool)])  # the tokens so far; new ones are text
    keys = [seen[-pattern.shape[-1]:] for pattern in patterns]  # a window has the last keys only
    steps.append([pattern[0, :, -1, key].sum(-1) for pattern, key in zip(patterns, keys)])
"""


def snippet(record: Record, images: Images) -> str:
    """The code for a checkpoint: the lines that load it, then the sums.

    Args:
        images: what its own run found of a prompt with an image, or its twin's.
    """
    return "\n".join([*_loading(record), "", sums(images)])


def sums(images: Images) -> str:
    """The lines on ``model``, ``processor``, ``prompt`` and ``image``: they make ``shares``, and ``steps`` of them."""
    some = " if pattern is not None]" if images.without_pattern else "]"
    return SUMS.replace("for pattern in patterns]", f"for pattern in patterns{some}")


def _loading(record: Record) -> list[str]:
    name = record.checkpoint.id
    if record.checkpoint.kind == "tiny":
        return [
            "import torch",
            "from probe.checkpoints import images, load, resolve",
            "",
            f'loaded = load(resolve("{name}", "{record.family}"), attn="eager")',
            "model, processor = loaded.module, loaded.processor or images.processor(loaded.config)",
            'prompt, image = "<image> The Eiffel Tower", images.test_image()',
        ]
    return [
        "import torch",
        "from PIL import Image",
        f"from transformers import AutoProcessor, {record.checkpoint.architecture}",
        "",
        f'model = {record.checkpoint.architecture}.from_pretrained("{name}", attn_implementation="eager")',
        f'processor = AutoProcessor.from_pretrained("{name}")',
        'prompt, image = f"{processor.image_token} The Eiffel Tower", Image.open("picture.png")',
    ]
