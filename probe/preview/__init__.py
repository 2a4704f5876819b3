"""A preview of a change: the site as it would be, with a page that says what the change does to facts and pages.

`build` makes it, ``scripts/preview`` runs it, `publish` puts it on the branch that a static host serves.
"""
