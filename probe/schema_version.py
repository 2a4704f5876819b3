"""The version of the records' format, apart from the schema, so that `python -m probe list` need not load that."""

SCHEMA_VERSION = 1
