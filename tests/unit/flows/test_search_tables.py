"""Tables in the shape of the paper's own, from reports made by hand."""

from __future__ import annotations

from db.schemas import Interval, NegativeControl
from flows.search_tables import (
    ablation_table,
    case_count_table,
    control_table,
    drafter_table,
    joint_ablation_table,
    result_table,
)
from specdec_core.config.search import SearchConfig
from tasks.joint import DrafterAcceptance
from tasks.report import CaseCounts
from tests.unit.flows.report_examples import DENSE, GOOD, NEAR, make_report


def test_results_have_dense_and_sparse_beside_each_other_with_intervals() -> None:
    dense, sparse = result_table([make_report()]).to_records()
    assert (dense["domain"], dense["skip"], dense["acceptance"]) == (
        "translation",
        "dense",
        "2.050",
    )
    assert dense["speed over dense"] == "-"
    # One attention half of 18 layers is 1/36.
    assert (sparse["skip"], sparse["sparsity"]) == ("a3", "2.8%")
    assert sparse["acceptance change"] == "+10.0% [+5.0%, +15.0%]"
    assert sparse["metric change"] == "-3.1% [-8.0%, +2.0%]"
    assert sparse["over dense without drafter"] == "1.620x [1.500, 1.700]"
    assert sparse["result"] == "published"


def test_a_search_that_compared_nothing_says_so() -> None:
    (row,) = result_table([make_report(heldout=None)]).to_records()
    assert row["result"] == "published; nothing was compared"
    assert (row["acceptance"], row["tokens/s"]) == ("-", "-")


def test_cases_are_counted_where_items_are_scored() -> None:
    assert case_count_table([make_report()]).rows == ()
    counted = make_report().model_copy(
        update={"case_counts": CaseCounts(better=5, same=50, worse=9)}
    )
    assert case_count_table([counted]).rows == (("translation", "a3", "64", "5", "50", "9"),)


def test_single_units_follow_the_dense_target_with_length_and_stop_rate() -> None:
    outputs = {"mean_output_tokens": 30.0, "stop_rate": 0.5}
    report = make_report().model_copy(update={"ablation": (GOOD.model_copy(update=outputs),)})
    dense, unit = ablation_table(report).to_records()
    assert (dense["skip"], dense["state"], dense["output tokens"]) == ("dense", "reference", "-")
    assert (unit["skip"], unit["output tokens"], unit["stop rate"]) == ("a3", "30.0", "50.0%")


def test_single_units_of_several_domains_share_rows() -> None:
    qa = make_report().model_copy(
        update={
            "config": SearchConfig(domain="qa"),
            "dense": DENSE.model_copy(update={"metric": None}),
            "ablation": (GOOD.model_copy(update={"metric": None}),),
        }
    )
    table = joint_ablation_table([make_report().model_copy(update={"ablation": (NEAR,)}), qa])
    assert table.columns[1:] == (
        "translation: acceptance",
        "translation: metric",
        "qa: acceptance",
        "qa: metric",
    )
    assert table.rows == (
        ("a1", "+5.0%", "-10.0%", "-", "-"),
        ("a3", "-", "-", "+20.0%", "-"),
    )


def test_the_control_names_both_domains() -> None:
    control = NegativeControl(
        domain="qa",
        suite="qa",
        suite_hash="q" * 64,
        skip="a3",
        item_ids=("q1", "q2"),
        acceptance_dense=1.5,
        acceptance_sparse=1.2,
        acceptance_change=Interval(estimate=-0.2, low=-0.3, high=-0.1),
        same_beginning=Interval(estimate=0.4, low=0.2, high=0.6),
        verdict="undecided",
        reason="nothing is scored",
    )
    report = make_report().model_copy(update={"negative_control": control})
    assert control_table([make_report()]).rows == ()
    (row,) = control_table([report]).to_records()
    assert (row["searched for"], row["control"], row["items"]) == ("translation", "qa", "2")
    assert (row["acceptance change"], row["metric change"]) == ("-20.0% [-30.0%, -10.0%]", "-")
    assert (row["same output, share of tokens"], row["verdict"]) == ("40.0%", "undecided")


def test_drafters_have_a_row_for_dense_and_sparse_together() -> None:
    row = DrafterAcceptance(
        target="t",
        domain="qa",
        drafter="prompt-lookup",
        skip="a3",
        num_items=8,
        dense=2.0,
        sparse=2.5,
        change=Interval(estimate=0.25, low=0.1, high=0.4),
    )
    change = "+25.0% [+10.0%, +40.0%]"
    (shown,) = drafter_table([row]).rows
    assert shown == ("t", "qa", "prompt-lookup", "a3", "8", "2.000", "2.500", change, "-", "-")
