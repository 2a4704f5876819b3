"""How an image enters the text model, seen by hooks of plain PyTorch: for every wrapper, whatever its encoder is like.

Two forwards, one on other pixels, show which modules before the first text block carry the image. Of these the
outermost are stations, and the stack of blocks among them is the longest list of modules that hand on one stream. Each
side of each station is then edited in a forward of its own. No names are asked for but those of the text model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

from ..checkpoints import tokens
from ..checkpoints.implementation import implementation
from ..schema import Images, Pattern, Station
from ..standard.inputs import IMAGE_PROMPT, image_marker
from ..standard.stack import same
from ..standard.trace import Inputs
from .edits import noise_like
from .hooked import Forward, Side, as_it_was, edited, forward
from .native import of_any_block
from .rounding import digits, one_digit
from .run import Run


def images(run: Run) -> Images | None:
    """What a prompt with one image becomes; None where the checkpoint sees none, or brings no processor for it."""
    given = prepared(run)
    if given is None:
        return None
    prompt, size, inputs = given
    module = run.model._module
    with as_it_was(module), implementation(module, "eager"), torch.no_grad():
        return Watched(run, inputs).told(prompt, size)


def prepared(run: Run) -> tuple[str, str, Inputs] | None:
    """The prompt with one image, the image's size and the model's inputs; None where no image can be read."""
    from ..checkpoints.images import processor, test_image

    loaded = run.model.loaded
    reader = loaded.processor
    if reader is None and loaded.target.kind == "tiny" and loaded.config.model_type in tokens.SEEING:
        reader = processor(loaded.config)
    if reader is None:
        return None
    image = test_image()
    prompt = IMAGE_PROMPT.format(image=image_marker(loaded))
    encoded = dict(reader(text=prompt, images=[image], return_tensors="pt"))
    placed = {
        name: tensor.to(run.model.device, run.dtype if tensor.is_floating_point() else None)
        for name, tensor in encoded.items()
        if isinstance(tensor, torch.Tensor)
    }
    return prompt, f"{image.width} × {image.height}", placed


class Watched:
    """The forwards of one prompt with an image."""

    def __init__(self, run: Run, inputs: Inputs) -> None:
        self.run = run
        self.module = run.model._module
        self.inputs = inputs
        self.blocks = [envoy._module for envoy in run.text.envoys]
        self.paths = {id(module): path for path, module in self.module.named_modules()}
        within = {id(part) for block in self.blocks for part in block.modules()} - {id(block) for block in self.blocks}
        self.watched = {
            path: module for path, module in self.module.named_modules() if path and id(module) not in within
        }
        self.pixels = next(name for name, tensor in inputs.items() if tensor.is_floating_point())
        pixels = inputs[self.pixels]
        noise = noise_like(pixels).to(pixels.dtype) * pixels.std()
        first = self.paths[id(self.blocks[0])]
        self.seen, self.logits = forward(self.module, inputs, self.watched, first)
        _, repeated = forward(self.module, inputs, {}, first)
        self.other, _ = forward(self.module, {**inputs, self.pixels: pixels + noise}, self.watched, first)
        self.noise = float((repeated - self.logits).abs().max())
        self.mask = inputs["input_ids"] == self.module.config.image_token_id

    def carries(self, path: str) -> bool:
        """Whether a module passes what the pixels change, once and before the first text block."""
        here, there = self.seen.get(path), self.other.get(path)
        if here is None or there is None or here.calls > 1 or not here.before_text:
            return False
        return here.leaving is not None and there.leaving is not None and not _equal(here.leaving, there.leaving)

    def stack(self) -> list[str]:
        """Paths of the encoder's blocks: the longest list of modules each of which takes what the one before gave."""
        best: list[str] = []
        for path, module in self.watched.items():
            if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
                continue
            children = [f"{path}.{name}" for name, _ in module.named_children()]
            if len(children) > len(best) and len(children) > 1 and all(map(self.carries, children)):
                steps = zip(children, children[1:], strict=False)
                if all(_equal(self.seen[one].leaving, self.seen[two].entering) for one, two in steps):
                    best = children
        return best

    def stations(self) -> list[list[str]]:
        """Paths of the modules that an image passes; those of one list that are alike stand together."""
        stack = self.stack()
        inner = {id(self.watched[path]) for path in stack} | {id(block) for block in self.blocks}
        found = [path for path in self._outermost("", self.module, inner) if path not in stack]
        embed = self.patch_embedding(stack)
        if embed is not None and embed not in found:
            found.append(embed)
        groups: dict[Any, list[str]] = {}
        for path in sorted([*found, *stack], key=lambda path: self.seen[path].order):
            groups.setdefault(self._alike(path), []).append(path)
        return [*groups.values()]

    def _outermost(self, path: str, module: torch.nn.Module, inner: set[int]) -> Iterator[str]:
        for name, child in module.named_children():
            below = f"{path}.{name}" if path else name
            if id(child) in inner:
                continue
            if below in self.seen and not any(id(part) in inner for part in child.modules()):
                if self.carries(below):
                    yield below
            else:
                yield from self._outermost(below, child, inner)

    def patch_embedding(self, stack: list[str]) -> str | None:
        """The innermost module with weights that takes the pixels as they are."""
        pixels = self.inputs[self.pixels].float()
        takers = [
            path
            for path, passed in self.seen.items()
            if self.carries(path)
            and any(True for _ in passed.module.parameters())
            and not any(path == block or path.startswith(f"{block}.") for block in stack)
            and _equal(passed.entering, pixels)
        ]
        return max(takers, key=lambda path: path.count("."), default=None)

    def _alike(self, path: str) -> Any:
        numbers = [part for part in path.split(".") if part.isdigit()]
        if len(numbers) != 1:
            return path
        passed = self.seen[path]
        return (
            of_any_block(path),
            type(passed.module),
            *(tuple(t.shape) for t in (passed.entering, passed.leaving) if t is not None),
        )

    def told(self, prompt: str, size: str) -> Images:
        """All of it, as the record holds it."""
        positions = self.mask[0].nonzero().flatten().tolist()
        return Images(
            size=size,
            prompt=prompt,
            inputs={name: list(tensor.shape) for name, tensor in self.inputs.items()},
            token=_token(self.module.config),
            mask_holds=self._mask_holds(),
            image_tokens=len(positions),
            first=positions[0],
            last=positions[-1],
            stations=[*self._rows()],
            **self._attention(),
        )

    def _stream(self, index: int, side: Side, forward: Forward | None = None) -> torch.Tensor:
        """The text stream at a block; past the last one, what enters the module that follows."""
        seen = self.seen if forward is None else forward
        if index == len(self.blocks):
            last = self.paths[id(self.blocks[-1])]
            later = [p for p in seen.values() if p.order > seen[last].order and p.entering is not None]
            tensor = min(later, key=lambda passed: passed.order).entering
        else:
            passed = seen[self.paths[id(self.blocks[index])]]
            tensor = passed.entering if side == "in" else passed.leaving
        assert tensor is not None
        return tensor

    def _mask_holds(self) -> bool:
        here, there = self._stream(0, "in"), self._stream(0, "in", self.other)
        moved = (here - there).abs().amax(-1) > 1e-6 * float(here.abs().max())
        return bool(moved.shape == self.mask.shape and torch.equal(moved, self.mask))

    def _rows(self) -> Iterator[Station]:
        stack = self.stack()
        embed = self.patch_embedding(stack)
        joined = self._joined()
        for group in self.stations():
            indexed = len(group) > 1 or group[0] in stack
            role: Literal["patch embedding", "block"] | None = (
                "patch embedding" if group == [embed] else "block" if set(group) <= set(stack) else None
            )
            for side in ("in", "out"):
                passed = self.seen[group[0]]
                tensor, element = (passed.entering, passed.taken) if side == "in" else (passed.leaving, passed.given)
                if tensor is None:
                    continue
                changes = [self._edited(path, side, in_place=side == "out") for path in group]
                reached = [*map(self._reaches, changes)]
                enters = [joined(path) for path in group] if side == "out" else [None]
                numbers = [_index(path) for path in group]
                left = [(None, None) if side == "out" or path in stack else self._leaves(stack, path) for path in group]
                takes = [block for block, _ in left]
                lost = [
                    number
                    for path, number, hit in zip(group, numbers, reached, strict=True)
                    if side == "out" and hit and not self._reaches(self._edited(path, side))
                ]
                yield Station(
                    path=of_any_block(group[0]) if indexed else group[0],
                    module=type(passed.module).__name__,
                    side=side,
                    element=element,
                    shape=list(tensor.shape),
                    blocks=numbers if indexed else None,
                    role=role,
                    reaches=[n for n, hit in zip(numbers, reached, strict=True) if hit] if indexed else None,
                    edits=all(reached),
                    in_place=lost,
                    logits=one_digit(max(changes)),
                    takes=[block for block in takes if block is not None] if None not in takes else None,
                    dropped=left[0][1] if None not in takes else None,
                    enters=[at for at in enters if at is not None] if None not in enters else None,
                )

    def _leaves(self, stack: list[str], path: str) -> tuple[int | None, Literal["first", "last"] | None]:
        """The encoder's block whose output a module takes, and which row of it is missing there."""
        entering = self.seen[path].entering
        for number, block in enumerate(stack):
            leaving = self.seen[block].leaving
            if _equal(leaving, entering):
                return number, None
            if leaving is not None and leaving.ndim == 3 and leaving.shape[1] > 1:
                if _equal(leaving[:, 1:], entering):
                    return number, "first"
                if _equal(leaving[:, :-1], entering):
                    return number, "last"
        return None, None

    def _reaches(self, change: float) -> bool:
        return change > 8 * self.noise + 1e-7 * float(self.logits.abs().max())

    def _joined(self) -> Callable[[str], int | None]:
        """Where what a module gives is what the text stream gets at the image tokens; see `Station.enters`."""
        got = {-1: self._stream(0, "in")[self.mask]}
        for index in range(len(self.blocks)):
            leaving, entering = self._stream(index, "out"), self._stream(index + 1, "in")
            if leaving.shape == entering.shape and not _equal(leaving, entering):
                got[index] = (entering - leaving)[self.mask]

        def of(path: str) -> int | None:
            leaving = self.seen[path].leaving
            if leaving is None:
                return None
            rows = leaving.reshape(-1, leaving.shape[-1])
            return next((at for at, wanted in got.items() if same(rows, wanted, 1e-4)), None)

        return of

    def _edited(self, path: str, side: Side, in_place: bool = False) -> float:
        """Largest change of a logit under an edit on one side of a module."""
        logits = edited(self.module, self.inputs, self.seen[path], side, in_place=in_place)
        return float((logits - self.logits).abs().max())

    def _attention(self) -> dict[str, Any]:
        """The patterns of the text blocks, and the last token's share on the image."""
        given = getattr(self.module(**self.inputs, use_cache=False, output_attentions=True), "attentions", None) or ()
        kinds: dict[tuple[int, ...], list[int]] = {}
        both: set[int] = set()
        shares: list[float | None] = []
        without: list[int] = []
        length = self.mask.shape[-1]
        for block in range(len(self.blocks)):
            pattern = given[block] if len(given) == len(self.blocks) else None
            if not isinstance(pattern, torch.Tensor) or tuple(pattern.shape[-2:]) != (length, length):
                without.append(block)
                shares.append(None)
                continue
            kinds.setdefault(tuple(pattern.shape), []).append(block)
            among = pattern[0][:, self.mask[0]][:, :, self.mask[0]].float()
            if float(among.triu(1).max()) > 0:
                both.add(block)
            shares.append(digits(float(pattern[0, :, -1, self.mask[0]].float().sum(-1).mean()), 2))
        rows = [
            Pattern(blocks=blocks, shape=list(shape), both_ways=[b for b in blocks if b in both])
            for shape, blocks in kinds.items()
        ]
        return {"patterns": rows, "without_pattern": without, "shares": shares}


def _token(config: Any) -> dict[str, int]:
    """The entry of a config.json that names the image token."""
    wanted = config.image_token_id
    names = [name for name, value in sorted(config.to_dict().items()) if "image_token" in name and value == wanted]
    return {names[0] if names else "image_token_id": int(wanted)}


def _index(path: str) -> int:
    return next((int(part) for part in path.split(".") if part.isdigit()), 0)


def _equal(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    return left is not None and right is not None and left.shape == right.shape and same(left, right, 1e-6)
