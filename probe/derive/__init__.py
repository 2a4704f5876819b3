"""The default family: what a family module would declare, derived from one run of the model.

For a model_type with no module under ``families/``, :func:`family_of` gives an object with the same attributes: names,
hosts with their values, sizes. For one that has a module, :func:`contradictions` compares what it declares.
"""

from .compare import contradictions
from .default import derived, family_of

__all__ = ["contradictions", "derived", "family_of"]
