"""What benchmarks share: the order of methods, and what made outputs differ."""

from collections import Counter

import torch

from benchmarks.common import certificate, order_of
from specdec_core.decoding import Generation
from specdec_core.records import StepTrace


def test_methods_change_places_and_neighbours() -> None:
    # By hand: rotated by 0, 1, 2, 0, .., and backwards for every even request.
    orders = ["".join(order_of("abc", index)) for index in range(6)]
    assert orders == ["cba", "bca", "bac", "abc", "acb", "cab"]
    for place in range(3):
        assert Counter(order[place] for order in orders) == {"a": 2, "b": 2, "c": 2}


def test_a_certificate_counts_equal_outputs_and_names_the_others() -> None:
    def output(*token_ids: int) -> Generation:
        return Generation(token_ids, "length", StepTrace(), gaps=(9.0, 0.25, 0.26))

    plain = [output(1, 2, 3)] * 3
    found = certificate(
        torch.device("cpu"), plain, [output(1, 2, 3), output(1, 5, 3), output(1, 2, 4)]
    )
    assert (found["device"], found["num_requests"], found["num_identical"]) == ("cpu", 3, 1)
    # In bfloat16 a gap of a quarter may be rounding, a larger one not.
    assert [(d["position"], d["gap"], d["kind"]) for d in found["differences"]] == [
        (1, 0.25, "tie"),
        (2, 0.26, "defect"),
    ]
