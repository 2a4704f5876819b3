"""The record: one JSON file per family and checkpoint, the only thing the probe and the page share.

Every key is documented in these modules, and ``site_src/records/schema.json`` is exported from them. They are
light: pydantic only. A number is a number, never text; a null that stands for "not known" comes with its reason.
"""

from __future__ import annotations

from ..schema_version import SCHEMA_VERSION
from .images import Images, Pattern, Station
from .modules import Element, Entries, Output, Returned, Weight
from .part import Part, Scalar
from .pictures import Picture, Series
from .record import (
    PASSES,
    About,
    Checkpoint,
    Declared,
    Edit,
    Evidence,
    Experiment,
    Fact,
    Factor,
    Feeder,
    Held,
    HfPath,
    Identity,
    Lack,
    ListedCheckpoint,
    Pass,
    PathNode,
    Provenance,
    Record,
    Row,
    Shape,
    Sublayer,
    Value,
    Vision,
    json_schema,
)

__all__ = [
    "PASSES",
    "SCHEMA_VERSION",
    "About",
    "Checkpoint",
    "Declared",
    "Edit",
    "Element",
    "Entries",
    "Evidence",
    "Experiment",
    "Fact",
    "Factor",
    "Feeder",
    "Held",
    "HfPath",
    "Identity",
    "Images",
    "Lack",
    "ListedCheckpoint",
    "Output",
    "Part",
    "Pass",
    "PathNode",
    "Pattern",
    "Picture",
    "Provenance",
    "Record",
    "Returned",
    "Row",
    "Scalar",
    "Series",
    "Shape",
    "Station",
    "Sublayer",
    "Value",
    "Vision",
    "Weight",
    "json_schema",
]
