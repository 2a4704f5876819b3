"""What the search reads of a page."""

from __future__ import annotations

import pytest

from probe.render.searched import searched


@pytest.mark.parametrize(
    "page, read",
    [
        ('<h2 id="a">A <small>b</small></h2>\n<p>c</p>', '<h2 id="a">A b</h2> <p>c</p>'),
        ("a<div data-search-exclude><div>b</div>c</div>d<div>e</div>", "ade"),
        ('a<div class="x" data-search-exclude><p data-search-exclude>b</p></div><p>c</p>', "a<p>c</p>"),
        ("<pre><code>a\n  <span>b</span></code></pre>\n\n  c", "<pre><code>a\n  b</code></pre> c"),
        ("a<img data-search-exclude>b", "ab"),
        ('<p title="data-search-exclude">a</p>', '<p title="data-search-exclude">a</p>'),
        ("<preface>a</preface> <header>b</header>", "a <header>b</header>"),
    ],
)
def test_what_is_marked_and_markup_that_no_index_keeps_are_left_out(page: str, read: str) -> None:
    assert searched(page) == read
