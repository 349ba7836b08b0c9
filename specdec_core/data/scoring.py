"""Task metrics of one answer, each in [0, 1], higher is better."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from specdec_core.data.execution import passes
from specdec_core.data.extraction import LETTER, NUMBER
from specdec_core.data.reading import near_matches
from specdec_core.data.records import SuiteItem
from specdec_core.errors import DataError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(metric: str | None, answer: str, item: SuiteItem) -> float | None:
    """Return the score of `answer` in [0, 1], or None where `metric` is None.

    Args:
        metric: ``bleu`` sentence sacreBLEU / 100 with all references; ``rougeL`` and ``f1`` best
            over the references; ``accuracy`` first letter A to D that stands alone;
            ``exact_match`` last number; ``pass@1`` the item's tests, run in a child process.
        answer: Extracted answer, or whole generated text for the raw score.
        item: The question, with references and what the metric needs.

    Raises:
        DataError: if the metric is unknown, or the item has no reference for it.
    """
    if metric is None:
        return None
    if metric not in _SCORERS:
        raise DataError(
            f"metric {metric!r} is unknown{near_matches(metric, _SCORERS)}: use one of "
            f"{', '.join(_SCORERS)}"
        )
    if metric in _NEEDS_REFERENCE and not item.alternatives:
        raise DataError(f"item {item.id!r} has no reference for metric {metric!r}: leave it out")
    return _SCORERS[metric](answer, item)


def sentence_bleu(answer: str, references: Sequence[str]) -> float:
    """Sentence BLEU in [0, 1]: tokenizer 13a, exponential smoothing, effective order.

    Source: Post 2018 (sacreBLEU); smoothing of Chen and Cherry 2014 as implemented there.
    """
    return float(_bleu().sentence_score(answer, list(references)).score) / 100


def rouge_l(answer: str, references: Sequence[str]) -> float:
    """ROUGE-L F-measure in [0, 1] over the whole text, no stemming, best reference.

    Source: Lin 2004.
    """
    scorer = _rouge()
    return max(float(scorer.score(text, answer)["rougeL"].fmeasure) for text in references)


def token_f1(answer: str, references: Sequence[str]) -> float:
    """F1 of the multisets of normalised words in [0, 1], best reference; both empty gives 1.

    Source: Rajpurkar et al. 2016 (SQuAD evaluation).
    """
    return max(_token_f1(answer, text) for text in references)


def _token_f1(answer: str, reference: str) -> float:
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return float(given == wanted)
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def _words(text: str) -> list[str]:
    """Words in lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _accuracy(answer: str, item: SuiteItem) -> float:
    letter = LETTER.search(answer)
    return float(letter is not None and letter[0] in item.alternatives)


def _exact_match(answer: str, item: SuiteItem) -> float:
    numbers = NUMBER.findall(answer)
    return float(bool(numbers) and _decimal(numbers[-1]) == _decimal(item.meta["final_answer"]))


def _decimal(value: object) -> Decimal:
    return Decimal(str(value).replace(",", ""))


def _pass_at_1(answer: str, item: SuiteItem) -> float:
    return float(passes(pass_program(answer, item.prompt, item.meta)))


def pass_program(answer: str, prompt: str, meta: Mapping[str, Any]) -> str:
    """Return the program that passes if `answer` solves the task.

    With ``tests`` in `meta` the answer continues the prompt, and they define a ``check`` of
    ``entry_point``; otherwise the answer stands alone and is followed by ``test_list``.
    """
    if "tests" in meta:
        return f"{prompt}{answer}\n{meta['tests']}\ncheck({meta['entry_point']})\n"
    return "\n".join([answer, meta.get("test_setup_code", ""), *meta["test_list"], ""])


@cache
def _bleu() -> Any:
    from sacrebleu.metrics.bleu import BLEU  # slow to import

    return BLEU(tokenize="13a", smooth_method="exp", effective_order=True)


@cache
def _rouge() -> Any:
    from rouge_score import rouge_scorer  # takes seconds to import

    return rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)


_SCORERS: Mapping[str, Callable[[str, SuiteItem], float]] = {
    "bleu": lambda answer, item: sentence_bleu(answer, item.alternatives),
    "rougeL": lambda answer, item: rouge_l(answer, item.alternatives),
    "f1": lambda answer, item: token_f1(answer, item.alternatives),
    "accuracy": _accuracy,
    "exact_match": _exact_match,
    "pass@1": _pass_at_1,
}
_NEEDS_REFERENCE = frozenset({"bleu", "rougeL", "f1", "accuracy"})
