"""Pins the twins that family modules declare: ``python -m probe.checkpoints.pin`` writes their digests to the lock.

Run it after a twin was changed on purpose; the diff of the lock shows which twins changed.
"""

from __future__ import annotations

import json

from probe import registry
from probe.checkpoints import digest, twins


def digests() -> dict[str, str]:
    """``family/name`` -> sha256 of the twin's weights, of every declared twin as it is built now."""
    return {
        f"{family}/{name}": digest.of_weights(twins.build(family, name))
        for family in registry.modules()
        for name in registry.get(family).twins
    }


if __name__ == "__main__":
    twins.LOCK.write_text(json.dumps(digests(), indent=1, sort_keys=True) + "\n")
    print(f"{twins.LOCK.name} written")
