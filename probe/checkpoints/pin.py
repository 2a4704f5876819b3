"""Pins the twins: ``python -m probe.checkpoints.pin`` writes the digest of every twin to ``twins.lock.json``.

Run it after a twin was changed on purpose; the diff of the lock shows which twins changed.
"""

from __future__ import annotations

import json

from probe import registry
from probe.checkpoints import digest, twins


def digests() -> dict[str, str]:
    """``family/name`` -> sha256 of the twin's weights, of every twin as it is built now."""
    return {
        f"{family.name}/{name}": digest.of_weights(twins.build(family.name, name))
        for family in registry.families()
        for name in family.twins
    }


if __name__ == "__main__":
    twins.LOCK.write_text(json.dumps(digests(), indent=1, sort_keys=True) + "\n")
    print(f"{twins.LOCK.name} written")
