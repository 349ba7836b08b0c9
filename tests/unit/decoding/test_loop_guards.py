"""The decode loop around the decoding: seconds, cancelling, broken caches, refused requests."""

import itertools

import pytest

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import generate, make_drafter
from specdec_core.decoding.drafter import DrafterNeeds
from specdec_core.errors import (
    CacheDesyncError,
    ConfigError,
    MeasurementError,
    SearchCancelledError,
)
from tests.doubles import ChainDrafter, ScriptedCache, ScriptedView, table_view

# 0 1 2 .. 9 0 1 ..
COUNTING = {token: (token + 1) % 10 for token in range(10)}


def counting_chain(sequence):
    """Propose the right continuation, 32 tokens of it."""
    return [(sequence[-1] + step) % 10 for step in range(1, 33)]


def decode(view, prompt, drafter, max_new_tokens, **options):
    (generation,) = generate(
        view, [prompt], [drafter], max_new_tokens=max_new_tokens, eos_ids=(), **options
    )
    return generation


class FakeTime:
    """A clock that work moves, and a device that owes work until it is waited for."""

    def __init__(self):
        self.now = 100.0
        self.owed = 0.0

    def clock(self):
        return self.now

    def synchronize(self):
        self.now += self.owed
        self.owed = 0.0


def test_phases_count_their_own_seconds_and_wait_for_the_device():
    time = FakeTime()

    class SlowView(ScriptedView):
        def prefill(self, *args):
            time.owed += 7.0
            return super().prefill(*args)

        def forward(self, *args):
            time.owed += 10.0
            return super().forward(*args)

    class SlowCache(ScriptedCache):
        def commit(self, paths):
            time.owed += 0.5
            super().commit(paths)

    def slow_continuation(sequence):
        time.now += 3.0
        return counting_chain(sequence)[:1]

    def slow_check(output):
        time.now += 2.0

    fast = table_view(COUNTING, 10)
    view = SlowView(fast.logits_after, 10, cache_class=SlowCache)
    result = decode(
        view,
        [0],
        ChainDrafter(slow_continuation),
        5,
        stop_check=slow_check,
        clock=time.clock,
        synchronize=time.synchronize,
    )
    # 1 | 2 3 | 4 5: two steps.
    assert result.trace.committed == (2, 2)
    phases = result.phases
    assert (phases.prefill, phases.draft, phases.forward) == (9.0, 6.0, 20.0)
    assert (phases.verify, phases.commit, phases.decode) == (4.0, 1.0, 31.0)
    # Each step: draft 3, forward 10, verify 2, commit 0.5.
    assert result.step_seconds == (15.5, 15.5)


def test_decoding_stops_between_steps_when_asked():
    answers = iter([False, False, False, True])
    view = table_view(COUNTING, 10)
    with pytest.raises(SearchCancelledError, match="asked to stop"):
        decode(view, [0], make_drafter(NoDrafter()), 9, should_stop=lambda: next(answers))
    assert view.num_forwards == 2


