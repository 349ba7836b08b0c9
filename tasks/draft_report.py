"""What the evaluation of a trained draft leaves: acceptance by depth, expected and realised."""

from __future__ import annotations

from pydantic import Field

from db.cells import CellFigures
from db.schemas import Interval
from specdec_core.config.base import Record
from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from specdec_core.errors import ExportError


class DepthAgreement(Record):
    """Acceptance of the draft tokens of one depth in the steps that reached it."""

    depth: int = Field(ge=1)
    num_trials: int = Field(ge=0, description="steps that verified this depth on accepted tokens")
    expected: float = Field(description="mean chance under teacher forcing at just these steps")
    realised: float = Field(description="share that was accepted in the decode loop")
    standard_error: float = Field(ge=0.0, description="of `realised` if `expected` is right")
    is_checked: bool = Field(description="whether both must be equal, and there are enough trials")
    is_agreed: bool = Field(description="gap within tolerance and four standard errors")

    @property
    def gap(self) -> float:
        """Realised minus expected."""
        return self.realised - self.expected


class PromptAcceptance(Record):
    """One prompt decoded with the draft, first repeat."""

    item_id: str
    num_steps: int = Field(ge=0, description="verify steps")
    num_tokens: int = Field(ge=0, description="output tokens, the prefill's included")
    accepted: tuple[int, ...] = Field(description="draft tokens kept, by step; bonus left out")
    seconds: tuple[float, ...] = Field((), description="decode seconds, by repeat")
    baseline_seconds: tuple[float, ...] = Field((), description="the same of plain decoding")

    @property
    def accepted_per_step(self) -> float:
        """Mean draft tokens kept per step, bonus left out (AL0); 0 without steps."""
        return sum(self.accepted) / self.num_steps if self.num_steps else 0.0


class DraftCell(Record):
    """One draft, domain, temperature and shape."""

    domain: str = Field(description="domain, or domain@suite where the suite was named")
    shape: DraftedShape
    temperature: float
    drafter: str = Field(description="canonical drafter text")
    run_id: str = Field(description="benchmark run that measured it")
    evaluation_key: str
    error: str | None = Field(None, description="type and message, when it failed")
    is_lossless: bool = True
    figures: CellFigures | None = Field(None, description="pooled; None when it failed")
    accepted_per_step: float | None = Field(None, description="AL0: bonus left out, pooled")
    depths: tuple[DepthAgreement, ...] = ()
    expected_anywhere: float | None = Field(
        None,
        description="expected accepted tokens of windows that begin at every output token, not at "
        "the beginnings of steps: what validation in training reports",
    )
    samples: tuple[PromptAcceptance, ...] = ()

    @property
    def mean_accepted_tokens(self) -> float | None:
        """Accepted tokens and the bonus per step (MAT)."""
        return None if self.accepted_per_step is None else self.accepted_per_step + 1.0

    @property
    def speedup(self) -> Interval | None:
        """Paired speedup over autoregressive decoding."""
        return self.figures.speedup if self.figures is not None else None

    @property
    def failing_depths(self) -> tuple[DepthAgreement, ...]:
        """Depths whose gap is beyond the tolerance."""
        return tuple(depth for depth in self.depths if depth.is_checked and not depth.is_agreed)


class DraftEvaluation(Record):
    """The real decode loop's verdict on one draft."""

    draft: str = Field(description="model reference or folder of what decoded")
    draft_identity: str
    reference_identity: str = Field(description="of what the expectation is from")
    target: str
    target_identity: str
    config: DraftEvaluationConfig
    cells: tuple[DraftCell, ...]
    template_hash: str | None = Field(None, description="of the templates of the training texts")
    served_template_hash: str = Field("", description="of those that serve these domains now")
    run_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed_cells(self) -> tuple[DraftCell, ...]:
        """Cells that could not be measured."""
        return tuple(cell for cell in self.cells if cell.error is not None)

    @property
    def is_agreed(self) -> bool:
        """Whether expected and realised acceptance agree wherever they must."""
        return not any(cell.failing_depths for cell in self.cells)

    @property
    def failures(self) -> tuple[str, ...]:
        """One line per gap beyond the tolerance."""
        return tuple(
            f"{cell.domain}, {cell.shape}, temperature {cell.temperature:g}, depth {depth.depth}: "
            f"expected {depth.expected:.3f}, realised {depth.realised:.3f} in "
            f"{depth.num_trials} steps"
            for cell in self.cells
            for depth in cell.failing_depths
        )

    def require_agreement(self) -> None:
        """Check that the draft does in decoding what it does in training.

        Raises:
            ExportError: if a gap is beyond the tolerance; names them.
        """
        if not self.is_agreed:
            shown = "; ".join(self.failures[:5])
            raise ExportError(
                f"draft {self.draft} accepts otherwise in decoding than under teacher forcing, so "
                f"its files, masks or positions are not those of its training: {shown}"
            )
