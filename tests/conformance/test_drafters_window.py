"""The drafters that draft with a window inside the target's forward."""

import pytest

from specdec_core.config.window_drafters import Lookahead, SelfDraft
from tests.conformance.drafter_conformance import DrafterConformance
from tests.datastores import make_datastore


class TestLookahead(DrafterConformance):
    config = Lookahead()
    law_tokens = 8


class TestLookaheadSmall(DrafterConformance):
    config = Lookahead(window=2, ngram=3, guesses=1)
    is_narrow = True
    law_tokens = 16


class TestLookaheadBigrams(DrafterConformance):
    config = Lookahead(window=3, ngram=2, guesses=4)


class TestLookaheadPrompt(DrafterConformance):
    config = Lookahead(window=7, guesses=7, ngram=4, pool_from_prompt=True)
    law_tokens = 8
    is_bias_seen = False  # drawn texts rarely repeat a whole n-gram


class TestSelfDraft(DrafterConformance):
    config = SelfDraft()
    law_tokens = 8
    is_bias_seen = False  # drawn texts rarely repeat a whole n-gram


class TestSelfDraftSmall(DrafterConformance):
    config = SelfDraft(branch_num=2, branch_len=3, context_ngram=1, prefix_len=1)


class TestSelfDraftRun(DrafterConformance):
    config = SelfDraft(branch_len=4, context_ngram=3, prefix_len=3, state_scope="run")
    law_tokens = 8
    is_bias_seen = False  # drawn texts rarely repeat a whole n-gram


class TestSelfDraftCorpus(DrafterConformance):
    """With a corpus of runs of the three ids that every target here has."""

    @pytest.fixture(autouse=True)
    def datastore(self, tmp_path):
        documents = [[0, 1, 2] * 5, [0, 1] * 5, [0, 0, 1, 1, 2, 2] * 3, [2, 1, 0] * 4]
        folder = make_datastore(tmp_path / "store", documents)
        self.config = SelfDraft(branch_len=3, context_ngram=2, datastore=folder)
