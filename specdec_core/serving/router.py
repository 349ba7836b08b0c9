"""A light domain classifier trained on the packaged suites, which abstains where it is not sure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from specdec_core.config.domains import DOMAINS
from specdec_core.data.suites import load_suite
from specdec_core.data.templates import get_template
from specdec_core.serving.routing import Route

_MAX_CHARACTERS = 2000  # the beginning tells the domain; long prompts must not cost seconds


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt of a suite: as the suite writes it, and without its instruction."""

    domain: str
    texts: tuple[str, ...]


class DomainRouter:
    """Guesses domains by the character n-grams of a text.

    One calibrated yes-or-no classifier per domain: their probabilities need not sum to 1, so that a
    text of no known domain can be unlikely in all of them.

    Args:
        model: Fitted on the domains in their order.
        domains: Names of the classes.
        min_confidence: Least probability of the likeliest domain for an answer, in [0, 1].
    """

    def __init__(self, model: Pipeline, domains: Sequence[str], min_confidence: float) -> None:
        self._model, self._domains = model, tuple(domains)
        self._min_confidence = min_confidence

    def route(self, text: str) -> Route:
        """Return the likeliest domain, or none where its probability is too small."""
        domain, confidence = self.likeliest([text])[0]
        return Route(domain if confidence >= self._min_confidence else None, confidence)

    def likeliest(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return the likeliest domain of every text and its probability."""
        chances = self._model.predict_proba([text[:_MAX_CHARACTERS] for text in texts])
        best = chances.argmax(axis=1)
        return [
            (self._domains[index], float(row[index]))
            for index, row in zip(best, chances, strict=True)
        ]


def packaged_examples() -> list[Example]:
    """Return the prompts of the packaged suites."""
    return [
        Example(domain, _variants(item.prompt, domain))
        for domain in DOMAINS
        for item in load_suite(domain, "builtin").items
    ]


def train_router(
    examples: Sequence[Example] | None = None, *, min_confidence: float
) -> DomainRouter:
    """Return a router fitted on examples, those of the packaged suites by default.

    Args:
        examples: At least 5 of every domain.
        min_confidence: Least probability for an answer, in [0, 1].
    """
    examples = packaged_examples() if examples is None else examples
    domains = tuple(dict.fromkeys(example.domain for example in examples))
    rows = [(example.domain, text) for example in examples for text in example.texts]
    wanted = np.array([[domain == one for one in domains] for domain, _ in rows], dtype=int)
    model = make_pipeline(*_stages())
    model.fit([text[:_MAX_CHARACTERS] for _, text in rows], wanted)
    return DomainRouter(model, domains, min_confidence)


def _stages() -> list[Any]:
    features = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True, min_df=2)
    # A matrix of classes keeps each classifier's own probability; labels would be normalised.
    classifier = CalibratedClassifierCV(
        LinearSVC(class_weight="balanced", random_state=0), cv=5, ensemble=False
    )
    return [features, OneVsRestClassifier(classifier)]


def _variants(prompt: str, domain: str) -> tuple[str, ...]:
    match = re.fullmatch(get_template(domain, "chat").pattern, prompt, re.DOTALL)
    parts = match.groupdict("") if match else {"text": prompt}
    bare = "\n".join(filter(None, (parts.get("context"), parts["text"])))
    return (prompt,) if bare == prompt else (prompt, bare)
