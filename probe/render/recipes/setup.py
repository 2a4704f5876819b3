"""What the snippets of a page stand on: ``model``, ``prompt``, ``inputs`` and the vectors of edits, in each form."""

from __future__ import annotations

from probe.prompt import PROMPT
from probe.render.recipes import Form
from probe.render.recipes.place import is_added, narrowest
from probe.schema import Record

SETUP = "stands"
"""The id of these lines on a page; it lies inside what opens, so that a link to it opens that."""


def setup(record: Record, form: Form) -> str:
    """The lines that load the checkpoint and tokenize a prompt.

    A twin is built here from code. Attention is eager, since some values are made by no other.
    """
    lines = ["import torch", *(["import nnsight"] if form != "pytorch" else []), *_imports(record, form), ""]
    lines += [*_model(record, form), *_inputs(record, form)]
    return "\n".join([*lines, *_vectors(record)])


def _vectors(record: Record) -> list[str]:
    """As wide as what the sublayers add: where no run measured that, as the checkpoint's stream."""
    width = narrowest(record, record.values) or record.sizes["hidden_size"]
    lines = [f"vector = torch.randn({width})"]
    if record.vision and any(is_added(record, value) for value in record.vision.values):
        width = narrowest(record, record.vision.values) or record.vision.sizes["vision_hidden_size"]
        lines.append(f"vision_vector = torch.randn({width})")
    return lines


def _tiny(record: Record) -> bool:
    return record.checkpoint.kind == "tiny"


def _vision(record: Record) -> bool:
    return record.checkpoint.task == "image-text-to-text"


def _imports(record: Record, form: Form) -> list[str]:
    found = []
    if _tiny(record):
        found.append("from probe.checkpoints import load, resolve")
        if _vision(record):
            found.append("from probe.checkpoints.images import test_image")
    elif _vision(record):
        found.append("from PIL import Image")
    if form == "names":
        found.append("from probe.standard import StandardizedTransformer")
    elif form == "nnsight":
        found.append("from nnsight.modeling.transformers import TransformersModel")
    if form != "names" and not _tiny(record):
        reader = "AutoProcessor" if _vision(record) else "AutoTokenizer"
        classes = [reader, record.checkpoint.architecture] if form == "pytorch" else [reader]
        found.append(f"from transformers import {', '.join(sorted(classes))}")
    return found


def _model(record: Record, form: Form) -> list[str]:
    name = record.checkpoint.id
    reader = "processor" if _vision(record) else "tokenizer"
    if _tiny(record):
        lines = [f'loaded = load(resolve("{name}", "{record.family}"), attn="eager")', f"{reader} = loaded.{reader}"]
        built = {
            "names": "StandardizedTransformer(loaded)",
            "nnsight": f"TransformersModel(loaded.module, task=loaded.task, {reader}={reader})",
            "pytorch": "loaded.module",
        }
        return [*lines, f"model = {built[form]}"]
    auto = "AutoProcessor" if _vision(record) else "AutoTokenizer"
    read = [f'{reader} = {auto}.from_pretrained("{name}")']
    if form == "names":
        return [f'model = StandardizedTransformer("{name}", attn="eager")', f"{reader} = model.{reader}"]
    if form == "nnsight":
        task = f'task="{record.checkpoint.task}", attn_implementation="eager", dispatch=True'
        return [f'model = TransformersModel("{name}", {task})', *read]
    load = f'{record.checkpoint.architecture}.from_pretrained("{name}", attn_implementation="eager")'
    return [f"model = {load}", *read]


def _inputs(record: Record, form: Form) -> list[str]:
    if not _vision(record):
        return [f'prompt = "{PROMPT}"', 'inputs = dict(tokenizer(prompt, return_tensors="pt"))']
    return [
        "image = test_image()" if _tiny(record) else 'image = Image.open("picture.png")',
        f'prompt = processor.image_token + " {PROMPT}"',
        'inputs = dict(processor(text=prompt, images=[image], return_tensors="pt"))',
    ]
