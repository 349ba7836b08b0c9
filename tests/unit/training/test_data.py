"""Reading training data: limit, split, batches, states from disk and from the target."""

import sys
import weakref
from pathlib import Path

import pytest
import torch

from specdec_core.config.draft_data import DataConfig
from specdec_core.config.training import TrainConfig
from specdec_core.errors import ConfigError, DataError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import tiny_library_model
from specdec_core.training.data import BatchReader, DraftData
from specdec_core.training.manifest import DataCounts, DataManifest, shard_path, write_manifest
from specdec_core.training.records import ShardWriter, StoredSample, open_shard, read_counts
from specdec_core.training.source import StoredBatches
from specdec_core.training.target import FrozenTarget, load_embedding, load_head
from tests.draft_prompts import settings_of, write_chat_checkpoint

HIDDEN, VOCAB = 4, 50


def stored(name, num_tokens, *spans, **fields):
    generator = torch.Generator().manual_seed(num_tokens)
    ids = torch.randint(VOCAB, (num_tokens,), generator=generator).tolist()
    options = {"end": "length", "num_mismatched": 0, "source": "talk", "prompt_id": name, **fields}
    return StoredSample(sample_id=name, token_ids=tuple(ids), spans=spans, **options)


def write(folder, samples, *, hidden="none", taps=(), counts=True, **config):
    """Write samples as one finished shard of data."""
    folder.mkdir(exist_ok=True)
    fields = {"max_tokens": 100, "max_new_tokens": 50, "hidden": hidden, "taps": taps}
    fields |= {"hidden_dtype": "float32", **config}
    with ShardWriter(shard_path(folder, 0), key="k", hidden_dtype=fields["hidden_dtype"]) as writer:
        for sample in samples:
            writer.add(sample)
        total = writer.finish(DataCounts())
    names = {"target": "path:x", "target_identity": "t", "tokenizer_identity": "k"}
    names |= {"template_hash": "h", "code_version": "c", "prompts_hash": "p", "device": "cpu"}
    manifest = DataManifest(
        key="k",
        config=DataConfig(**fields),
        dtype="float32",
        kernels="torch",
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        num_prompts=max(1, len({sample.prompt_id for sample in samples})),
        prompt_ids=tuple(sample.prompt_id for sample in samples),
        dropped={},
        counts=total if counts else None,
        **names,
    )
    write_manifest(folder, manifest)
    return folder


def test_samples_come_back_as_written(tmp_path):
    samples = [stored("a", 9, (3, 6), (7, 9), end="given", num_mismatched=None)]
    samples += [stored("b", 5, (2, 5), num_mismatched=1)]
    assert list(DraftData.open(write(tmp_path, samples)).samples.values()) == samples


def test_a_stored_sample_of_100_tokens_is_cut_to_32(tmp_path):
    samples = [stored("a", 100, (20, 100)), stored("b", 30, (10, 30))]
    data = DraftData.open(write(tmp_path, samples, max_tokens=32, max_new_tokens=8))
    assert data.report.num_cut == 1
    assert data.lengths == {"a": 32, "b": 30}
    assert data.samples["a"].spans == ((20, 32),)
    assert "1 cut to 32 tokens" in data.report.sentence()
    batch = BatchReader(data, target=Zeros()).read(["a", "b"])
    assert batch.input_ids.shape == (2, 32)
    assert batch.response_mask.sum(1).tolist() == [12, 20]


def test_samples_with_nothing_to_learn_from_are_left_out_and_counted(tmp_path):
    samples = [stored("a", 100, (40, 100)), stored("b", 30, (20, 30))]
    data = DraftData.open(write(tmp_path, samples, max_tokens=40, max_new_tokens=8))
    assert (data.report.num_empty, sorted(data.samples)) == (1, ["b"])
    with pytest.raises(
        DataError, match=r"no sample in .* can be trained on .*2 without a response"
    ):
        DraftData.open(write(tmp_path, samples, max_tokens=20, max_new_tokens=8))


