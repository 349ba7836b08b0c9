"""Sampled outputs with trained drafters have the target's law, whatever their weights are."""

from __future__ import annotations

import pytest

from specdec_core.config.drafters import parse_drafter
from specdec_core.config.sampling import parse_sampling
from specdec_core.decoding.law import check_law
from specdec_core.models.tiny import tiny_target
from tests.learned_drafts import write_draft


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("eagle3-narrow", "eagle:model={},shape=static,branching=2/1,draft=sample"),
        ("eagle3", "eagle:model={},shape=chain,gamma=2,draft=sample"),
        ("medusa-narrow", "medusa:model={},shape=chain,gamma=2,draft=sample"),
    ],
)
def test_drawn_candidates_keep_the_law_and_the_control_is_caught(kind, method, tmp_path):
    """The check decodes a target of its own, with untrained weights in place of the stored ones."""
    write_draft(tmp_path, kind, tiny_target("llama", vocab_size=9, num_layers=4))
    config = parse_drafter(method.format(tmp_path))
    found = check_law(config, parse_sampling("temperature=1.0"), num_draws=2000)
    assert found.test.is_passed()
    assert not found.control.is_passed()
