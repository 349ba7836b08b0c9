"""Prompts read with shared states against prompts read anew: equal in every bit."""

from itertools import combinations

import pytest
import torch

from specdec_core.models import view as view_module
from specdec_core.models.prompt_states import PromptStates
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.tiny import FAMILIES, tiny_target
from specdec_core.records import PromptWork
from specdec_core.skip import SkipConfig

NUM_LAYERS = 5
PLENTY = 1 << 30
# The tiny windows are 8 tokens wide: the prompts cross them, ragged.
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7], [2, 7, 1], list(range(1, 20))]
HEADER = [4, 4, 1, 0, 2, 6, 5, 3, 3]
TAPS = (HEAD_INPUT, 0, 2, NUM_LAYERS)
# Lexicographic as a search asks, and then not; dense in between.
SKIPS = ("", "0", "0,3", "a1", "1", "1,2", "1,m2", "m1", "2,4", "4", "", "a3,m4", "0,4", "1,2")


def target(family: str, dtype: str):
    return tiny_target(family, seed=2, dtype=dtype, num_layers=NUM_LAYERS)


def read(view, prompts, *, taps=(), header=None):
    """Return logits, committed rows and hidden states of prompts, and of their shared beginning."""
    prefix = view.build_prefix(header, taps) if header else None
    whole = [[*(header or ()), *prompt] for prompt in prompts]
    cache = view.new_cache(len(prompts), 64)
    logits, hidden = view.prefill_tapped(whole, cache, taps, prefix)
    rows = [cache.rows(index) for index in range(len(prompts))]
    return [logits, *rows, *hidden]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def together(monkeypatch):
    def prompts_per_pass(_device, widest):
        return max(1, view_module._PREFILL_TOKENS // widest)

    monkeypatch.setattr(view_module, "_prompts_per_pass", prompts_per_pass)


@pytest.fixture(params=["alone", "together"])
def grouping(request, monkeypatch):
    """Prompts are read one by one, as on a processor, or ragged in one pass, as elsewhere."""
    if request.param == "together":
        together(monkeypatch)
    return request.param


@pytest.mark.usefixtures("grouping")
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("header", [None, HEADER])
def test_logits_rows_and_taps_are_those_of_reading_anew(family, dtype, header):
    loaded, states = target(family, dtype), PromptStates(PLENTY)
    for text in SKIPS:
        skip = SkipConfig.parse(text)
        for taps in (TAPS, ()):
            expected = read(loaded.view(skip), PROMPTS, taps=taps, header=header)
            found = read(loaded.view(skip, states=states), PROMPTS, taps=taps, header=header)
            assert_equal(found, expected)


def work_of(states, view, prompts=PROMPTS, **options):
    states.begin()
    read(view, prompts, **options)
    return states.work


def test_each_set_runs_the_layers_from_the_first_difference_on():
    loaded, states = target("llama", "float64"), PromptStates(PLENTY)
    tokens = sum(map(len, PROMPTS))
    # By hand: layers run of five, and layers taken over; a skipped one is neither.
    expected = (
        ("", 5, 0),
        ("1", 3, 1),  # dense has layer 0
        ("1,3", 1, 2),  # as "1" up to layer 2: 0 and 2; then 4 alone
        ("1,a3", 2, 2),  # 3 without attention, 4
        ("2", 2, 2),  # dense has 0 and 1
        ("4", 0, 4),  # dense has 0 to 3
        ("3", 1, 3),  # dense has 0 to 2
        ("2,4", 0, 3),  # "2", three sets ago, has 0, 1 and 3
        ("1,3", 0, 3),
    )
    for text, computed, reused in expected:
        found = work_of(states, loaded.view(SkipConfig.parse(text), states=states))
        assert found == PromptWork(computed=computed * tokens, reused=reused * tokens), text


def test_other_prompts_share_nothing():
    loaded, states = target("qwen3", "float64"), PromptStates(PLENTY)
    view = loaded.view(states=states)
    read(view, PROMPTS)
    changed = [[*PROMPTS[0][:-1], 0], [], [*PROMPTS[2], 1]]
    for prompts, header in (
        ([changed[0], changed[2]], None),
        ([[*HEADER, *prompt] for prompt in PROMPTS], None),
        (PROMPTS, HEADER),
        (PROMPTS, HEADER[:-1]),
    ):
        assert work_of(states, view, prompts, header=header).reused == 0
        assert_equal(
            read(view, prompts, header=header), read(loaded.view(), prompts, header=header)
        )


def test_a_pass_of_several_prompts_is_shared_as_a_whole_and_in_its_order(monkeypatch):
    loaded, states = target("qwen3", "bfloat16"), PromptStates(PLENTY)
    view = loaded.view(states=states)
    read(view, PROMPTS)
    # Alone each is a pass of its own, whatever it is asked together with.
    assert work_of(states, view, PROMPTS[::-1][:2]).computed == 0
    together(monkeypatch)
    for prompts in (PROMPTS, PROMPTS[:2], PROMPTS[::-1]):
        assert work_of(states, view, prompts).reused == 0
        assert work_of(states, view, prompts).computed == 0
        assert_equal(read(view, prompts), read(loaded.view(), prompts))


def test_a_beginning_shared_apart_is_not_taken_for_the_prompt_in_one():
    # The same tokens at the same positions, but sums may round in other ways.
    loaded, states = target("gemma3", "bfloat16"), PromptStates(PLENTY)
    prompt = [*HEADER, *PROMPTS[2]]
    for length in (3, 7, 20):
        for text in ("", "2"):
            skip = SkipConfig.parse(text)
            options = {"header": prompt[:length], "taps": (2,)}
            expected = read(loaded.view(skip), [prompt[length:]], **options)
            found = read(loaded.view(skip, states=states), [prompt[length:]], **options)
            assert_equal(found, expected)


@pytest.mark.usefixtures("grouping")
@pytest.mark.parametrize("header", [None, [1, 2, 3], list(range(1, 19))])
def test_prompts_and_beginnings_longer_than_one_pass(monkeypatch, header):
    monkeypatch.setattr(view_module, "_PREFILL_TOKENS", 8)
    loaded, states = target("gemma3", "float32"), PromptStates(PLENTY)
    for text in SKIPS:
        skip = SkipConfig.parse(text)
        expected = read(loaded.view(skip), PROMPTS, taps=TAPS, header=header)
        found = read(loaded.view(skip, states=states), PROMPTS, taps=TAPS, header=header)
        assert_equal(found, expected)
    # Sets that differ from the last in layer 4 alone: 0, 2 and 3 of 0, 2, 3, 4 are taken over.
    states.begin()
    work_of(states, loaded.view(SkipConfig.parse("1"), states=states), header=header)
    found = work_of(states, loaded.view(SkipConfig.parse("1,4"), states=states), header=header)
    assert found.computed == 0
    assert found.reused == 3 * (sum(map(len, PROMPTS)) + len(header or ()))


def test_views_on_the_caches_of_others_neither_give_nor_take():
    loaded, states = target("llama", "float64"), PromptStates(PLENTY)
    host = loaded.view(states=states)
    read(host, PROMPTS)
    held = states.num_bytes
    states.begin()
    sparser = host.sparser(SkipConfig.parse("a1,3"))
    cache = sparser.new_cache(len(PROMPTS), 64)
    logits = sparser.prefill(PROMPTS, cache)
    expected = read(loaded.view(SkipConfig.parse("a1,3")), PROMPTS)
    assert torch.equal(logits, expected[0])
    assert torch.equal(cache.rows(0)[:, [0, 2, 4]], expected[1])
    assert (states.work, states.num_bytes) == (PromptWork(), held)


# The longest prompt alone: 19 tokens of 8 bytes a number, a stream of 16, keys and values of 2
# heads by 8.
OWN = PROMPTS[2:]
STREAM, ROWS = 19 * 16 * 8, 19 * 2 * 2 * 8 * 8
LAYER = STREAM + ROWS


def num_bytes(loaded, states, text, prompts=OWN):
    states.begin()
    read(loaded.view(SkipConfig.parse(text), states=states), prompts)
    return states.num_bytes


def test_memory_is_what_the_tensors_take_shared_layers_once():
    loaded, states = target("llama", "float64"), PromptStates(PLENTY)
    assert num_bytes(loaded, states, "") == 5 * LAYER
    # Nothing for layer 1, whose output is its input, and layers 2 to 4 anew.
    assert num_bytes(loaded, states, "1") == 8 * LAYER
    # Layers 0 to 2 are those of "1", 3 is nothing, 4 anew.
    assert num_bytes(loaded, states, "1,3") == 9 * LAYER
    # Layers 0 to 3 are dense, of 4 the stream alone.
    assert num_bytes(loaded, states, "a4") == 9 * LAYER + STREAM
    assert num_bytes(loaded, states, "") == 9 * LAYER + STREAM
    states.clear()
    assert states.num_bytes == 0


@pytest.mark.parametrize("budget_layers", [0, 1, 4, 5, 6, 9, 14])
def test_no_more_is_held_than_the_budget_and_results_stay(budget_layers):
    loaded = target("llama", "float64")
    budget = budget_layers * LAYER + LAYER // 2
    states = PromptStates(budget)
    for text in (*SKIPS, *SKIPS):
        skip = SkipConfig.parse(text)
        states.begin()
        found = read(loaded.view(skip, states=states), OWN)
        assert_equal(found, read(loaded.view(skip), OWN))
        assert states.num_bytes <= budget
    work = work_of(states, loaded.view(SkipConfig.parse("1,2"), states=states), OWN)
    # Layers 0, 3 and 4 are run; the last set was this one, as far as it was held.
    assert work.reused == min(budget_layers, 3) * 19


def test_where_room_is_short_the_last_set_stays_and_the_one_longest_unused_goes():
    loaded, states = target("llama", "float64"), PromptStates(6 * LAYER)
    num_bytes(loaded, states, "")
    assert num_bytes(loaded, states, "1") == 4 * LAYER
    assert work_of(states, loaded.view(SkipConfig.parse("1,4"), states=states), OWN).computed == 0
    assert work_of(states, loaded.view(states=states), OWN).reused == 19
    # Room for 8: dense, then "1" and "3" with 3 and 1 of their own, which is one too many. "3"
    # began as dense did, so that "1" is the one longest unused.
    states = PromptStates(8 * LAYER)
    assert [num_bytes(loaded, states, text) for text in ("", "1", "3")] == [
        5 * LAYER,
        8 * LAYER,
        6 * LAYER,
    ]
    assert work_of(states, loaded.view(states=states), OWN).computed == 0


def test_another_pass_makes_room_by_what_is_of_least_use_there():
    loaded, states = target("llama", "float64"), PromptStates(10 * LAYER)
    own, others = OWN, [OWN[0][::-1]]
    assert num_bytes(loaded, states, "", own) == 5 * LAYER
    assert num_bytes(loaded, states, "1", own) == 8 * LAYER
    # Dense of the first goes, its set "1" stays; then there is room for the second.
    assert num_bytes(loaded, states, "", others) == (4 + 5) * LAYER
    assert work_of(states, loaded.view(SkipConfig.parse("1"), states=states), own).computed == 0


def test_passes_no_recent_evaluation_read_make_room_others_do_not():
    loaded, states = target("llama", "float64"), PromptStates(7 * LAYER)
    own, others = OWN, [OWN[0][::-1]]
    assert num_bytes(loaded, states, "", own) == 5 * LAYER
    for _ in range(31):  # the leading two layers fit beside it
        assert num_bytes(loaded, states, "", others) == 7 * LAYER
    assert num_bytes(loaded, states, "", others) == 5 * LAYER
    assert work_of(states, loaded.view(states=states), own).reused == 0
    assert work_of(states, loaded.view(states=states), others).computed == 0


def test_of_one_pass_no_more_than_some_sets_are_held():
    loaded, states = target("llama", "float64"), PromptStates(PLENTY)
    halves = [f"{kind}{layer}" for layer in range(NUM_LAYERS) for kind in "am"]
    pairs = [f"{one},{other}" for one in halves for other in halves if one[1] < other[1]]
    assert len(pairs) == 40
    for text in (*pairs, *halves, *(f"{one},{two}" for one, two in combinations(range(5), 2))):
        num_bytes(loaded, states, text)
    held = len(pairs) + len(halves) + 10
    assert held < 64
    for text in ("0,1,2", "0,1,3", "0,1,4", "0,2,3", "0,2,4"):
        num_bytes(loaded, states, text)
    # The first pair is forgotten: it begins as others do, but its last layers are run anew.
    assert work_of(states, loaded.view(SkipConfig.parse(pairs[0]), states=states), OWN).computed


def test_with_dense_prefill_prompts_are_the_whole_targets_and_decoding_is_the_sparse_ones():
    loaded, states = target("gemma3", "float64"), PromptStates(PLENTY)
    skip = SkipConfig.parse("0,a2,m3")
    view = loaded.view(skip, prefill="dense", states=states)
    assert_equal(read(view, PROMPTS, taps=TAPS), read(loaded.view(), PROMPTS, taps=TAPS))
    other = loaded.view(SkipConfig.parse("4"), prefill="dense", states=states)
    assert work_of(states, other).computed == 0
    # A prefix of the dense target is its own; one that was read sparsely is not.
    prefix = loaded.view().build_prefix(HEADER)
    prompts = [[*HEADER, *prompt] for prompt in PROMPTS]
    logits = view.prefill(prompts, view.new_cache(3, 64), prefix)
    assert torch.equal(
        logits, loaded.view().prefill(prompts, loaded.view().new_cache(3, 64), prefix)
    )
