import pytest
from pydantic import ValidationError

from db.schemas import Interval, SkipProfile
from tests.integration import store_examples as examples


def test_profiles_come_back_equal_from_json() -> None:
    profile = examples.profile("r")
    assert SkipProfile.model_validate_json(profile.model_dump_json()) == profile


def test_drafters_are_stored_in_one_spelling() -> None:
    profile = examples.profile("r", drafter="token-recycling:update=path,num_nodes=12,top_k=8")
    assert profile.drafter == "token-recycling:num_nodes=12,update=path"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skip": "a11,a3"}, "is not canonical: write 'a3,a11'"),
        ({"skip": "a18"}, "layers 0 to 17"),
        ({"skip": ""}, "is_dense is False but the skip set is 'dense'"),
        ({"is_dense": True}, "is_dense is True but the skip set is 'a3,a11'"),
        ({"drafter": "magic"}, "drafter 'magic' is unknown"),
        (
            {"status": "odd"},
            "Input should be 'candidate', 'validated', 'active', 'retired' or 'rejected'",
        ),
    ],
)
def test_profiles_that_contradict_themselves_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        examples.profile("r", **changes)


def test_intervals_are_ordered() -> None:
    with pytest.raises(ValidationError, match="upside down"):
        Interval(estimate=1.0, low=1.2, high=0.8)


def test_done_cells_have_figures_and_failed_ones_have_none() -> None:
    with pytest.raises(ValidationError, match="figures belong to done cells"):
        examples.cell("r", figures=None)
    with pytest.raises(ValidationError, match="figures belong to done cells"):
        examples.cell("r", status="failed")
