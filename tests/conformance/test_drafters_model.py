"""Drafters with a model of their own: scripted drafts that are often, and wrongly, sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec_core.config.model_drafters import DraftModel, DraftTree, LayerSkip, Synthetic
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DraftBudget, Drafter, DrafterContext, make_drafter
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.skip import SkipConfig
from tests.conformance.drafter_conformance import DrafterConformance
from tests.conformance.drafter_runs import GREEDY, lend
from tests.doubles import ScriptedView

SURE = 100.0


class ScriptedModel:
    """A draft model that is wrong after even tokens and has `extra` rows more than the target.

    It is surest of the rows that the target lacks; asked about tokens it lacks, it fails. A
    narrowed one reads every token and has rows for two of three.
    """

    def __init__(self, target: ScriptedView, extra: int, *, is_narrowed: bool = False) -> None:
        inner = target.sparser(SkipConfig.parse("0"))
        size = target.vocab_size + extra
        kept = [token for token in range(size) if not is_narrowed or token % 3 != 1]
        self.vocabulary = DraftVocabulary(kept) if is_narrowed else None

        def logits_after(context: Sequence[int]) -> list[float]:
            assert max(context) < size
            whole = [*inner.logits_after(context), *[SURE] * extra]
            return [whole[token] for token in kept]

        self._view = ScriptedView(logits_after, size)

    def view(self) -> ScriptedView:
        return self._view


class ModelDrafterConformance(DrafterConformance):
    """The same for drafters that look at the target or load a model."""

    extra = 0
    has_narrowed_draft = False

    def drafter_for(self, view: ScriptedView, sampling: Sampling = GREEDY) -> Drafter:
        model: Any = ScriptedModel(view, self.extra, is_narrowed=self.has_narrowed_draft)
        target: Any = view
        context = DrafterContext(
            view=target, load_model=lambda _reference: model, sampling=sampling
        )
        return make_drafter(self.config, context)

    def test_one_unrepeated_token_is_a_legal_prompt_to_propose_for(self) -> None:
        view = self.view(0)
        drafter = self.drafter_for(view)
        drafter.reset([2])
        lend(drafter, view, [2])
        tree = drafter.propose([2], DraftBudget(64, 64)).candidates
        assert tree.num_drafted > 0
        tree.validate(view.vocab_size)


class TestDraftModel(ModelDrafterConformance):
    config = DraftModel(model="x")


class TestDraftModelCoupled(ModelDrafterConformance):
    config = DraftModel(model="x", gamma=4, draft="coupled")


class TestDraftModelConfident(ModelDrafterConformance):
    config = DraftModel(model="x", gamma=12, min_confidence=0.4)


class TestDraftModelPadded(ModelDrafterConformance):
    config = DraftModel(model="x")
    extra = 2


class TestDraftModelShort(ModelDrafterConformance):
    config = DraftModel(model="x")
    extra = -2


class TestDraftModelNarrowed(ModelDrafterConformance):
    config = DraftModel(model="x")
    has_narrowed_draft = True


class TestDraftModelNarrowedCoupled(ModelDrafterConformance):
    config = DraftModel(model="x", draft="coupled")
    has_narrowed_draft = True


class TestDraftTreeNarrowed(ModelDrafterConformance):
    config = DraftTree(model="x", branching=(3, 2, 1, 1), num_nodes=9)
    has_narrowed_draft = True


class TestDraftTreeNarrowedSample(ModelDrafterConformance):
    config = DraftTree(model="x", branching=(2, 2, 1), draft="sample")
    has_narrowed_draft = True


class TestDraftTree(ModelDrafterConformance):
    config = DraftTree(model="x")


class TestDraftTreeSample(ModelDrafterConformance):
    config = DraftTree(model="x", branching=(2, 2, 1), draft="sample")


class TestDraftTreePruned(ModelDrafterConformance):
    config = DraftTree(model="x", branching=(3, 2, 2, 1), num_nodes=9)
    extra = 3


class TestDraftTreeDynamic(ModelDrafterConformance):
    config = DraftTree(model="x", shape="dynamic", top_k=3, depth=4, num_nodes=12)


class TestDraftTreeDynamicFlat(ModelDrafterConformance):
    config = DraftTree(model="x", shape="dynamic", top_k=8, depth=0)
    extra = -1


class TestLayerSkip(ModelDrafterConformance):
    config = LayerSkip(skip="1")


class TestLayerSkipHalf(ModelDrafterConformance):
    config = LayerSkip(skip="a0", gamma=3)


class TestLayerSkipCoupled(ModelDrafterConformance):
    config = LayerSkip(skip="1", draft="coupled")


class TestSynthetic(ModelDrafterConformance):
    config = Synthetic(horizon=40)
    is_bias_seen = False


class TestSyntheticBehindItsHorizon(ModelDrafterConformance):
    config = Synthetic(acceptance=(0.9, 0.2, 0.9), horizon=0)