class Poisoned(ScriptedView):
    """A target whose hidden states overflow from one forward on."""

    def __init__(self, view, first):
        super().__init__(view.logits_after, 10)
        self.first = first

    def prefill(self, *args):
        return super().prefill(*args) * (float("nan") if self.first == 0 else 1.0)

    def forward(self, *args):
        logits = super().forward(*args)
        return logits * (float("nan") if self.num_forwards >= self.first else 1.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_logits_that_are_not_numbers_end_the_decode(first, temperature):
    view = Poisoned(table_view(COUNTING, 10), first)
    with pytest.raises(MeasurementError, match="logits are not numbers"):
        decode(view, [0], NONE, 9, sampling=Sampling(temperature=temperature))
    assert view.num_forwards == first


class KeepsEverything(ScriptedCache):
    """A cache that cannot forget: what is rejected stays."""

    def commit(self, paths):
        super().commit([range(len(tokens)) for tokens in self._pending])


class KeepsEveryone(ScriptedCache):
    """A cache that does not drop finished sequences."""

    def keep(self, rows):
        pass


def test_a_cache_that_keeps_rejected_rows_is_found_at_the_first_rejection():
    logits_after = table_view(COUNTING, 10).logits_after
    view = ScriptedView(logits_after, 10, cache_class=KeepsEverything)
    right, wrong = ChainDrafter(counting_chain), ChainDrafter(lambda s: [9, 9])
    assert decode(view, [0], right, 6).token_ids == (1, 2, 3, 4, 5, 6)
    with pytest.raises(CacheDesyncError, match=r"holds \[4\] rows .* \[2\] tokens"):
        decode(view, [0], wrong, 6)


def test_a_cache_that_does_not_drop_sequences_is_found():
    logits_after = table_view(COUNTING, 10).logits_after
    view = ScriptedView(logits_after, 10, cache_class=KeepsEveryone)
    with pytest.raises(CacheDesyncError, match="commit or keep"):
        generate(
            view,
            [[0], [3]],
            [make_drafter(NoDrafter()) for _ in range(2)],
            max_new_tokens=4,
            eos_ids={1},
        )


def needing(**needs):
    """A drafter that proposes nothing and asks for what it could not use."""
    return ChainDrafter(lambda sequence: [], DrafterNeeds(**needs))


NONE = make_drafter(NoDrafter())
REQUEST = {"prompts": [[0]], "drafters": [NONE], "max_new_tokens": 4, "eos_ids": ()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": []}, "0 prompts and 1 drafters"),
        ({"prompts": [[0], [1]]}, "2 prompts and 1 drafters"),
        ({"prompts": [[0], [1]], "drafters": [NONE, NONE]}, "one drafter object serves two"),
        ({"prompts": [[]]}, "prompt 0 is empty"),
        ({"prompts": [[0, 10]]}, "token ids 0 to 10, but the target has ids 0 to 9"),
        ({"prompts": [[-1]]}, "token ids -1 to -1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"eos_ids": {3, 10}}, r"stop ids \[10\] are outside the vocabulary of 10"),
        ({"drafters": [needing(max_drafting=2, top_k=1)]}, "2 drafting .* for 0 candidates"),
        ({"drafters": [needing(max_nodes=1, max_drafting=2)]}, "2 drafting nodes.* of 0 ids"),
        ({"drafters": [needing(max_nodes=1, rows="path")]}, "rows=path, .* ask for top_k"),
        ({"drafters": [needing(taps=(0, 3))]}, r"\[3\] were asked of a target with 2 blocks"),
        ({"prompts": [[0] * 29]}, "29 tokens and 4 new ones exceed the target's 32 positions"),
    ],
)
def test_requests_that_cannot_work_are_refused_before_any_forward(change, message):
    view = ScriptedView(table_view(COUNTING, 10).logits_after, 10, max_positions=32)
    request = {**REQUEST, **change}
    with pytest.raises(ConfigError, match=message):
        generate(view, request.pop("prompts"), request.pop("drafters"), **request)
    assert view.num_forwards == 0


class ShowsNothing:
    """A target that is a view in all but its hidden states."""

    def __init__(self, view):
        self.vocab_size, self.max_positions = view.vocab_size, view.max_positions
        self.new_cache, self.prefill, self.forward = view.new_cache, view.prefill, view.forward


def test_a_drafter_that_wants_hidden_states_needs_a_target_that_shows_them():
    view = ShowsNothing(table_view(COUNTING, 10))
    assert decode(view, [0], NONE, 3).token_ids == (1, 2, 3)
    with pytest.raises(ConfigError, match=r"states \[1\], but ShowsNothing shows none"):
        decode(view, [0], needing(taps=(1,)), 3)


def test_the_longest_request_that_fits_is_served():
    view = ScriptedView(table_view(COUNTING, 10).logits_after, 10, max_positions=32)
    result = decode(view, [0] * 12, ChainDrafter(counting_chain), 20)
    assert list(result.token_ids) == list(itertools.islice(itertools.cycle([*range(1, 10), 0]), 20))