def test_samples_where_the_training_forward_disagrees_are_counted_and_kept(tmp_path):
    # 1 of 100 is not above 1 %, 2 of 100 is; a single one never counts, not even of 10.
    samples = [stored("a", 200, (100, 200), num_mismatched=1)]
    samples += [stored("b", 200, (100, 200), num_mismatched=2)]
    samples += [stored("c", 200, (190, 200), num_mismatched=1)]
    data = DraftData.open(write(tmp_path, samples, max_tokens=200))
    assert (sorted(data.samples), data.report.num_flagged) == (["a", "b", "c"], 1)
    assert data.report.sentence().endswith("0 without a response left out, 1 flagged")


def test_counts_of_a_shard_are_kept_in_it(tmp_path):
    folder = write(
        tmp_path,
        [
            stored("a", 9, (3, 6), (7, 9), end="given", num_mismatched=None),
            stored("b", 5, (2, 5), num_mismatched=2),
        ],
    )
    counts = read_counts(shard_path(folder, 0), "k")
    assert (counts.num_samples, counts.num_tokens, counts.num_response_tokens) == (2, 14, 8)
    assert (counts.num_generated, counts.num_compared, counts.num_mismatched) == (3, 3, 2)
    assert counts.num_flagged == 1
    assert counts.num_bytes == shard_path(folder, 0).stat().st_size


def test_damaged_and_foreign_shards_are_refused(tmp_path):
    folder = write(tmp_path, [stored("a", 5, (2, 5))])
    with pytest.raises(DataError, match="belongs to data k, not to other"):
        open_shard(shard_path(folder, 0), "other")
    shard_path(folder, 0).write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match=r"cannot be read .* make the data again"):
        DraftData.open(folder)


def test_shards_with_other_samples_than_the_manifest_says_are_refused(tmp_path):
    folder = write(tmp_path, [stored("a", 5, (2, 5)), stored("b", 6, (2, 6))])
    with ShardWriter(shard_path(folder, 0), key="k", hidden_dtype="float32") as writer:
        writer.add(stored("a", 5, (2, 5)))
        writer.finish(DataCounts())
    with pytest.raises(DataError, match="hold 1 samples, but its manifest says 2"):
        DraftData.open(folder)


@pytest.mark.parametrize("column", ["token_ids", "states"])
def test_a_changed_bit_of_a_shard_is_noticed(column, tmp_path):
    states = torch.arange(5 * HIDDEN, dtype=torch.float32).view(5, 1, HIDDEN)
    folder = write(tmp_path, [stored("a", 5, (2, 5), states=states)], hidden="head-input")
    path = shard_path(folder, 0)
    meta = open_shard(path, "k").metadata.row_group(0)
    chunks = [meta.column(i) for i in range(meta.num_columns)]
    (chunk,) = [each for each in chunks if each.path_in_schema.startswith(column)]
    raw = bytearray(path.read_bytes())
    raw[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1  # its last value
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"cannot be read .* make the data again"):
        DraftData.open(folder).states("a")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_states_that_were_read_do_not_count_as_memory_of_the_training(tmp_path):
    states = torch.zeros(5, 1, HIDDEN)
    folder = write(tmp_path, [stored("a", 5, (2, 5), states=states)], hidden="head-input")
    data = DraftData.open(folder)
    data.states("a")
    assert str(shard_path(folder, 0)) not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_states_that_their_type_cannot_hold_are_refused_at_once(tmp_path):
    states = torch.full((5, 1, HIDDEN), 1e5)  # float16 ends at 65,504
    with pytest.raises(DataError, match=r"'a' are larger than torch.float16 can hold: say hidden"):
        write(tmp_path, [stored("a", 5, (2, 5), states=states)], hidden_dtype="float16")
    write(tmp_path / "b", [stored("a", 5, (2, 5), states=states)], hidden_dtype="bfloat16")


