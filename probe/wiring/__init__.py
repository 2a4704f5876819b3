"""Wiring: how a block's output is made, read from one recorded forward of its native module.

:func:`probe.wiring.anatomy.derive` gives a block's sum, its sublayers, and the norms around them. Nothing here knows
standard names.
"""
