"""How far other packages' kernels are from PyTorch code: one file for all families."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .part import Part
from .record import Provenance

Ran = Literal["cuda", "interpreter", "compiled"]


class Difference(Part):
    """One tensor that both functions give or change."""

    of: str = Field(
        description="`output` and `state` are what they return, in this order; any other name is an argument that they change in place"
    )
    apart: float = Field(description="largest absolute difference over all calls, rounded up to one digit")
    largest: float = Field(description="largest absolute number that the PyTorch code gave there, to two digits")


class Comparison(Part):
    """A function of transformers and the one of another package that transformers runs in its place where it can."""

    function: str = Field(description="the PyTorch function of transformers")
    package: str = Field(description="the other package, by the name it is imported by")
    stand_in: str = Field(description="the package's function")
    during: Literal["prompt", "step"] | None = Field(
        description="what called it: the forward of a prompt, or of one token more with the cache of that prompt; null where neither did"
    )
    calls: int = Field(description="how many calls were compared")
    dtype: str | None = Field(None, description="of what the PyTorch code gave")
    differences: list[Difference] = []
    reference: str | None = Field(
        None,
        description="the package's own PyTorch version of its function, called because the function itself could not run: `calls` and `differences` are of this one, and say nothing of a kernel; null where the function itself ran, or neither",
    )
    ran: Ran | None = Field(
        None,
        description="what executed the package's function, or where its call stopped: a CUDA device; Triton's interpreter, on a CPU; or a CPU, for which its CUDA source was compiled with a stand-in for CUDA's runtime. The last two execute its own code without a GPU's arithmetic. Null where the function itself was not called",
    )
    padded: bool = Field(
        False,
        description="the function refused the strides of the twin's tensors, and was called on the same numbers with strides that are multiples of 8",
    )
    reason: str | None = Field(None, description="why the function was not compared; null where it was")


class KernelResults(Part):
    """Everything that `python -m probe kernels` measured."""

    provenance: Provenance = Field(description="of the PyTorch code, and where it ran")
    device: str | None = Field(None, description="name of the CUDA device; null where all ran on a CPU")
    packages: dict[str, str] = Field(
        description="versions of the packages that have the kernels, and of Triton, by the name they are imported by"
    )
    families: dict[str, dict[str, list[Comparison]]] = Field(
        description="by family and twin, for the twins that have such a function"
    )
