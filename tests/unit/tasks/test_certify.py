"""Certificates: what outputs have to show, by sampling, rule and drafter."""

from __future__ import annotations

from db.cells import LawTest
from specdec_core.config.drafters import NoDrafter, PromptLookup
from specdec_core.config.sampling import parse_sampling
from specdec_core.records import SampleResult
from tasks.certify import certify, is_coupled, is_lossless
from tests.integration import store_examples as examples

WRONG = examples.sample("de-2", token_ids=(3, 1, 4, 7))
RIGHT = [examples.sample("de-1"), examples.sample("de-2")]
GAPS = {sample.item_id: sample for sample in RIGHT}


class DrawingDrafter(PromptLookup):
    """A drafter that draws its candidates."""

    @property
    def draws_candidates(self) -> bool:
        return True


def request(sampling: str = "", drafter: PromptLookup | NoDrafter | None = None, **changes: str):
    made = examples.request(sampling=parse_sampling(sampling), **changes)
    return made.model_copy(update={"drafter": drafter or PromptLookup()})


def test_equal_outputs_are_exact_in_float64_and_equal_up_to_ties_elsewhere() -> None:
    for dtype, level in (("float64", "exact"), ("bfloat16", "up-to-ties")):
        found = certify(request(dtype=dtype), RIGHT, RIGHT, {})
        assert (found.level, found.num_identical, found.num_items) == (level, 2, 2)
        assert found.is_sound


def test_a_difference_is_told_with_both_tokens_and_judged_by_its_gap() -> None:
    # The gap at position 3 of the example is 0.125: above the float32 threshold, not bfloat16's.
    mine = [RIGHT[0], WRONG]
    found = certify(request(dtype="float32"), mine, RIGHT, GAPS)
    assert (found.level, found.num_identical, found.num_defects) == ("defect", 1, 1)
    (difference,) = found.differences
    assert (difference.item_id, difference.position, difference.gap) == ("de-2", 3, 0.125)
    assert (difference.expected_token, difference.token) == (1, 7)
    assert not found.is_sound
    loose = certify(request(dtype="bfloat16"), mine, RIGHT, GAPS)
    assert (loose.level, loose.num_ties, loose.tie_gap) == ("up-to-ties", 1, 0.25)


def test_gaps_of_another_output_judge_nothing() -> None:
    other: dict[str, SampleResult] = {"de-2": examples.sample("de-2", token_ids=(1, 2))}
    found = certify(request(), [RIGHT[0], WRONG], RIGHT, other)
    assert (found.level, found.differences[0].kind) == ("unproven", "unknown")


def test_a_gap_of_sampled_outputs_is_measured_in_units_of_temperature() -> None:
    found = certify(request("temperature=0.5", dtype="bfloat16"), RIGHT, RIGHT, {})
    assert found.tie_gap == 0.5


def test_a_large_gap_is_no_proof_where_sampling_truncates() -> None:
    """Rounding may move a token over the edge of the kept ones, whatever their gap."""
    mine = [RIGHT[0], WRONG]
    whole = certify(request("temperature=1.0", dtype="float32"), mine, RIGHT, GAPS)
    assert (whole.level, whole.num_defects) == ("defect", 1)
    for cut in ("top_k=5", "top_p=0.9", "min_p=0.1"):
        asked = request(f"temperature=1.0,{cut}", dtype="float32")
        found = certify(asked, mine, RIGHT, GAPS)
        assert (found.level, found.num_defects) == ("unproven", 0)
        assert (found.differences[0].kind, found.differences[0].gap) == ("unknown", 0.125)
        # Near ties are ties there too, and an output that ends early is a defect.
        tied = certify(asked.model_copy(update={"dtype": "bfloat16"}), mine, RIGHT, GAPS)
        assert tied.level == "up-to-ties"
        short = examples.sample("de-2", token_ids=RIGHT[1].token_ids[:4])
        assert certify(asked, [RIGHT[0], short], RIGHT, GAPS).level == "defect"


def test_lossy_rules_are_called_so_whatever_came_out() -> None:
    asked = request("temperature=1.0,verification=typical")
    assert not is_lossless(asked)
    assert certify(asked, RIGHT, RIGHT, {}).level == "lossy"
    # Without drafts there is nothing that a rule could accept wrongly.
    plain = request("temperature=1.0,verification=typical", NoDrafter())
    assert certify(plain, RIGHT, RIGHT, {}).level == "up-to-ties"


def test_outputs_of_rejection_have_only_their_distribution_to_show() -> None:
    for asked in (
        request("temperature=1.0,verification=rejection"),
        request("temperature=1.0", DrawingDrafter()),
    ):
        assert not is_coupled(asked)
        found = certify(asked, [RIGHT[0], WRONG], RIGHT, GAPS)
        assert (found.level, found.num_identical, found.differences) == ("unproven", 1, ())
        kept = certify(asked, [RIGHT[0], WRONG], RIGHT, GAPS, law(0.4, 0.0))
        assert kept.level == "same-distribution"
        assert certify(asked, RIGHT, RIGHT, GAPS, law(0.0, 0.0)).level == "defect"
    assert is_coupled(request("temperature=1.0"))
    assert is_coupled(request("", DrawingDrafter()))


def test_a_law_test_whose_control_passes_proves_nothing() -> None:
    asked = request("temperature=1.0,verification=rejection")
    assert certify(asked, RIGHT, RIGHT, {}, law(0.4, 0.4)).level == "unproven"


def law(p_value: float, control: float) -> LawTest:
    return LawTest(
        num_draws=1000,
        num_degrees=10,
        p_value=p_value,
        control_p_value=control,
        significance=1e-3,
    )
