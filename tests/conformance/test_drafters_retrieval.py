"""The drafters that retrieve, with options that reach every side of them."""

import numpy as np
import pytest

from specdec_core.config.retrieval import BackoffTree, Rest, SuffixAutomaton
from tests.conformance.drafter_conformance import DrafterConformance
from tests.datastores import make_datastore
from tests.doubles import random_view


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A datastore of the five ids that every target here knows."""
    rng = np.random.default_rng(3)
    documents = [rng.integers(0, 5, size).tolist() for size in (1, 40, 400)]
    documents += [[0, 1] * 20, [2] * 30, [0, 1, 2, 3, 4] * 8, [0, 0, 1, 1, 2, 2] * 6]
    return make_datastore(tmp_path_factory.mktemp("datastore") / "store", documents)


class TestBackoffTree(DrafterConformance):
    config = BackoffTree()


class TestBackoffTreeRun(DrafterConformance):
    config = BackoffTree(
        state_scope="run", num_nodes=24, num_free=24, max_ngram=3, max_followers=2, top_k=3
    )


class TestSuffixAutomaton(DrafterConformance):
    config = SuffixAutomaton()


class TestSuffixAutomatonPath(DrafterConformance):
    config = SuffixAutomaton(update="path", len_threshold=2, fallback_nodes=6, fallback_depth=3)


class TestSuffixAutomatonRun(DrafterConformance):
    config = SuffixAutomaton(state_scope="run", num_tokens=4, fallback_nodes=12)


class TestSuffixAutomatonAlone(DrafterConformance):
    config = SuffixAutomaton(fallback="none")
    is_narrow = True


class TestSuffixAutomatonRefined(DrafterConformance):
    config = SuffixAutomaton(fallback="none", is_refined=True, num_tokens=8, alpha=16)
    is_narrow = True


class _WithDatastore(DrafterConformance):
    """Subclass with `options` of `kind` beside the datastore."""

    kind = SuffixAutomaton
    options = {}  # noqa: RUF012 - never changed

    @pytest.fixture(autouse=True)
    def _use_datastore(self, folder):
        self.config = self.kind(datastore=folder, **self.options)

    def view(self, seed):
        """Return a target that knows at least the ids of the datastore."""
        return random_view(seed, 5 + seed % 4, order=1 + seed % 3, has_ties=seed % 2 == 1)


class TestSuffixAutomatonStatic(_WithDatastore):
    options = {"fallback": "none", "len_bias": 1, "static_width": 2}  # noqa: RUF012


class TestSuffixAutomatonStaticFallback(_WithDatastore):
    is_narrow = True  # every token has a match, and a match is a chain
    options = {"len_bias": 1, "len_threshold": 1, "update": "path"}  # noqa: RUF012


class TestRest(_WithDatastore):
    kind = Rest


class TestRestSmall(_WithDatastore):
    kind = Rest
    options = {  # noqa: RUF012
        "max_suffix": 3,
        "max_matches": 5,
        "num_tokens": 3,
        "num_nodes": 4,
    }
