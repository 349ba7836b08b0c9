"""Drafters that want hidden states: Medusa-like heads and an EAGLE-like block, both untrained."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DRAFTERS, Drafter, register
from tests.conformance.drafter_conformance import DrafterConformance
from tests.conformance.drafter_runs import GREEDY
from tests.doubles import ScriptedView
from tests.feature_drafters import Block, BlockDrafter, Heads, HeadsDrafter, Sizes


class FeatureConformance(DrafterConformance):
    """Subclass with the class of a drafter that is made for the sizes of its target."""

    kind: type[HeadsDrafter] | type[BlockDrafter]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def registered(cls) -> Iterator[None]:
        """Register the drafter for these tests alone: it is no method of the product."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DRAFTERS, "_classes", dict(DRAFTERS._classes))
            register(type(cls.config))(cls.kind)
            yield

    def drafter_for(self, view: ScriptedView, sampling: Sampling = GREEDY) -> Drafter:
        return self.kind(Sizes(view.hidden_size, view.vocab_size))


class TestHeads(FeatureConformance):
    config = Heads()
    kind = HeadsDrafter


class TestBlock(FeatureConformance):
    config = Block()
    kind = BlockDrafter
