"""Evaluation on a tiny real checkpoint: modes agree, figures are sums of samples, faults named."""

import pytest

from db.store import Store
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.sampling import parse_sampling
from specdec_core.data.records import Suite, SuiteItem
from specdec_core.data.templates import get_template
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.evaluation import StopStrings, evaluate
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint

ITEMS = [
    SuiteItem(
        id=f"q/{i}",
        domain="qa",
        turns=(f"{word} what is {word}?",),
        references=(word,),
        metric="f1",
    )
    for i, word in enumerate(["red", "blue", "green", "a much longer word", "x"])
]
SUITE = Suite.of("test", "qa", ITEMS, "memory")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    root = tmp_path_factory.mktemp("evaluation")
    folder = write_tiny_checkpoint(root / "model", "gemma3", seed=4)
    model = resolve_model(f"path:{folder}", root / "cache")
    return load_target(model, dtype="float64", device="cpu")


def request_for(target, **changes):
    fields = {
        "target": "path:/tiny",
        "target_identity": target.identity,
        "dtype": "float64",
        "drafter": parse_drafter("prompt-lookup:max_ngram=2"),
        "suite": "memory",
        "suite_hash": SUITE.content_hash,
        "domain": "own",
        "template_hash": get_template("own", target.kind).hash,
        "item_ids": tuple(item.id for item in ITEMS),
        "max_new_tokens": 24,
        "code_version": "test",
    }
    return EvaluationRequest(**{**fields, **changes})


def without_seconds(samples):
    """Samples without what only decoding at batch 1 records."""
    lone = {"seconds": None, "step_seconds": (), "token_ends": ()}
    return [sample.model_copy(update=lone) for sample in samples]


@pytest.mark.parametrize("skip", ["", "1", "a0,m2"])
@pytest.mark.parametrize(
    "drafter",
    [
        "prompt-lookup:max_ngram=1",
        "token-recycling:num_nodes=8,update=path",
        "token-recycling:num_nodes=8,update=path,state_scope=run",
    ],
)
def test_replay_in_a_batch_equals_decoding_one_by_one(target, skip, drafter):
    config = parse_drafter(drafter)
    alone = evaluate(request_for(target, skip=skip, drafter=config), target, SUITE)
    replayed = evaluate(
        request_for(target, skip=skip, drafter=config, mode="replay", batch_size=3), target, SUITE
    )
    assert without_seconds(replayed.samples) == without_seconds(alone.samples)
    assert replayed.summary.acceptance_length == alone.summary.acceptance_length
    assert sum(sample.trace.accepted != () for sample in alone.samples) > 0


SAMPLED = parse_sampling("temperature=0.9,top_p=0.95,seed=5")


@pytest.mark.parametrize("drafter", ["prompt-lookup:max_ngram=1", "token-recycling:update=path"])
def test_a_sampled_item_has_its_own_seed_wherever_it_is_decoded(target, drafter):
    config = {"drafter": parse_drafter(drafter), "sampling": SAMPLED}
    alone = evaluate(request_for(target, **config), target, SUITE)
    replayed = evaluate(request_for(target, mode="replay", batch_size=3, **config), target, SUITE)
    assert without_seconds(replayed.samples) == without_seconds(alone.samples)
    ids = tuple(item.id for item in reversed(ITEMS[1:]))
    backwards = evaluate(request_for(target, item_ids=ids, batch_size=2, **config), target, SUITE)
    outputs = {sample.item_id: sample.token_ids for sample in alone.samples}
    assert {s.item_id: s.token_ids for s in backwards.samples} == {i: outputs[i] for i in ids}
    greedy = evaluate(request_for(target), target, SUITE)
    assert [s.token_ids for s in greedy.samples] != list(outputs.values())
    other = SAMPLED.model_copy(update={"seed": 6})
    again = evaluate(request_for(target, **{**config, "sampling": other}), target, SUITE)
    assert [s.token_ids for s in again.samples] != list(outputs.values())


