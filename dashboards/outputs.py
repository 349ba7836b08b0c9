"""One output of a benchmark token by token: which part of a step wrote it, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from dashboards.leaderboard import load_leaderboard
from dashboards.queries import Question
from dashboards.views import Cell, Table, named_columns, number_cell, text_cell
from db.api.problems import ProblemError
from db.cells import BenchmarkCell
from db.schemas import RunRecord
from db.store import Store
from specdec_core.records import SampleResult, TokenOrigin

DEEPEST_SHADE = 5
"""Drafted tokens this deep and deeper share a shade; their mark tells the depth."""


@dataclass(frozen=True, slots=True)
class Token:
    """One output token.

    Attributes:
        position: 0-based in the output.
        token_id: Its id.
        text: What it adds to the text; None where that is not stored.
        origin: The prefill, the depth of the draft, or the target's own token.
        step: 1-based verify step that wrote it, 0 for the prefill.
        step_ms: Milliseconds of that step; None where unknown.
    """

    position: int
    token_id: int
    text: str | None
    origin: TokenOrigin
    step: int
    step_ms: float | None

    @property
    def mark(self) -> str:
        """The origin as one short sign, for those who do not see its colour."""
        return {"prefill": "P", "bonus": "B"}.get(str(self.origin), str(self.origin))

    @property
    def shade(self) -> str:
        """The class that colours it."""
        if isinstance(self.origin, int):
            return f"draft-{min(self.origin, DEEPEST_SHADE)}"
        return self.origin

    @property
    def words(self) -> str:
        """The origin in words."""
        if isinstance(self.origin, int):
            return f"draft, depth {self.origin}"
        return {"prefill": "prefill", "bonus": "target's own token"}[self.origin]


@dataclass(frozen=True, slots=True)
class Output:
    """One stored output of a benchmark cell, and what else can be chosen.

    Attributes:
        run: The benchmark.
        cells: Its cells that have outputs.
        cell: The one shown; None where there is none.
        sample: The output; None where the cell has none.
        tokens: Its tokens in order.
    """

    run: RunRecord
    cells: tuple[BenchmarkCell, ...]
    cell: BenchmarkCell | None = None
    sample: SampleResult | None = None
    tokens: tuple[Token, ...] = ()


def load_output(store: Store, question: Question) -> Output | None:
    """Return the output asked for, by default the first one of the newest benchmark.

    Raises:
        ProblemError: 404 if the run, the cell or the item asked for is not stored.
        StoreError: if the database cannot be read.
    """
    board = load_leaderboard(store, question.run)
    if board is None:
        return None
    cells = tuple(cell for cell in board.cells if cell.status == "done" and cell.evaluation_key)
    matching = (
        cell
        for cell in cells
        if question.domain in (None, cell.domain) and question.drafter in (None, cell.drafter)
    )
    cell = next(matching, None)
    if cell is None:
        if question.domain or question.drafter:
            asked = f"{question.domain or 'any domain'}, {question.drafter or 'any drafter'}"
            raise _missing("cell", f"run {board.run.id!r} has no measured cell of {asked}")
        return Output(board.run, cells)
    item_id = question.item or next((each.item_id for each in cell.samples), None)
    sample = store.evaluations.sample(cell.evaluation_key or "", item_id) if item_id else None
    if sample is None:
        if question.item:
            where = f"{cell.domain}, {cell.drafter}, of run {board.run.id!r}"
            raise _missing("item", f"{where} has no stored output for item {question.item!r}")
        return Output(board.run, cells, cell)
    return Output(board.run, cells, cell, sample, tuple(tokens_of(sample)))


def tokens_of(sample: SampleResult) -> Iterator[Token]:
    """Yield the tokens of an output with their origin."""
    steps = [0]
    for number, committed in enumerate(sample.trace.committed, start=1):
        steps += [number] * committed
    starts = (0, *sample.token_ends)
    for position, (token_id, origin, step) in enumerate(
        zip(sample.token_ids, sample.trace.origins(), steps, strict=True)
    ):
        text = None
        if sample.token_ends:
            text = sample.text[starts[position] : starts[position + 1]]
        seconds = sample.step_seconds[step - 1] if step and sample.step_seconds else None
        step_ms = None if seconds is None else 1000 * seconds
        yield Token(position, token_id, text, origin, step, step_ms)


def tokens_table(output: Output) -> Table:
    """Every token of the output with its origin in words."""
    titles = {
        "position": "position",
        "token_id": "token",
        "text": "text",
        "origin": "origin",
        "step": "verify step",
        "step_ms": "ms of the step",
    }
    rows = tuple(
        (
            Cell(token.position, str(token.position), is_number=True),
            Cell(token.token_id, str(token.token_id), is_number=True),
            text_cell(None) if token.text is None else Cell(token.text, repr(token.text)),
            Cell(str(token.origin), token.words),
            Cell(token.step, str(token.step), is_number=True),
            number_cell(token.step_ms, 2),
        )
        for token in output.tokens
    )
    columns = named_columns(**titles)
    return Table("tokens", "Tokens of this output, in order", columns, rows)


def _missing(subject: str, detail: str) -> ProblemError:
    return ProblemError(HTTPStatus.NOT_FOUND, f"{subject}-not-found", detail)


LEGEND = (
    Token(0, 0, "the prefill", "prefill", 0, None),
    *(Token(0, 0, f"draft, depth {depth}", depth, 0, None) for depth in range(1, DEEPEST_SHADE)),
    Token(0, 0, f"draft, depth {DEEPEST_SHADE} or deeper", DEEPEST_SHADE, 0, None),
    Token(0, 0, "the target's own token", "bonus", 0, None),
)
"""One token per shade, its meaning as its text."""
