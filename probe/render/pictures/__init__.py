"""Pictures of measured numbers, drawn as SVG when the site is built.

`canvas` is the paper that they are drawn on, `draw` gives the SVG of a record's picture, `views` what a page shows of
it. Colours are classes, so that a page's colour scheme decides them. Only `canvas` and `scales` know matplotlib.
"""

from __future__ import annotations