def test_summary_is_the_sum_of_its_samples(target):
    result = evaluate(request_for(target), target, SUITE)
    samples, summary = result.samples, result.summary
    committed = sum(sum(sample.trace.committed) for sample in samples)
    steps = sum(len(sample.trace.committed) for sample in samples)
    assert summary.num_tokens == sum(len(s.token_ids) for s in samples) == committed + len(samples)
    assert summary.acceptance_length == committed / steps
    assert summary.metric == pytest.approx(sum(s.score for s in samples) / 5)
    assert all(sample.seconds is not None for sample in samples)
    assert [sample.item_id for sample in samples] == [item.id for item in ITEMS]


def test_a_lone_output_knows_the_seconds_of_its_steps_and_where_its_tokens_end(target):
    for sample in evaluate(request_for(target), target, SUITE).samples:
        assert len(sample.step_seconds) == len(sample.trace.committed)
        rounding = 1e-6 * len(sample.step_seconds)
        assert sum(sample.step_seconds) == pytest.approx(sample.seconds, abs=rounding)
        assert len(sample.token_ends) == len(sample.token_ids)
        assert sample.token_ends[-1] == len(sample.text)
        assert list(sample.token_ends) == sorted(sample.token_ends)
    for sample in evaluate(request_for(target, batch_size=2), target, SUITE).samples:
        assert (sample.step_seconds, sample.token_ends) == ((), ())


@pytest.mark.parametrize("drafter", ["none", "prompt-lookup:max_ngram=1"])
def test_gaps_are_kept_per_output_position_where_asked_for(target, drafter):
    config = parse_drafter(drafter)
    plain = evaluate(request_for(target, drafter=config), target, SUITE)
    asked = evaluate(request_for(target, drafter=config, record_gaps=True), target, SUITE)
    assert all(sample.gaps == () for sample in plain.samples)
    assert [s.token_ids for s in asked.samples] == [s.token_ids for s in plain.samples]
    assert [len(s.gaps) for s in asked.samples] == [len(s.token_ids) for s in asked.samples]
    assert all(gap >= 0.0 for sample in asked.samples for gap in sample.gaps)


@pytest.mark.parametrize("cut", ["top_k=1", "top_p=0.01"])
def test_gaps_of_tokens_without_a_rival_can_be_stored(target, tmp_path, cut):
    sampling = parse_sampling(f"temperature=0.5,{cut}")
    asked = request_for(target, sampling=sampling, record_gaps=True, max_new_tokens=6)
    result = evaluate(asked, target, SUITE)
    gaps = [gap for sample in result.samples for gap in sample.gaps]
    assert max(gaps) == 1e9
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        store.evaluations.put(asked, result)
        assert store.evaluations.samples(asked.key) == result.samples


def test_stop_string_ends_decoding_at_its_first_token(target):
    template = get_template("qa", "base")
    check = StopStrings(target.tokenizer, template)
    ids = target.tokenizer(" red\nnext\n", add_special_tokens=False)["input_ids"]
    assert check(ids) == 5  # one byte a token: the first line break is the fifth
    assert check(ids[:4]) is None
    assert check(target.tokenizer("\n red", add_special_tokens=False)["input_ids"]) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_identity": "other-model"}, "asks for target_identity other-model"),
        ({"suite_hash": "0" * 64}, "asks for suite_hash 000000000000"),
        ({"template_hash": "1" * 64}, "asks for template_hash 111111111111"),
        (
            {"mode": "replay", "drafter": parse_drafter("token-recycling")},
            "cannot be replayed: use mode 'decode'",
        ),
        (
            {"mode": "replay", "sampling": parse_sampling("temperature=1,verification=residual")},
            "verification=residual depend on the drafts",
        ),
        (
            {"batch_size": 2, "drafter": parse_drafter("token-recycling:state_scope=run")},
            "needs batch size 1, not 2",
        ),
        ({"skip": "9"}, "target has layers 0 to 2"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(target, changes, message):
    with pytest.raises(ConfigError, match=message):
        evaluate(request_for(target, **changes), target, SUITE)


def test_stopping_is_noticed_before_the_next_step(target):
    asked = iter([False, False, True])
    with pytest.raises(SearchCancelledError):
        evaluate(request_for(target), target, SUITE, should_stop=lambda: next(asked))
