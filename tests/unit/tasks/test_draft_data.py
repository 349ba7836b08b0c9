"""Training data of tiny targets: content, keys, resumption, size, refusals."""

import json
import os
import shutil

import datasets
import pytest
import torch

from specdec_core.config.drafters import NoDrafter
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.errors import ConfigError, EvaluationFailedError, SearchCancelledError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.search.storage import try_lock
from specdec_core.training import manifest as manifest_module
from specdec_core.training.data import DraftData
from specdec_core.training.manifest import (
    MANIFEST,
    data_key,
    estimate_bytes,
    read_manifest,
    shard_path,
)
from tasks import draft_data_plan
from tasks.draft_data import make_draft_data
from tasks.draft_data_plan import plan_data
from tests.draft_prompts import (
    data_config,
    questions,
    settings_of,
    write_chat_checkpoint,
    write_prompts,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_chat_checkpoint(tmp_path_factory.mktemp("model") / "chat")


@pytest.fixture
def settings(tmp_path):
    return settings_of(tmp_path)


@pytest.fixture
def make(checkpoint, settings, tmp_path):
    """Make data of small prompts in this process."""
    prompts = write_prompts(tmp_path / "prompts.jsonl", questions(12))

    def made(*files, folder=None, **changes):
        config = data_config(checkpoint, *(files or (prompts,)), **changes)
        return make_draft_data(config, settings, folder=folder, is_inline=True)

    return made


@pytest.fixture(scope="module")
def target(checkpoint, tmp_path_factory):
    model = resolve_model(f"path:{checkpoint}", tmp_path_factory.mktemp("cache"))
    settings = settings_of(tmp_path_factory.mktemp("home"))
    return load_target(model, dtype="float32", device="cpu", settings=settings)


def alone(target, prompt, max_new_tokens=12):
    """Return what the target answers to one prompt by itself."""
    drafter = make_drafter(NoDrafter(), DrafterContext())
    (found,) = generate(
        target.view(), [prompt], [drafter], max_new_tokens=max_new_tokens, eos_ids=target.eos_ids
    )
    return found.token_ids


def test_another_process_with_the_same_data_is_waited_for_and_the_user_told(
    checkpoint, settings, tmp_path
):
    prompts = write_prompts(tmp_path / "prompts.jsonl", questions(12))
    lock, lines = try_lock(tmp_path / ".data.lock"), []

    def end_the_other(line):
        lines.append(line)
        if "another process" in line:
            lock.close()

    place, manifest = make_draft_data(
        data_config(checkpoint, prompts),
        settings,
        folder=tmp_path / "data",
        is_inline=True,
        log=end_the_other,
    )
    assert manifest.counts is not None
    waiting = f"another process makes the same training data in {place}: waiting for it"
    assert lines.count(waiting) == 1


def samples_of(folder):
    return DraftData.open(folder).samples


def test_a_sample_is_the_prompt_and_what_the_target_answers(make, target):
    folder, manifest = make(num_prompts=6)
    samples = samples_of(folder)
    assert sorted(samples) == sorted(manifest.prompt_ids)
    for name, sample in samples.items():
        text = target.tokenizer.apply_chat_template(
            [{"role": "user", "content": questions(12)[int(name)]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        prompt = target.tokenizer(text, add_special_tokens=False)["input_ids"]
        ((start, stop),) = sample.spans
        assert list(sample.token_ids[:start]) == prompt
        assert sample.token_ids[start:] == alone(target, prompt)
        assert stop == len(sample.token_ids)


def test_states_are_those_of_a_pass_over_the_whole_sequence(make, target):
    folder, _ = make(num_prompts=3, hidden="taps", taps=(1, 3))
    data = DraftData.open(folder)
    view = target.view()
    for name, sample in data.samples.items():
        cache = view.new_cache(1, len(sample.token_ids))
        _, (expected,) = view.prefill_tapped([sample.token_ids], cache, (HEAD_INPUT, 1, 3))
        assert torch.equal(data.states(name), expected.clone())


def test_states_are_rounded_to_the_type_asked_for_which_is_recorded(make):
    exact = DraftData.open(make(num_prompts=2)[0])
    folder, manifest = make(num_prompts=2, hidden_dtype="bfloat16")
    rounded = DraftData.open(folder)
    assert manifest.config.hidden_dtype == "bfloat16"
    for name in exact.samples:
        expected = exact.states(name).bfloat16().float()
        assert torch.equal(rounded.states(name), expected)


def test_the_likeliest_logits_are_stored_where_asked_for(make, target, tmp_path):
    folder, _ = make(num_prompts=2, top_k=3)
    table = datasets.load_dataset(
        "parquet",
        data_files=str(shard_path(folder, 0)),
        split="train",
        cache_dir=str(tmp_path / "datasets"),
    )
    row = table[0]
    ids = row["token_ids"]
    view = target.view()
    _, (states,) = view.prefill_tapped([ids], view.new_cache(1, len(ids)), (HEAD_INPUT,))
    start, stop = row["spans"]
    scores = target.head(states[start - 1 : stop - 1, 0]).topk(3)
    assert row["top_ids"] == scores.indices.flatten().tolist()
    assert row["top_logits"] == scores.values.flatten().tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_do_not_depend_on_the_batch(make, tmp_path, temperature):
    tokens = []
    for size in (1, 3, 64):
        folder, _ = make(
            folder=tmp_path / f"d{size}", batch_size=size, num_prompts=7, temperature=temperature
        )
        tokens.append({n: s.token_ids for n, s in samples_of(folder).items()})
    assert tokens[0] == tokens[1] == tokens[2]


def test_greedy_answers_agree_with_the_training_forward_and_drawn_ones_are_not_compared(make):
    _, greedy = make()
    assert greedy.counts.num_compared == greedy.counts.num_response_tokens > 0
    assert greedy.counts.num_mismatched == greedy.counts.num_flagged == 0
    folder, drawn = make(temperature=1.0)
    assert drawn.counts.num_compared == 0
    assert {s.num_mismatched for s in samples_of(folder).values()} == {None}


def test_later_turns_see_the_earlier_answers(make, tmp_path, target):
    file = write_prompts(tmp_path / "t.jsonl", [["One?", "Two?"], ["Three?"]])
    folder, _ = make(file, num_prompts=2, max_turns=2, max_tokens=200)
    samples = samples_of(folder)
    assert sorted(samples) == ["0", "0#1", "1"]
    first, second = samples["0"], samples["0#1"]
    answer = target.tokenizer.decode(first.token_ids[first.spans[0][0] :], skip_special_tokens=True)
    prompt = target.tokenizer.decode(second.token_ids[: second.spans[0][0]])
    assert prompt == (
        f"[user] One?<eos>\n[assistant] {answer.strip()}<eos>\n[user] Two?<eos>\n[assistant] "
    )
    assert {second.prompt_id, first.prompt_id} == {"0"}


def test_turns_that_no_longer_fit_are_counted(make, tmp_path):
    file = write_prompts(tmp_path / "t.jsonl", [["One?", "Two?" * 20], ["Three?"]])
    folder, manifest = make(file, num_prompts=2, max_turns=2, max_tokens=96)
    assert sorted(samples_of(folder)) == ["0", "1"]
    assert manifest.counts.num_too_long == 1


def test_finished_conversations_keep_their_answers_and_are_cut_to_the_limit(make, tmp_path):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "y" * 90}]
    file = write_prompts(tmp_path / "c.jsonl", [{"messages": messages}, "Plain?"])
    folder, manifest = make(file, num_prompts=2, max_tokens=60)
    sample = samples_of(folder)["0"]
    start = len("[user] Hi") + 1 + len("\n[assistant] ")  # one token per byte, <eos> is one
    assert sample.spans == ((start, 60),)
    assert (sample.end, len(sample.token_ids)) == ("given", 60)
    assert manifest.counts.num_cut == 1


def test_prompts_that_leave_no_room_for_an_answer_are_left_out(make, tmp_path):
    file = write_prompts(tmp_path / "l.jsonl", ["short", "x" * 90])
    _, manifest = make(file, num_prompts=2)
    assert (manifest.num_prompts, manifest.dropped) == (1, {"too long": 1})


class TestKey:
    """User need 54: every input changes the key, and nothing else does."""

    @pytest.fixture
    def key(self, checkpoint, settings, tmp_path):
        prompts = write_prompts(tmp_path / "prompts.jsonl", questions(12))

        def found(*files, model=checkpoint, using=settings, **changes):
            config = data_config(model, *(files or (prompts,)), **changes)
            return plan_data(config, using, lambda _line: None).manifest.key

        return found

    @pytest.mark.parametrize(
        "changes",
        [
            {"num_prompts": 5},
            {"seed": 1},
            {"max_tokens": 97},
            {"max_new_tokens": 13},
            {"temperature": 0.5},
            {"max_turns": 2},
            {"hidden": "none"},
            {"hidden": "taps", "taps": (1,)},
            {"hidden_dtype": "bfloat16"},
            {"top_k": 2},
            {"dtype": "float64"},
        ],
    )
    def test_options_change_it(self, key, changes):
        assert key(**changes) != key()

    def test_a_prompt_changes_it(self, key, tmp_path):
        other = write_prompts(tmp_path / "o.jsonl", [*questions(11), "Another question"])
        assert key(other, num_prompts=12) != key(num_prompts=12)

    @pytest.mark.parametrize(
        ("file", "change"),
        [
            ("chat_template.jinja", lambda text: text.replace("[user]", "<user>") + " "),
            ("tokenizer.json", lambda text: text + "\n"),
            ("generation_config.json", lambda text: text + "\n"),
        ],
    )
    def test_template_tokenizer_and_target_change_it(self, key, checkpoint, tmp_path, file, change):
        copy = tmp_path / "copy"
        shutil.copytree(checkpoint, copy)
        assert key(model=copy) == key()  # another path, the same content
        (copy / file).write_text(change((copy / file).read_text()))
        assert key(model=copy) != key()

    def test_weights_change_it(self, key, tmp_path):
        assert key(model=write_chat_checkpoint(tmp_path / "other", seed=1)) != key()

    def test_code_format_and_kernels_change_it(self, checkpoint, settings, tmp_path, monkeypatch):
        prompts = write_prompts(tmp_path / "p.jsonl", questions(4))
        plan = plan_data(data_config(checkpoint, prompts), settings, lambda _line: None)
        for change in ({"code_version": "x"}, {"kernels": "own"}, {"device": "cuda:1"}):
            assert data_key(plan.manifest.model_copy(update=change)) != plan.manifest.key
        monkeypatch.setattr(manifest_module, "SHARD_PROMPTS", 32)
        assert data_key(plan.manifest) != plan.manifest.key

    def test_places_times_batches_and_workers_do_not(self, key, tmp_path, settings):
        moved = write_prompts(tmp_path / "moved.jsonl", questions(12))
        os.utime(moved, (1, 1))
        assert key(moved) == key()
        assert key(batch_size=1) == key()
        more = settings.model_copy(update={"num_workers": 3, "threads": 2, "home": tmp_path / "h"})
        assert key(using=more) == key()


def test_a_killed_run_continues_with_the_missing_shards(make, monkeypatch):
    monkeypatch.setattr(manifest_module, "SHARD_PROMPTS", 2)
    monkeypatch.setattr(draft_data_plan, "SHARD_PROMPTS", 2)
    folder, whole = make(num_prompts=6)
    first = samples_of(folder)
    times = [shard_path(folder, i).stat().st_mtime_ns for i in range(3)]
    shard_path(folder, 1).unlink()
    (folder / ".shard-00001.parquet.77").write_bytes(b"half")
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**document, "counts": None}))
    with pytest.raises(ConfigError, match="is not finished"):
        DraftData.open(folder)
    assert make(num_prompts=6)[0] == folder
    assert [shard_path(folder, i).stat().st_mtime_ns for i in (0, 2)] == [times[0], times[2]]
    assert samples_of(folder) == first
    assert sorted(path.name for path in folder.iterdir()) == [
        MANIFEST,
        *(f"shard-0000{i}.parquet" for i in range(3)),
    ]
    assert read_manifest(folder).counts.num_tokens == whole.counts.num_tokens