def test_a_shard_that_fails_leaves_nothing(tmp_path):
    def write_half():
        with ShardWriter(tmp_path / "s.parquet", key="k", hidden_dtype="float32") as writer:
            writer.add(stored("a", 5, (2, 5)))
            raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_unfinished_and_absent_data_are_refused(tmp_path):
    folder = write(tmp_path / "d", [stored("a", 5, (2, 5))], counts=False)
    with pytest.raises(ConfigError, match="is not finished"):
        DraftData.open(folder)
    with pytest.raises(ConfigError, match="there is no training data in"):
        DraftData.open(tmp_path / "absent")


def test_turns_of_one_conversation_are_on_the_same_side_of_the_split(tmp_path):
    samples = [
        stored(f"{n}{turn}", 6 + n, (3, 6 + n), prompt_id=str(n))
        for n in range(8)
        for turn in ("", "#1")
    ]
    data = DraftData.open(write(tmp_path, samples))
    train, held_out = data.split(3)
    assert len(held_out) == 6
    assert sorted(train + held_out) == sorted(data.samples)
    sides = [{name.partition("#")[0] for name in side} for side in (train, held_out)]
    assert sides[0] & sides[1] == set()


def test_responses_are_counted_by_token(tmp_path):
    data = DraftData.open(write(tmp_path, [stored("a", 9, (3, 6), (7, 9))]))
    ids = data.samples["a"].token_ids
    expected = torch.bincount(torch.tensor([*ids[3:6], *ids[7:9]]), minlength=VOCAB)
    assert torch.equal(data.token_counts(["a"]), expected)


class Zeros:
    """States of zeros, for tests of what is not states."""

    def batch_states(self, input_ids, lengths, taps):
        return torch.zeros(*input_ids.shape, HIDDEN), None


def states(num_tokens, num):
    return torch.randn(num_tokens, num, HIDDEN, generator=torch.Generator().manual_seed(num_tokens))


def test_stored_states_come_in_the_order_the_draft_reads_them(tmp_path):
    samples = [
        stored("a", 18, (3, 18), states=states(18, 3)),
        stored("b", 4, (2, 4), states=states(4, 3)),
    ]
    limits = {"max_tokens": 16, "max_new_tokens": 8}
    data = DraftData.open(write(tmp_path, samples, hidden="taps", taps=(2, 5), **limits))
    batch = BatchReader(data, (5, 2)).read(["b", "a"])
    assert batch.lengths.tolist() == [4, 16]
    assert torch.equal(batch.hidden[1], states(18, 3)[:16, 0])
    assert torch.equal(batch.hidden[0, :4], states(4, 3)[:, 0])
    assert torch.equal(batch.hidden[0, 4:], torch.zeros(12, HIDDEN))  # padding
    expected = torch.cat([states(4, 3)[:, 2], states(4, 3)[:, 1]], 1)
    assert torch.equal(batch.taps[0, :4], expected)
    assert batch.sample_ids == ("b", "a")


def test_states_are_returned_in_the_type_that_the_target_computes_in(tmp_path):
    samples = [stored("a", 6, (3, 6), states=states(6, 1))]
    folder = write(tmp_path, samples, hidden="head-input", hidden_dtype="bfloat16")
    batch = BatchReader(DraftData.open(folder)).read(["a"])
    assert batch.hidden.dtype == torch.float32
    assert torch.equal(batch.hidden[0], states(6, 1)[:, 0].bfloat16().float())
    assert batch.taps is None


def test_validation_batches_are_read_one_by_one(tmp_path):
    samples = [stored(str(n), 10 + n, (3, 10 + n), states=states(10 + n, 1)) for n in range(8)]
    data = DraftData.open(write(tmp_path, samples, hidden="head-input"))
    alive = []

    class Watched(BatchReader):
        def read(self, sample_ids):
            batch = super().read(sample_ids)
            alive.append(weakref.ref(batch.hidden))
            return batch

    config = TrainConfig(num_validation=5, micro_batch_tokens=20)  # each has one sequence
    source = StoredBatches(data, Watched(data), config)
    batches = source.validation_batches(rank=0, num_workers=1)
    assert alive == []
    names, most = [], 0
    for batch in batches:
        names += batch.sample_ids
        most = max(most, sum(one() is not None for one in alive))
    assert sorted(names) == list(data.split(5)[1])
    assert (len(alive), most) == (5, 1)


