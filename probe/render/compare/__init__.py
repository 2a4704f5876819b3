"""Checkpoints side by side: what a checkpoint brings to a comparison, and what a comparison makes of several.

`column` is a checkpoint's part, which the site publishes as JSON beside its page. `table` joins columns; the script of
the page does the same in a browser, for any two to four of them. `pages` has the pages made beforehand.
"""
