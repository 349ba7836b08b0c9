import hashlib
import json

import pytest

from specdec_core.config.drafters import NoDrafter, PromptLookup
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.retrieval import Rest
from specdec_core.config.sampling import Sampling

BASE = EvaluationRequest(
    target="path:/models/a",
    target_identity="id-a",
    dtype="bfloat16",
    skip="a3",
    drafter=PromptLookup(),
    suite="/data/a.jsonl",
    suite_hash="suite-a",
    domain="qa",
    template_hash="template-a",
    item_ids=("x", "y"),
    max_new_tokens=16,
    code_version="v1",
)


def test_key_is_a_sha256_in_hex():
    assert len(BASE.key) == 64
    assert int(BASE.key, 16) >= 0


@pytest.mark.parametrize(
    "change",
    [
        {"target_identity": "id-b"},
        {"dtype": "float32"},
        {"dtype": "bfloat16-int8"},
        {"kernels": "torch"},
        {"skip": ""},
        {"prefill": "dense"},
        {"drafter": NoDrafter()},
        {"drafter": PromptLookup(num_tokens=4)},
        {"drafter_data": "other tokens"},
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": Sampling(seed=1)},
        {"suite_hash": "suite-b"},
        {"domain": "rag"},
        {"template_hash": "template-b"},
        {"item_ids": ("y", "x")},
        {"max_new_tokens": 17},
        {"stop_policy": "eos_only"},
        {"batch_size": 2},
        {"repetition": "second"},
        {"mode": "replay"},
        {"is_timed": True},
        {"record_gaps": True},
        {"code_version": "v2"},
    ],
)
def test_everything_that_determines_a_result_changes_the_key(change):
    assert BASE.model_copy(update=change).key != BASE.key


@pytest.mark.parametrize(
    "change", [{"target": "path:/elsewhere"}, {"suite": "/b.jsonl"}, {"device": "cuda:1"}]
)
def test_locations_do_not_change_the_key(change):
    assert BASE.model_copy(update=change).key == BASE.key


def test_prefill_takes_part_only_where_it_makes_a_difference():
    # Keys of requests that read prompts as the paper does are those from before there was a choice.
    content = BASE.model_dump(mode="json", exclude={"target", "suite", "device", "prefill"})
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert BASE.key == hashlib.sha256(text.encode()).hexdigest()
    dense = BASE.model_copy(update={"skip": ""})
    assert dense.model_copy(update={"prefill": "dense"}).key == dense.key


def test_where_a_datastore_lies_does_not_change_the_key_but_what_it_holds_does():
    here, there = (
        BASE.model_copy(update={"drafter": Rest(datastore=path), "drafter_data": "tokens"})
        for path in ("/here", "/there")
    )
    assert here.key == there.key
    assert here.model_copy(update={"drafter_data": "others"}).key != here.key
    assert here.model_copy(update={"drafter": Rest(datastore="/x", num_nodes=8)}).key != here.key


def test_every_field_is_covered_by_one_of_the_two_tests_above():
    determining = {
        "target_identity", "dtype", "skip", "drafter", "suite_hash", "domain", "template_hash",
        "item_ids", "max_new_tokens", "repetition", "stop_policy", "batch_size", "mode", "is_timed",
        "record_gaps", "code_version", "drafter_data", "sampling",
        "kernels", "prefill",
    }  # fmt: skip
    assert set(EvaluationRequest.model_fields) == determining | {"target", "suite", "device"}


def test_round_trip():
    assert EvaluationRequest.model_validate_json(BASE.model_dump_json()) == BASE
