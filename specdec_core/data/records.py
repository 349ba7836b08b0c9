"""What a suite is once it has been read: items, domains, metrics and the content hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from specdec_core.errors import DataError
from specdec_core.hashing import json_hash

DOMAINS = ("translation", "summarization", "qa", "rag", "mmlu", "math", "code", "chat")
METRICS = ("bleu", "rougeL", "f1", "accuracy", "exact_match", "pass@1")

# Names that public sets give to a domain of ours.
DOMAIN_ALIASES = {
    "mt_bench": "chat",
    "math_reasoning": "math",
    "long_form": "chat",
    "stem_qa": "mmlu",
}


@dataclass(frozen=True, slots=True)
class SuiteItem:
    """One prompt with what its answer is compared with.

    `turns` are the user turns of one conversation; only the first one is asked. `references`
    holds the alternative answers of a single turn, or one text per turn where there are more
    ("" for none). `metric` is one of METRICS, or None where the item is timed but not scored.
    """

    id: str
    domain: str
    turns: tuple[str, ...]
    references: tuple[str, ...] = ()
    metric: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The first user turn, the only one that is asked."""
        return self.turns[0]

    @property
    def alternatives(self) -> tuple[str, ...]:
        """Accepted answers to the first turn, in the order of the file."""
        if len(self.turns) == 1:
            return self.references
        return tuple(text for text in self.references[:1] if text)


@dataclass(frozen=True)
class Suite:
    """A named set of items of one domain, with the hash of their content.

    `source` is text that `load_suite` reads back as the same items: a path, a hub name or
    ``builtin``. It takes no part in `content_hash`.
    """

    name: str
    domain: str
    items: tuple[SuiteItem, ...]
    source: str
    content_hash: str

    @classmethod
    def of(cls, name: str, domain: str, items: Iterable[SuiteItem], source: str) -> Suite:
        """Return the suite of `items` in their order.

        Raises:
            DataError: if there are no items, two have the same id, or their metrics differ.
        """
        kept = tuple(items)
        if not kept:
            raise DataError(f"suite {source!r} has no items: give a file with one item a line")
        repeated = [item_id for item_id, num in Counter(i.id for i in kept).items() if num > 1]
        if repeated:
            raise DataError(f"suite {source!r} has two items {repeated[0]!r}: ids must be unique")
        metrics = sorted({item.metric for item in kept if item.metric is not None})
        if len(metrics) > 1:
            raise DataError(
                f"suite {source!r} mixes the metrics {', '.join(metrics)}: their mean has no "
                "meaning, so give one file per metric"
            )
        return cls(name, domain, kept, source, content_hash(kept))

    @property
    def metric(self) -> str | None:
        """The metric of the scored items; None if no item is scored."""
        return next((item.metric for item in self.items if item.metric is not None), None)

    @property
    def scored_items(self) -> tuple[SuiteItem, ...]:
        """The items that have a metric, in the order of the file."""
        return tuple(item for item in self.items if item.metric is not None)

    @property
    def categories(self) -> tuple[str, ...]:
        """Values of the items' `meta.category`, in the order of the file; may be empty."""
        found = (item.meta.get("category") for item in self.items)
        return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))

    def of_category(self, category: str) -> Suite:
        """Return the suite of the items with this `meta.category`.

        Raises:
            DataError: if no item has it; lists those that there are.
        """
        kept = [item for item in self.items if item.meta.get("category") == category]
        if not kept:
            known = ", ".join(self.categories) or "none"
            raise DataError(
                f"suite {self.name!r} has no items of category {category!r}: it has {known}"
            )
        return Suite.of(f"{self.name}#{category}", self.domain, kept, f"{self.source}#{category}")

    def select(self, ids: Iterable[str]) -> tuple[SuiteItem, ...]:
        """Return the items with these ids, in the order asked for.

        Raises:
            DataError: if an id is not in the suite.
        """
        wanted = tuple(ids)
        missing = [item_id for item_id in wanted if item_id not in self._by_id]
        if missing:
            raise DataError(
                f"suite {self.name!r} has no item {missing[0]!r} ({len(missing)} of {len(wanted)} "
                "asked for are missing): the ids belong to another suite or to another version of "
                "this one"
            )
        return tuple(self._by_id[item_id] for item_id in wanted)

    @cached_property
    def _by_id(self) -> dict[str, SuiteItem]:
        return {item.id: item for item in self.items}


def content_hash(items: Iterable[SuiteItem]) -> str:
    """Hex SHA-256 over the items as canonical JSON, sorted by id; paths take no part in it."""
    return json_hash([asdict(item) for item in sorted(items, key=lambda item: item.id)])
