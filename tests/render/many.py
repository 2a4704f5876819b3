"""A site of many families for the tests of its overviews: the fixture's records under other names.

``python -m tests.render.many RECORDS N`` writes N families, the first 60 of one to three checkpoints and the others of
one. They differ in title, organisation, size, native names and quirks; which ones is a function of the family's number.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.render import fixture

SYLLABLES = ("al", "ber", "cor", "dan", "el", "fal", "gra", "hel", "in", "jor", "ka", "lum", "mo", "ner", "or", "pha")
ENDS = ("mind", "net", "coder", "base", "chat", "wave", "stone")
ORGANISATIONS = ("acme-ai", "northwind", "Contoso", "fabrikam", "tailspin", "initech", "globex", "umbrella-lab")
NATIVE = (
    ((r"model\.language_model\.layers", "transformer.h"), (r"mlp\.down_proj", "mlp.c_proj"), (r"self_attn\b", "attn")),
    ((r"model\.language_model\.layers", "gpt_neox.layers"), (r"mlp\.down_proj", "mlp.dense_4h_to_h")),
    ((r"model\.language_model\.", "model."),),
    (),
)
QUIRKS = (("alibi", "ALiBi"), ("layernorm", "LayerNorm"), ("parallel-blocks", "Parallel blocks"), ("hybrid", "Hybrid"))


def name(number: int) -> str:
    """The model_type of one family, different for each number below 1792."""
    middle, rest = SYLLABLES[number % 16], number // 16
    return f"{middle}{SYLLABLES[(rest * 5 + number) % 16]}{ENDS[rest % 7]}{rest // 7 or ''}"


def family(number: int, bases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of one family."""
    base = bases[number % len(bases)]
    model_type = name(number)
    organisation = ORGANISATIONS[number % len(ORGANISATIONS)]
    sizes = ("7B", "70B", "1B")[: 1 + number % 3 if number < 60 else 1]
    ids = [f"{organisation}/{model_type.title()}-{size}" for size in sizes]
    listed = [{"id": i, "kind": base["checkpoint"]["kind"], "file": i.replace("/", "--"), "reason": None} for i in ids]
    made = []
    for k, checkpoint in enumerate(ids):
        record = json.loads(json.dumps(base))
        record["family"] = model_type
        record["about"] |= {"title": model_type.title(), "checkpoints": listed, "module": f"families.{model_type}"}
        record["checkpoint"] |= {
            "id": checkpoint,
            "model_type": model_type,
            "architecture": f"{model_type.title()}ForCausalLM",
            "parameters": (7, 70, 1)[k] * (10**9 + number),
        }
        for value in record["values"]:
            _renamed(value, number)
        record["returned"] = [_called(number)]
        slug, label = QUIRKS[number % len(QUIRKS)]
        record["experiments"] += [
            {
                "slug": slug,
                "label": label,
                "verdict": "yes",
                "blocks": [0],
                "measured": {"largest_change": number / 10},
                "explained": {},
                "statement": f"On block 0 this holds, to within {number / 10}.",
            }
        ]
        made.append(record)
    return made


def _renamed(value: dict[str, Any], number: int) -> None:
    if value["hf"]:
        value["hf"]["path"] = _native(value["hf"]["path"], number)


def _native(path: str, number: int) -> str:
    for old, new in NATIVE[number % len(NATIVE)]:
        path = re.sub(old, new, path)
    return path


def _called(number: int) -> dict[str, Any]:
    """A module under the family's native name that is no value's place."""
    path = _native("model.language_model.layers.{i}.self_attn.q_proj", number)
    element = {"position": None, "type": "Tensor", "shape": [1, 9, 8], "value": None}
    return {"path": path, "module": "Linear", "blocks": [0], "type": "Tensor", "elements": [element]}


def write(directory: Path, count: int, bases: list[dict[str, Any]] | None = None) -> Path:
    """Writes ``count`` families below ``directory`` and returns it."""
    bases = bases or [record.as_json() for record in fixture.records()]
    for number in range(count):
        for record in family(number, bases):
            path = directory / record["family"] / (record["checkpoint"]["id"].replace("/", "--") + ".json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, ensure_ascii=False, sort_keys=True, indent=1) + "\n")
    return directory


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
