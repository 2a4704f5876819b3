"""The way from a term back to the stream: the modules on it that compute, and the norms before and after them.

What a module is, is decided by what it does: an attention takes a softmax over positions, a mixer lets positions reach
one another without one, a mixture chooses, a branch looks something up or has no activation, what is left is an MLP.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from .assembly import Underivable
from .expressions import Expression, Leaf, Made, Opaque, Product, Stream, Sum, carries_stream, contains_stream, depends
from .expressions import order as order_of
from .mixing import reach
from .norms import is_gated_norm, is_norm
from .symbols import BlockTrace

Kind = Literal["attention", "mixer", "mlp", "moe", "branch"]

CHOOSES_EXPERTS = frozenset({"topk", "one_hot", "grouped_mm"})
CHOOSES = CHOOSES_EXPERTS | {"max", "argmax"}


@dataclass
class Path:
    """The way of one term.

    Attributes:
        block: the native block.
        trace: what its forward showed.
        points: the points of the block's own sum, by identity: its partial sums, its other terms, the stream's norms.
            A term that reads one of them reads the stream, not through a norm of its own.
        connections: submodules that return gates; they read the stream for a sublayer and are none.
        hosts: the modules that compute, nearest the add first.
    """

    block: torch.nn.Module
    trace: BlockTrace
    points: frozenset[int] = frozenset()
    connections: frozenset[str] = frozenset()
    hosts: list[str] = field(default_factory=list)
    before: str | None = None
    after: str | None = None
    foreign: bool = False
    """Whether something from outside the block joins on the way."""
    reads: list[Expression] = field(default_factory=list)
    """The points of the stream that are read."""
    steps_back: int | None = None
    """How many positions back a mixer reaches, where the term comes from one."""
    counting: bool = True
    """Whether modules on the way count as hosts."""
    _seen: set[int] = field(default_factory=set)

    def walk(self, term: Expression) -> Expression:
        """Follow a term to the points of the stream it reads, and give the last of them in the forward."""
        self._seen.add(id(term))
        self._through(term)
        if not self.reads:
            last = self.hosts[-1] if self.hosts else "a term"
            raise Underivable(f"{type(self.block).__name__}: the input of {last} could not be traced to the stream")
        return max(self.reads, key=order_of)

    def _follow(self, expression: Expression) -> None:
        if id(expression) in self._seen:
            return
        self._seen.add(id(expression))
        if id(expression) in self.points or isinstance(expression, Stream):
            self.reads.append(expression)
        elif contains_stream(expression):
            self.reads.append(expression)
        elif depends(expression):
            self._through(expression)

    def _through(self, expression: Expression) -> None:
        counting = self.counting and self.before is None
        match expression:
            case Leaf():
                self._module(expression)
            case Product(of, factor):
                self.foreign |= isinstance(factor, Opaque) and factor.kind == "tensor"
                self._follow(of)
                self._beside(factor, counting)
            case Sum(left, right):
                first, second = (left, right) if depends(left) else (right, left)
                self._follow(first)
                self._beside(second, counting)
            case Made(_, operands):
                known = [each for each in operands if depends(each)]
                for each in known[:1]:
                    self._follow(each)
                for each in known[1:]:
                    self._beside(each, counting)

    def _beside(self, expression: Expression, counting: bool) -> None:
        """Follow what joins the way from the side: its modules count where ``counting``, its norms do not."""
        aside = replace(self, hosts=[], before=None, after=None, counting=counting, reads=[])
        aside._follow(expression)
        self.hosts += aside.hosts
        self.reads += aside.reads

    def _module(self, leaf: Leaf) -> None:
        module = self.block.get_submodule(leaf.path)
        entered = leaf.input
        outer = None
        if leaf.norm or is_gated_norm(module, leaf.tensor.shape[-1]):
            self._norm(leaf.path)
        elif leaf.path in self.connections:
            self._norm(self._norm_inside(leaf.path))
        elif self.counting and self.before is None and any(True for _ in module.parameters()) and not _filters(module):
            outer = self._outer(leaf)
            self.hosts.append(outer or leaf.path)
        if outer is not None:
            entered = self.trace.entered[outer]
        if entered is not None:
            self._follow(entered)
        for other in () if outer is not None else leaf.inputs:
            self._beside(other, counting=False)

    def _norm(self, path: str | None) -> None:
        if self.hosts:
            self.before = self.before or path
        else:
            self.after = self.after or path

    def _norm_inside(self, connection: str) -> str | None:
        """The norm that a connection begins with: what it returns to its sublayer is normed already."""
        inside = [path for path in self.trace.entered if path.startswith(f"{connection}.")]
        for path in inside:
            called = self.trace.calls[path][1]
            if carries_stream(self.trace.entered[path]) and called and isinstance(called[0], torch.Tensor):
                if is_norm(self.block.get_submodule(path), called[0].shape[-1]):
                    return path
        return None

    def _outer(self, leaf: Leaf) -> str | None:
        """The module that a leaf is a part of, where there is arithmetic between it and the submodules before it."""
        entered = leaf.input
        direct = isinstance(entered, (Leaf, Stream)) or carries_stream(entered)
        if direct or not leaf.inside:
            return None
        return next((outer for outer in reversed(leaf.inside) if self.trace.entered.get(outer) is not None), None)

    def kind(self) -> tuple[Kind, tuple[str, ...]]:
        """What the hosts are. Parts of one module count as that module, if it was called; children of the block that
        only compute from the stream, and parts that the block calls itself, are an MLP without a module, and those that
        also take something from outside are a branch.
        """
        hosts = list(dict.fromkeys(self.hosts))
        kinds: dict[str, Kind] = {host: self._kind(host) for host in hosts}
        for mixing in ("attention", "mixer"):
            found = tuple(host for host in hosts if kinds[host] == mixing)
            if found:
                return mixing, found
        parents = {host.split(".")[0] for host in hosts}
        mixture = "moe" in kinds.values() or any(
            "." not in path and "topk" in found for path, found in self.trace.functions.items()
        )
        if len(hosts) > 1 and mixture:
            return "moe", tuple(hosts)
        if len(hosts) > 1:
            parent = parents.pop() if len(parents) == 1 else ""
            if parent in self.trace.calls:
                return self._kind(parent), (parent,)
            return ("branch" if self.foreign else "mlp"), ()
        return (kinds[hosts[0]], tuple(hosts)) if hosts else ("branch", ())

    def _kind(self, host: str) -> Kind:
        functions = self.trace.functions.get(host, set())
        if "attends" in functions:
            return "attention"
        if functions & CHOOSES_EXPERTS:
            return "moe"
        if "looks up" in functions:
            return "branch"
        back = reach(*self.trace.calls[host]) if host in self.trace.calls else 0
        if back:
            self.steps_back = back
            return "attention" if "weighs" in functions else "mixer"
        if functions & CHOOSES:
            return "moe"
        whole = host in self.trace.calls and any(True for _ in self.block.get_submodule(host).children())
        return "branch" if whole and "activates" not in functions else "mlp"


def _filters(module: torch.nn.Module) -> bool:
    """Whether all that a module holds is a convolution of each channel by itself: it smooths what a sublayer made."""
    shapes = [parameter.shape for parameter in module.parameters() if parameter.ndim > 1]
    return bool(shapes) and all(len(shape) == 3 and shape[1] == 1 for shape in shapes)