def test_complete_data_is_not_made_again(make, monkeypatch):
    folder, first = make()
    monkeypatch.setattr("tasks.draft_data.pool_factory", None)
    assert make() == (folder, first)


def test_prompts_that_files_lack_cannot_be_held_out(checkpoint, settings, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.draft_data.pool_factory", None)  # would load the target
    prompts = write_prompts(tmp_path / "p.jsonl", questions(4))
    config = data_config(checkpoint, prompts, num_prompts=9)
    message = r"4 holds out all of the 4 prompts that the files have \(9 were asked for\)"
    with pytest.raises(ConfigError, match=message):
        make_draft_data(config, settings, num_validation=4, folder=tmp_path / "d", is_inline=True)
    assert not (tmp_path / "d").exists()


def test_stopping_leaves_no_half_shard(checkpoint, settings, tmp_path):
    config = data_config(checkpoint, write_prompts(tmp_path / "p.jsonl", questions(4)))
    with pytest.raises(SearchCancelledError):
        make_draft_data(
            config, settings, folder=tmp_path / "d", is_inline=True, should_stop=lambda: True
        )
    assert [path.name for path in (tmp_path / "d").iterdir()] == [MANIFEST]


def test_the_size_is_known_before_start_within_two_percent(make, checkpoint, settings, tmp_path):
    for changes in ({"hidden": "head-input"}, {"hidden": "taps", "taps": (0, 2), "top_k": 4}):
        prompts = tmp_path / "prompts.jsonl"
        config = data_config(checkpoint, prompts, num_prompts=10, **changes)
        plan = plan_data(config, settings, lambda _line: None)
        folder, manifest = make(num_prompts=10, **changes)
        counts = manifest.counts
        exact = estimate_bytes(
            counts.num_samples,
            counts.num_tokens,
            counts.num_response_tokens,
            config=config,
            hidden_size=16,
        )
        written = shard_path(folder, 0).stat().st_size
        assert abs(exact - written) <= 0.02 * written
        # No tiny target ends an answer by itself, so that the upper bound is met too.
        assert counts.num_response_tokens == 10 * 12
        assert plan.estimated_bytes == exact


def test_a_disk_that_is_too_small_is_refused_before_the_target_is_loaded(make, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=256 * 2**20 + 1000)
    monkeypatch.setattr(draft_data_plan.shutil, "disk_usage", lambda _folder: usage)
    monkeypatch.setattr("specdec_core.models.loading.load_target", None)
    with pytest.raises(ConfigError, match=r"0\.25 GiB: say hidden=none .* on a larger disk"):
        make()


def test_a_folder_of_another_format_is_refused_with_the_command_that_rebuilds(make, tmp_path):
    folder, _ = make(folder=tmp_path / "d")
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**document, "format_version": 0}))
    with pytest.raises(ConfigError, match=rf"has format 0.*'rm -r {folder}' and run the same"):
        make(folder=folder)


