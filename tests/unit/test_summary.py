"""Parts of an evaluation joined are the evaluation, on a tiny real checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.config.drafters import parse_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.data.records import Suite, SuiteItem
from specdec_core.data.templates import get_template
from specdec_core.evaluation import evaluate
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.summary import join_results

WORDS = ("red", "blue", "green", "a much longer word", "x")
ITEMS = [
    SuiteItem(f"q/{word}", "qa", (f"{word} what is {word}?",), (word,), "f1") for word in WORDS
]
SUITE = Suite.of("test", "qa", ITEMS, "memory")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    root: Path = tmp_path_factory.mktemp("parts")
    folder = write_tiny_checkpoint(root / "model", "llama", seed=4)
    model = resolve_model(f"path:{folder}", root / "cache")
    return load_target(model, dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("drafter", "mode", "batch_size"),
    [
        ("prompt-lookup:max_ngram=1", "replay", 2),
        ("prompt-lookup:max_ngram=1", "decode", 2),
        ("token-recycling:num_nodes=8", "decode", 1),
        ("token-recycling:num_nodes=8,update=path", "replay", 3),
    ],
)
def test_parts_of_whole_batches_joined_are_the_whole(
    target: Target, drafter: str, mode: str, batch_size: int
) -> None:
    whole = EvaluationRequest.model_validate(
        {
            "target": "path:/tiny",
            "target_identity": target.identity,
            "dtype": "float32",
            "skip": "1",
            "drafter": parse_drafter(drafter),
            "suite": "memory",
            "suite_hash": SUITE.content_hash,
            "domain": "own",
            "template_hash": get_template("own", target.kind).hash,
            "item_ids": tuple(item.id for item in ITEMS),
            "max_new_tokens": 16,
            "batch_size": batch_size,
            "mode": mode,
            "code_version": "test",
        }
    )
    parts = [
        whole.model_copy(update={"item_ids": whole.item_ids[start : start + batch_size]})
        for start in range(0, 5, batch_size)
    ]
    joined = join_results(whole.key, [evaluate(part, target, SUITE) for part in parts])
    expected = evaluate(whole, target, SUITE)
    measured = {"seconds", "step_seconds"}
    assert [s.model_dump(exclude=measured) for s in joined.samples] == [
        s.model_dump(exclude=measured) for s in expected.samples
    ]
    clocked = {"prefill_s", "decode_s", "tokens_per_s"}
    assert joined.summary.model_dump(exclude=clocked) == expected.summary.model_dump(
        exclude=clocked
    )
    assert (joined.key, joined.hardware) == (expected.key, expected.hardware)
    assert len({part.key for part in parts} | {whole.key}) == len(parts) + 1
