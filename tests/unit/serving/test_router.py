"""The domain router: right on what it knows, silent on what it does not."""

from __future__ import annotations

import pytest

from specdec_core.serving.router import DomainRouter, packaged_examples, train_router

UNKNOWN = ("", "7", "lorem ipsum dolor sit amet", "ab" * 50_000)


@pytest.fixture(scope="module")
def router() -> DomainRouter:
    return train_router(min_confidence=0.8)


def test_prompts_of_the_suites_are_told_apart(router: DomainRouter) -> None:
    assert router.route("Translate German to English: Der Hund schläft im Garten.").domain == (
        "translation"
    )
    code = 'def add(a: int, b: int) -> int:\n    """Return the sum of a and b.\n    >>> add(1, 2)\n'
    assert router.route(code).domain == "code"


@pytest.mark.parametrize("text", UNKNOWN, ids=range(len(UNKNOWN)))
def test_text_of_no_domain_is_left_dense(router: DomainRouter, text: str) -> None:
    route = router.route(text)
    assert route.domain is None
    assert 0.0 <= route.confidence < 0.8


def test_training_is_deterministic() -> None:
    examples = [example for example in packaged_examples() if example.domain in ("qa", "math")]
    first, second = (train_router(examples, min_confidence=0.5) for _ in range(2))
    texts = [example.texts[0] for example in examples[::20]]
    assert first.likeliest(texts) == second.likeliest(texts)


def test_variants_of_a_prompt_leave_its_instruction_out() -> None:
    example = next(e for e in packaged_examples() if e.domain == "translation")
    asked, bare = example.texts
    assert asked == f"Translate German to English: {bare}"
