"""Progressive Tree Drafting under every profile, and with switches at their other values."""

from specdec_core.config.ptd import Ptd
from specdec_core.decoding import Drafter, DrafterContext, make_drafter
from tests.conformance.drafter_conformance import DrafterConformance


class TestPtd(DrafterConformance):
    config = Ptd()


class TestPtdPaper(DrafterConformance):
    config = Ptd(profile="paper")


class TestPtdRelease(DrafterConformance):
    config = Ptd(profile="release")
    law_tokens = 16


class TestPtdKnowsStops(DrafterConformance):
    """Two of its few ids are never expanded, whether they end the output or not."""

    config = Ptd(width=3, depth=3)

    def drafter(self) -> Drafter:
        return make_drafter(self.config, DrafterContext(eos_ids=frozenset({0, 2})))


class TestPtdReleaseKnowsStops(TestPtdKnowsStops):
    config = Ptd(profile="release", width=2, depth=3)
    repeats_cycles = False  # two of its five tokens are never expanded
    law_tokens = 16
    is_bias_seen = False  # the others are drafted too rarely in a drawn text


class TestPtdSmall(DrafterConformance):
    config = Ptd(width=1, depth=1, candidates=1, key_nodes=1, pool_nodes=1)
    is_narrow = True


class TestPtdTopK(DrafterConformance):
    config = Ptd(expansion="top-k", expansion_k=3, depth=4, period=2, context=3, prefill=True)


class TestPtdTopP(DrafterConformance):
    config = Ptd(profile="paper", expansion="top-p", expansion_p=0.6, width=2, fallback="none")
    law_tokens = 8
    is_bias_seen = False  # expanded by what is likely, it rarely drafts what is not