def test_a_folder_of_other_data_is_refused_with_what_differs(make, tmp_path):
    folder, _ = make(folder=tmp_path / "d")
    with pytest.raises(ConfigError, match=r"is asked for \(config differ\)"):
        make(folder=folder, max_new_tokens=13)


def test_a_folder_of_other_files_is_refused(make, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds files but no training data"):
        make(folder=tmp_path)


def test_conversations_of_several_turns_need_a_chat_model(settings, tmp_path):
    base = write_tiny_checkpoint(tmp_path / "base", dtype="float32")
    file = write_prompts(tmp_path / "p.jsonl", questions(4))
    with pytest.raises(ConfigError, match="cannot answer 2 turns"):
        make_draft_data(data_config(base, file, max_turns=2), settings, is_inline=True)
    folder, manifest = make_draft_data(data_config(base, file), settings, is_inline=True)
    assert manifest.counts.num_samples == 4
    sample = samples_of(folder)["0"]
    assert sample.spans[0][0] == len(questions(1)[0])  # plain text, one token per byte


def test_a_failing_shard_says_what_is_kept(make, monkeypatch):
    def broken(*_args):
        raise RuntimeError("no luck")

    monkeypatch.setattr("tasks.draft_data_shard.make_shard", broken)
    with pytest.raises(EvaluationFailedError, match=r"no luck.*finished shards are kept"):
        make()
