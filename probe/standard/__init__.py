"""The standard layer: one set of names for the parts and values of every family."""

from .transformer import StandardizedTransformer, family_module
from .value import StandardValue, UnavailableValue

__all__ = ["StandardValue", "StandardizedTransformer", "UnavailableValue", "family_module"]
