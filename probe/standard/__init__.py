"""The standard layer: one set of names for the parts and values of every family."""

from ..values.value import StandardValue, UnavailableValue
from .families import family_module
from .transformer import StandardizedTransformer

__all__ = ["StandardValue", "StandardizedTransformer", "UnavailableValue", "family_module"]
