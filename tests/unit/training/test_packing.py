"""Which samples a step trains on: pure, complete, bounded, shared out."""

import pytest

from specdec_core.errors import ConfigError
from specdec_core.training.packing import BatchPlan, pack, share_of, split_prompts

LENGTHS = {f"s{n:02d}": 3 + (n * 7) % 11 for n in range(23)}


def make_plan(**changes):
    return BatchPlan(
        **{"lengths": LENGTHS, "batch_size": 5, "micro_batch_tokens": 30, "seed": 1, **changes}
    )


def test_an_epoch_has_every_sample_once():
    plan = make_plan()
    assert plan.num_steps == 5  # 23 samples by 5
    seen = [each for step in range(5) for each in plan.step_samples(0, step)]
    assert sorted(seen) == sorted(LENGTHS)
    assert len(plan.step_samples(0, 4)) == 3


def test_a_step_is_a_function_of_numbers_alone():
    again = make_plan(lengths=dict(reversed(LENGTHS.items())))
    for epoch, step in ((3, 1), (0, 0), (3, 1)):
        assert make_plan().step_samples(epoch, step) == again.step_samples(epoch, step)


def test_epochs_and_seeds_have_orders_of_their_own():
    plan = make_plan()
    assert plan.step_samples(0, 0) != plan.step_samples(1, 0)
    assert plan.step_samples(0, 0) != make_plan(seed=2).step_samples(0, 0)


def test_a_step_beyond_the_epoch_is_refused():
    with pytest.raises(ConfigError, match="step 5 of an epoch of 5 steps"):
        make_plan().step_samples(0, 5)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_workers_share_a_step_without_overlap_within_the_limit(world_size):
    plan = make_plan()
    for step in range(plan.num_steps):
        got = []
        for rank in range(world_size):
            for batch in plan.micro_batches(0, step, rank, world_size):
                assert len(batch) * max(LENGTHS[each] for each in batch) <= 30
                got += batch
        assert sorted(got) == sorted(plan.step_samples(0, step))


def test_more_workers_than_samples_leave_some_without_work():
    shares = [share_of(["a", "b"], {"a": 4, "b": 5}, rank, 3) for rank in range(3)]
    assert shares == [("b",), ("a",), ()]


def test_samples_are_dealt_there_and_back_by_length():
    lengths = dict(zip("abcdef", (6, 5, 4, 3, 2, 1), strict=True))
    assert share_of("fedcba", lengths, 0, 2) == ("a", "d", "e")
    assert share_of("fedcba", lengths, 1, 2) == ("b", "c", "f")


def test_packing_by_hand():
    lengths = {"a": 10, "b": 9, "c": 5, "d": 5, "e": 4}
    # 20 tokens: two of length 10; then 20 // 5 = 4 of length 5.
    assert pack("edcba", lengths, 20) == (("a", "b"), ("c", "d", "e"))
    assert pack("a", lengths, 10) == (("a",),)
    assert pack("", lengths, 10) == ()


def test_a_sample_longer_than_a_micro_batch_is_refused():
    with pytest.raises(ConfigError, match="'b' has 31 tokens, a micro-batch at most 30"):
        make_plan(lengths={"a": 3, "b": 31})


def test_no_samples_are_refused():
    with pytest.raises(ConfigError, match="no samples"):
        make_plan(lengths={})


def test_validation_is_split_off_by_hash():
    names = [f"p{n}" for n in range(50)]
    train, held_out = split_prompts(names, 10)
    assert len(held_out) == 10
    assert train | held_out == set(names)
    assert split_prompts(names[::-1], 10) == (train, held_out)
    # What is held out of fewer prompts is still held out where it is among the lowest.
    fewer, held_again = split_prompts([n for n in names if n != min(train)], 10)
    assert held_again == held_out
    assert fewer < train


def test_nothing_to_train_on_is_refused():
    with pytest.raises(ConfigError, match="2 of 2 prompts shall be held out"):
        split_prompts(["a", "b"], 2)
