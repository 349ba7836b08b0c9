"""What a sweep searches, in which order, and what is refused."""

from __future__ import annotations

import pytest

from specdec_core.config.domains import compare_config
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig
from tasks.heldout import HeldoutPlan
from tasks.plan import plan_search
from tasks.sweep import interleaved, tolerance_name
from tests.table_evaluator import config, workload
from tests.unit.tasks.test_sweep import NAMES


def test_keys_do_not_depend_on_the_strategy(settings: Settings) -> None:
    requests = [
        plan_search(config(strategy=name, num_draws=9), settings, workload).request(
            SkipConfig.parse("2")
        )
        for name in NAMES
    ]
    assert len({request.key for request in requests}) == 1
    losses = [
        plan_search(config(drafter=d, max_new_tokens=n), settings, workload).loss_request(
            SkipConfig.parse("2")
        )
        for d, n in (("prompt-lookup", 8), ("token-recycling", 9))
    ]
    assert losses[0].key == losses[1].key
    assert losses[0].key != requests[0].key


def test_held_out_requests_go_in_turns_and_once() -> None:
    def plan(*names: str) -> HeldoutPlan:
        base = plan_search(config(), Settings(), workload)
        chunks = [
            {
                arm: base.workload.request(
                    skip=skip, drafter="none", item_ids=[item], max_new_tokens=4
                )
                for arm, skip in (("dense", ""), ("sparse", names[0]))
            }
            for item in ("item-00", "item-01")
        ]
        return HeldoutPlan(tuple(chunks))

    ordered = interleaved([plan("2"), plan("3")])
    assert [request.skip for _, request in ordered] == ["", "2", "3", "3", "2", ""]
    assert [request.item_ids[0] for _, request in ordered] == ["item-00"] * 3 + ["item-01"] * 3


@pytest.mark.parametrize(
    ("tolerance", "name"), [(0.05, "+5%"), (0.0, "+0%"), (-0.025, "-2.5%"), (0.07, "+7%")]
)
def test_tolerances_have_short_names(tolerance: float, name: str) -> None:
    assert tolerance_name(tolerance) == name


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"strategies": ["tss", "tss"]}, "name each strategy once"),
        ({"strategies": ["best"]}, "strategies"),
        ({"beam": 0}, "beam"),
    ],
)
def test_wrong_comparisons_are_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        compare_config("qa", given)
