"""The measure for the probe's cost: import the libraries, build a family's models, run one forward of each.

A build from a config is on the meta device, where nothing can be computed, so only the twins run.

Usage: python tests/benchmarks/bare.py FAMILY
"""

import sys
from typing import Any

import nnsight
import torch
import transformers

from probe import checkpoints


def inputs(loaded: checkpoints.Loaded) -> Any:
    if loaded.processor is None:
        return loaded.tokenizer("The Eiffel Tower is in the city of", return_tensors="pt")
    from probe.checkpoints.images import test_image

    text = f"{loaded.processor.image_token} The Eiffel Tower"
    return loaded.processor(text=text, images=[test_image()], return_tensors="pt")


def main(family: str) -> None:
    forwards = 0
    targets = [target for target in checkpoints.targets(family) if target.kind != "weights"]
    for target in targets:
        loaded = checkpoints.load(target)
        if target.kind == "tiny":
            with torch.no_grad():
                loaded.module(**inputs(loaded))
            forwards += 1
    print(f"{len(targets)} models, {forwards} forwards; {torch.__name__}, {transformers.__name__}, {nnsight.__name__}")


if __name__ == "__main__":
    main(sys.argv[1])
