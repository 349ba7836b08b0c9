"""How often the domain router is right, and how often it abstains: held out, and off its domains.

No timings. Prompts are counted twice: as the suites write them, and without their instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.common import write
from specdec_core.config.domains import DOMAINS
from specdec_core.config.serving import ServingConfig
from specdec_core.randomness import shuffling_generator
from specdec_core.serving.router import DomainRouter, Example, packaged_examples, train_router

_THRESHOLDS = (0.5, 0.7, 0.8, 0.9)
_SEED = 42
_HELD_OUT = 4  # every fourth example of a domain


def run() -> None:
    """Measure and store `router.json`."""
    examples = packaged_examples()
    train, test = split(examples, _SEED)
    router = train_router(train, min_confidence=0.0)
    figures: dict[str, Any] = {
        "default_min_confidence": ServingConfig.model_fields["min_confidence"].default,
        "train_items": len(train),
        "heldout_items": len(test),
        "heldout_as_written": by_threshold(router, test, 0),
        "heldout_without_instruction": by_threshold(router, test, -1),
        "heldout_by_domain": {
            domain: by_threshold(router, [e for e in test if e.domain == domain], -1)["0.8"]
            for domain in DOMAINS
        },
        "unknown_domain": {domain: left_out(examples, domain) for domain in DOMAINS},
    }
    write("router", figures)


def split(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Return training and held-out examples, every domain in the same shares."""
    train: list[Example] = []
    test: list[Example] = []
    for domain in DOMAINS:
        own = [example for example in examples if example.domain == domain]
        shuffling_generator(seed).shuffle(own)
        size = len(own) // _HELD_OUT
        test += own[:size]
        train += own[size:]
    return train, test


def by_threshold(
    router: DomainRouter, examples: Sequence[Example], variant: int
) -> dict[str, dict[str, Any]]:
    """Return counts per least confidence: answered, and of these right."""
    guesses = router.likeliest([example.texts[variant] for example in examples])
    table = {}
    for threshold in _THRESHOLDS:
        answered = [
            example.domain == domain
            for example, (domain, confidence) in zip(examples, guesses, strict=True)
            if confidence >= threshold
        ]
        table[str(threshold)] = {
            "items": len(examples),
            "answered": len(answered),
            "right": sum(answered),
            "abstention": 1 - len(answered) / len(examples),
            "accuracy_of_answers": sum(answered) / len(answered) if answered else None,
        }
    return table


def left_out(examples: Sequence[Example], domain: str) -> dict[str, Any]:
    """Return how prompts of `domain` fare with a router that has never seen it.

    Every answer is wrong there, so the share of abstentions is what counts.
    """
    router = train_router([e for e in examples if e.domain != domain], min_confidence=0.0)
    unknown = [example.texts[0] for example in examples if example.domain == domain]
    guesses = router.likeliest(unknown)
    abstained = {
        str(threshold): sum(confidence < threshold for _, confidence in guesses) / len(unknown)
        for threshold in _THRESHOLDS
    }
    taken = Counter(name for name, confidence in guesses if confidence >= 0.8)
    return {"items": len(unknown), "abstention": abstained, "taken_for_at_0.8": dict(taken)}
