"""What a draft may be asked to do after its training."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from specdec_core.config.draft_evaluation import DraftEvaluationConfig


@pytest.mark.parametrize(
    ("branching", "num_nodes", "is_fine"),
    [
        # 4 + 12 + 24 + 24 + 24 + 24 + 24 = 136 nodes, the published 128 of them.
        ((4, 3, 2, 1, 1, 1, 1), 128, True),
        ((4, 3, 2, 1, 1, 1, 1), 123, True),
        ((4, 3, 2, 1, 1, 1, 1), 122, False),
        ((4, 2), 12, True),
        ((4, 2), 1, False),
    ],
)
def test_a_tree_that_is_cut_short_cannot_be_compared_with_training(
    branching: tuple[int, ...], num_nodes: int, is_fine: bool
) -> None:
    asked = {"branching": branching, "num_nodes": num_nodes}
    if is_fine:
        DraftEvaluationConfig.model_validate(asked)
        return
    with pytest.raises(ValidationError, match="leaves out more than a tenth of the tree"):
        DraftEvaluationConfig.model_validate(asked)
    DraftEvaluationConfig.model_validate({**asked, "shapes": ("chain",)})


@pytest.mark.parametrize("temperature", [1e-300, 9e-4, 101.0, -1.0])
def test_temperatures_that_logits_cannot_be_divided_by_are_refused(temperature: float) -> None:
    with pytest.raises(ValidationError, match="must differ and be 0 or"):
        DraftEvaluationConfig.model_validate({"temperatures": (0.0, temperature)})
