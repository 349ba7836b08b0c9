"""Narrowed vocabularies: what they hold, and what they cost in acceptance."""

import pytest
import torch

from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError

VOCABULARY = DraftVocabulary([1, 4, 5])


def test_released_checkpoints_store_differences():
    """d2t of ids 1, 4, 5 is 1 - 0, 4 - 1, 5 - 2."""
    assert VOCABULARY.offsets.tolist() == [1, 3, 3]


def test_other_ids_are_impossible():
    rows = torch.log(torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]))
    full = VOCABULARY.scatter(rows, 7).exp()
    assert full.tolist() == [[0, 0.5, 0, 0, 0.25, 0.25, 0], [0, 1, 0, 0, 0, 0, 0]]


def test_a_perfect_draft_inside_is_right_with_the_mass_inside_and_not_more():
    """Half of the target's mass is outside; inside the draft is the target, renormalised."""
    target = torch.tensor([0.5, 0.25, 0.0, 0.0, 0.15, 0.1])
    inside = target[VOCABULARY.target_ids]
    draft = VOCABULARY.scatter(torch.log(inside / inside.sum()), 6).exp()
    assert float(torch.minimum(target, draft).sum()) == pytest.approx(0.5)


def test_the_most_frequent_ids_are_kept_and_of_equal_ones_the_lowest():
    counts = torch.tensor([3, 9, 0, 3, 3, 0])
    assert DraftVocabulary.most_frequent(counts, 3).target_ids.tolist() == [0, 1, 3]
    always = DraftVocabulary.most_frequent(counts, 3, always=[5, 5])
    assert always.target_ids.tolist() == [0, 1, 5]
    for size, some in ((0, ()), (7, ()), (1, (0, 2))):
        with pytest.raises(ConfigError, match=f"of {size} ids cannot be taken from 6"):
            DraftVocabulary.most_frequent(counts, size, always=some)


@pytest.mark.parametrize("ids", [[], [[1]], [2, 1], [1, 1], [-1, 3]])
def test_anything_but_a_rising_list_of_ids_is_refused(ids):
    with pytest.raises(ConfigError, match="each larger than the one before"):
        DraftVocabulary(ids)


def test_a_target_that_lacks_an_id_is_refused():
    VOCABULARY.check_fits(6)
    with pytest.raises(ConfigError, match="has target id 5, but the target has ids 0 to 4"):
        VOCABULARY.check_fits(5)
