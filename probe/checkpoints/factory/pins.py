"""The pinned digests of the factory's twins: ``python -m probe.checkpoints.factory.pins [MODEL_TYPE …]`` pins anew.

Without arguments every twin is pinned, and pins of twins that are no more are dropped. Run it after a change that was
meant; the diff of the lock shows which twins it reached.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from probe.checkpoints import digest
from probe.checkpoints.factory import build, lively, sources
from probe.errors import ProbeError

if TYPE_CHECKING:
    from torch import nn

LOCK = Path(__file__).with_name("lock.json")
"""``model_type/twin`` -> sha256 of the twin's weights."""


@cache
def pinned() -> dict[str, str]:
    return json.loads(LOCK.read_text()) if LOCK.exists() else {}


def of_twin(module: nn.Module) -> str:
    """The digest of a twin's weights, without what its class computes on the processor at hand."""
    return digest.of_weights(module, lively.computed(module))


def verified_digest(model_type: str, name: str, module: nn.Module) -> str:
    """The digest of a twin's weights, after comparing it with the pinned one.

    Raises:
        ProbeError: the twin is not the pinned one.
    """
    found = of_twin(module)
    known = pinned().get(f"{model_type}/{name}")
    if known != found:
        raise ProbeError(
            f"The twin {model_type}/{name} is not the pinned one ({found[:12]}, pinned {(known or 'nothing')[:12]}): "
            "if it was changed on purpose, run `python -m probe.checkpoints.factory.pins` and probe again."
        )
    return found


def pin(model_types: list[str]) -> dict[str, str]:
    """The pins with those of these decoders made anew; of all where none is named."""
    kept = dict(pinned()) if model_types else {}
    for model_type in model_types or sources.decoders():
        kept = {key: value for key, value in kept.items() if key.partition("/")[0] != model_type}
        for name in sources.twins(model_type):
            kept[f"{model_type}/{name}"] = of_twin(build.build(model_type, name))
    return kept


if __name__ == "__main__":
    try:
        pins = pin(sys.argv[1:])
    except ProbeError as error:
        print(error, file=sys.stderr)
        sys.exit(error.status)
    LOCK.write_text(json.dumps(pins, indent=1, sort_keys=True) + "\n")
    print(f"{LOCK.name} written")
