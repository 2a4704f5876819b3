"""Whose return a module reads, and which returns are written to afterwards: planted modules."""

from __future__ import annotations

import torch
from torch import nn

from probe.record.modules.flow import Flow
from probe.record.modules.sites import Site


def site(path: str) -> Site:
    return Site(path, path, 0, False, False)


def test_reading_is_told_through_views_rows_and_inner_modules() -> None:
    flow, linear = Flow(), nn.Linear(4, 4)
    normed, other = torch.randn(1, 6, 4), torch.randn(1, 6, 4)
    flow.gives(site("norm"), normed)
    flow.gives(site("wrapper"), (normed, None))
    flow.gives(site("other"), other)
    assert flow.reads(site("linear"), linear, (normed.view(6, 4),)) == "norm"
    assert flow.reads(site("linear"), linear, (normed[0, [4, 1]],)) == "norm"
    assert flow.reads(site("linear"), linear, (normed + other,)) is None
    assert flow.reads(site("activation"), nn.SiLU(), (normed,)) is None


def test_a_return_that_is_written_to_is_no_longer_read() -> None:
    flow, linear = Flow(), nn.Linear(4, 4)
    normed, kept = torch.randn(1, 6, 4), torch.randn(1, 6, 4)
    for path, tensor in (("inner", normed), ("outer", normed), ("kept", kept)):
        flow.gives(site(path), tensor)
    normed.clamp_(-0.1, 0.1)
    assert flow.rewritten() == {"inner", "outer"}
    assert flow.reads(site("linear"), linear, (normed,)) is None