def test_what_is_not_stored_needs_the_target(tmp_path):
    data = DraftData.open(write(tmp_path, [stored("a", 6, (3, 6))]))
    with pytest.raises(
        ConfigError, match=r"hidden=none, taps \[\], but the draft reads taps \[1\]"
    ):
        BatchReader(data, (1,))
    with pytest.raises(ConfigError, match="a batch of no samples"):
        BatchReader(data, target=Zeros()).read([])


@pytest.mark.parametrize("tied", [True, False])
class TestFrozenTarget:
    @pytest.fixture
    def frozen(self, tmp_path, tied):
        folder = write_chat_checkpoint(tmp_path / "m", tie_word_embeddings=tied)
        model = resolve_model(f"path:{folder}", tmp_path / "cache")
        return FrozenTarget.load(
            model, dtype="float32", device="cpu", settings=settings_of(tmp_path)
        )

    def test_states_are_those_of_the_library(self, frozen, tied):
        library = tiny_library_model(
            "llama", vocab_size=257, dtype="float32", tie_word_embeddings=tied
        )
        ids = torch.tensor([[5, 9, 200, 31, 7], [8, 8, 1, 0, 0]])
        hidden, taps = frozen.batch_states(ids, torch.tensor([5, 3]), (0, 2))
        for row, length in enumerate((5, 3)):
            with torch.no_grad():
                out = library(ids[row : row + 1, :length], output_hidden_states=True)
            kept = [out.hidden_states[tap][0] for tap in (-1, 0, 2)]
            torch.testing.assert_close(hidden[row, :length], kept[0], rtol=1e-4, atol=1e-5)
            expected = torch.cat(kept[1:], 1)
            torch.testing.assert_close(taps[row, :length], expected, rtol=1e-4, atol=1e-5)
            logits = hidden[row, :length] @ frozen.head.weight.T
            torch.testing.assert_close(logits, out.logits[0], rtol=1e-3, atol=1e-4)

    def test_states_and_head_may_enter_a_graph(self, frozen, tied):
        hidden, _ = frozen.batch_states(torch.tensor([[5, 9]]), torch.tensor([2]))
        assert not hidden.is_inference()
        assert not frozen.head.weight.is_inference()
        assert not frozen.head.weight.requires_grad
        scale = torch.ones((), requires_grad=True)
        (hidden * scale @ frozen.head.weight.T).sum().backward()
        assert scale.grad is not None

    def test_an_empty_sequence_is_refused(self, frozen, tied):
        with pytest.raises(ConfigError, match="is empty"):
            frozen.batch_states(torch.tensor([[5, 9]]), torch.tensor([0]))


def test_head_and_embedding_are_read_from_the_checkpoint(tmp_path):
    folder = write_chat_checkpoint(tmp_path / "m", tie_word_embeddings=False)
    library = tiny_library_model(
        "llama", vocab_size=257, dtype="float32", tie_word_embeddings=False
    )
    weights = library.state_dict()
    head = load_head(folder, dtype="float32", device="cpu")
    assert torch.equal(head.weight, weights["lm_head.weight"])
    embedding = load_embedding(folder, dtype="float32", device="cpu")
    assert torch.equal(embedding, weights["model.embed_tokens.weight"])


def test_of_a_target_with_8_bit_weights_the_head_is_what_it_computes_with(tmp_path):
    folder = write_chat_checkpoint(tmp_path / "m")
    model = resolve_model(f"path:{folder}", tmp_path / "cache")
    target = load_target(model, dtype="float32-int8", device="cpu", settings=settings_of(tmp_path))
    head = load_head(folder, dtype="float32-int8", device="cpu")
    rows = torch.randn(3, head.weight.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(rows @ head.weight.T, target.head(rows))
