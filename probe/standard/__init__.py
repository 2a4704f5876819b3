"""The standard layer: one set of names for the parts and values of every family."""

from .families import family_module
from .transformer import StandardizedTransformer
from .value import StandardValue, UnavailableValue

__all__ = ["StandardValue", "StandardizedTransformer", "UnavailableValue", "family_module"]
