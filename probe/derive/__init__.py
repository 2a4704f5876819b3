"""The default family: what a family module would declare, derived from one run of the model.

For a checkpoint of a model_type with no module under ``families/``, :func:`derived` gives an object with the same
attributes: names, hosts with their values, sizes. For a build from a config :func:`transferred` takes it from a twin.
"""

from .default import derived
from .transfer import transferred

__all__ = ["derived", "transferred"]
