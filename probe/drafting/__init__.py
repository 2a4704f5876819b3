"""Drafting: the source of a family module, printed from what was derived of the family's twins."""
