"""The loss of references on a tiny checkpoint, against one plain forward of the library."""

import pytest
import torch

from specdec_core.config.drafters import parse_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.data.records import Suite, SuiteItem
from specdec_core.data.templates import get_template, render_prompts
from specdec_core.errors import ConfigError, MeasurementError, SearchCancelledError
from specdec_core.language_loss import evaluate_loss
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint

# The second reference is longer than what one forward scores.
REFERENCES = [("a short answer",), ("words " * 15 + "until the end", "not this one"), ("x",)]
ITEMS = [
    SuiteItem(f"q/{i}", "qa", (f"What comes after {i}?",), references, "f1")
    for i, references in enumerate(REFERENCES)
]
SUITE = Suite.of("test", "qa", ITEMS, "memory")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_checkpoint(tmp_path_factory.mktemp("loss") / "model", "llama", seed=4)


@pytest.fixture(scope="module")
def target(folder, tmp_path_factory):
    model = resolve_model(f"path:{folder}", tmp_path_factory.mktemp("cache"))
    return load_target(model, dtype="float64", device="cpu")


def request_for(target, suite=SUITE, domain="own", **changes):
    fields = {
        "target": "path:/tiny",
        "target_identity": target.identity,
        "dtype": "float64",
        "drafter": parse_drafter("none"),
        "suite": "memory",
        "suite_hash": suite.content_hash,
        "domain": domain,
        "template_hash": get_template(domain, target.kind).hash,
        "item_ids": tuple(item.id for item in suite.items),
        "max_new_tokens": 1,
        "mode": "loss",
        "code_version": "test",
    }
    return EvaluationRequest(**{**fields, **changes})


def library_nats(folder, sequence, num_context):
    """Losses of the tokens behind the context, from one forward of `transformers`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    ids = torch.tensor([sequence])
    with torch.inference_mode():
        log_probabilities = model(ids).logits[0].log_softmax(-1)
    return [
        -float(log_probabilities[i - 1, sequence[i]]) for i in range(num_context, len(sequence))
    ]


def test_loss_is_the_library_s_over_all_reference_tokens(target, folder):
    result = evaluate_loss(request_for(target), target, SUITE)
    prompts = render_prompts(ITEMS, get_template("own", target.kind), target.tokenizer).ids
    nats = []
    for prompt, sample, references in zip(prompts, result.samples, REFERENCES, strict=True):
        assert sample.prompt_tokens == len(prompt)
        assert target.tokenizer.decode(list(sample.token_ids)) == references[0]
        nats += library_nats(folder, [*prompt, *sample.token_ids], len(prompt))
    assert len(nats) > 100
    assert result.summary.loss == pytest.approx(sum(nats) / len(nats), rel=1e-7)
    assert result.summary.num_steps == 0
    assert result.summary.metric is None


def test_a_sparse_target_has_another_loss(target):
    dense = evaluate_loss(request_for(target), target, SUITE).summary.loss
    sparse = evaluate_loss(request_for(target, skip="1"), target, SUITE).summary.loss
    assert dense != pytest.approx(sparse, rel=1e-5)


def test_items_without_reference_have_the_loss_of_their_prompt(target, folder):
    items = [SuiteItem("c/0", "qa", ("Tell me something.",))]
    suite = Suite.of("chat", "qa", items, "memory")
    result = evaluate_loss(request_for(target, suite), target, suite)
    (prompt,) = render_prompts(items, get_template("own", target.kind), target.tokenizer).ids
    nats = library_nats(folder, list(prompt), 1)
    assert result.summary.loss == pytest.approx(sum(nats) / len(nats), rel=1e-7)


def test_answers_follow_a_template_with_a_blank_and_its_header_is_read_once(target):
    result = evaluate_loss(request_for(target, domain="qa", item_ids=("q/0",)), target, SUITE)
    (sample,) = result.samples
    assert target.tokenizer.decode(list(sample.token_ids)) == " a short answer"


def test_what_cannot_be_scored_is_refused(target):
    suite = Suite.of("empty", "qa", [SuiteItem("e/0", "qa", ("x",))], "memory")
    with pytest.raises(MeasurementError, match="no item has a token"):
        evaluate_loss(request_for(target, suite), target, suite)
    with pytest.raises(ConfigError, match="template_hash"):
        evaluate_loss(request_for(target, template_hash="other"), target, SUITE)
    with pytest.raises(SearchCancelledError):
        evaluate_loss(request_for(target), target, SUITE, lambda: True)
