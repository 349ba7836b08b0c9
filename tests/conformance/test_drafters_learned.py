"""Learned drafters, untrained: EAGLE and Medusa on the hidden states of scripted targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from specdec_core.config.learned_drafters import Eagle, LearnedOptions, Medusa
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import Drafter, DrafterContext, make_drafter
from tests.conformance.drafter_conformance import DrafterConformance
from tests.conformance.drafter_runs import GREEDY
from tests.doubles import ScriptedView
from tests.learned_drafts import scripted_draft, scripted_target, write_draft


class LearnedConformance(DrafterConformance):
    """Subclass with a `kind` of draft and `options` beside its folder.

    Weights are random, so that what is accepted is luck: `seed` is one with enough of it.
    """

    seed = 1
    kind: type[LearnedOptions]
    draft: str
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def stored(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        """Store one drafter: what it needs is asked of its folder."""
        folder = tmp_path_factory.mktemp("learned")
        write_draft(folder, cls.draft, scripted_target(5))
        cls.config = cls.kind(model=str(folder), **cls.options)
        yield
        del cls.config

    def drafter_for(self, view: ScriptedView, sampling: Sampling = GREEDY) -> Drafter:
        target, scripted = scripted_target(view.vocab_size), view
        context = DrafterContext(
            target,
            sampling=sampling,
            view=scripted,  # type: ignore[arg-type]  # a double
            load_draft=lambda *_: scripted_draft(self.draft, view.vocab_size, self.seed),
        )
        return make_drafter(self.config, context)


class TestEagleSmall(LearnedConformance):
    kind, draft = Eagle, "eagle"
    options = {"top_k": 2, "depth": 3, "num_nodes": 7}  # noqa: RUF012 - never changed


class TestEagleChain(LearnedConformance):
    kind, draft = Eagle, "eagle"
    options = {"shape": "chain", "draft": "sample"}  # noqa: RUF012 - never changed
    is_narrow = True
    num_draws = 480


class TestEagleChainConfident(LearnedConformance):
    kind, draft = Eagle, "eagle"
    options = {"shape": "chain", "gamma": 12, "min_confidence": 0.2}  # noqa: RUF012 - never changed
    is_narrow = True


class TestEagleDrawn(LearnedConformance):
    kind, draft = Eagle, "eagle"
    options = {"shape": "static", "branching": "2/2/1", "draft": "sample"}  # noqa: RUF012 - as above


class TestEagle3Chain(LearnedConformance):
    """The chain that trained heads are evaluated as."""

    kind, draft = Eagle, "eagle3"
    options = {"shape": "chain", "draft": "sample"}  # noqa: RUF012 - never changed
    is_narrow = True
    num_draws = 480


class TestEagle3NarrowChain(LearnedConformance):
    kind, draft = Eagle, "eagle3-narrow"
    options = {"shape": "chain", "gamma": 3}  # noqa: RUF012 - never changed
    is_narrow = True


class TestEagle3Narrow(LearnedConformance):
    kind, draft = Eagle, "eagle3-narrow"
    options = {"shape": "static", "branching": "2/2/1", "draft": "sample"}  # noqa: RUF012 - as above


class TestEagle3Coupled(LearnedConformance):
    kind, draft = Eagle, "eagle3-narrow"
    options = {"top_k": 3, "depth": 2, "draft": "coupled"}  # noqa: RUF012 - never changed


class TestMedusa(LearnedConformance):
    kind, draft = Medusa, "medusa"


class TestMedusaDrawn(LearnedConformance):
    kind, draft = Medusa, "medusa-narrow"
    options = {"shape": "static", "branching": "2/2/1/1", "draft": "sample"}  # noqa: RUF012 - as above


class TestMedusaChain(LearnedConformance):
    kind, draft = Medusa, "medusa"
    options = {"shape": "chain", "draft": "coupled"}  # noqa: RUF012 - never changed
    is_narrow = True


class TestMedusaChainDrawn(LearnedConformance):
    """The chain that trained heads are evaluated as."""

    kind, draft = Medusa, "medusa"
    options = {"shape": "chain", "draft": "sample"}  # noqa: RUF012 - never changed
    is_narrow = True
