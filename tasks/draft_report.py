"""What the evaluation of a trained draft leaves: acceptance by depth, expected and realised."""

from __future__ import annotations

from collections import defaultdict

from pydantic import Field

from db.cells import CellFigures
from db.schemas import Interval
from specdec_core.bench.depths import DepthCounts, add_depths
from specdec_core.config.base import Record
from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from specdec_core.errors import ExportError

# A realised rate further than this from a right expectation is one in fifteen thousand.
_STANDARD_ERRORS = 4.0


class DepthAgreement(Record):
    """Acceptance of the draft tokens of one depth in the steps that reached it."""

    depth: int = Field(ge=1)
    num_trials: int = Field(ge=0, description="steps that verified this depth on accepted tokens")
    expected: float = Field(description="mean chance under teacher forcing at just these steps")
    realised: float = Field(description="share that was accepted in the decode loop")
    standard_error: float = Field(ge=0.0, description="of `realised` if `expected` is right")
    is_exact: bool = Field(
        False, description="whether the training pass computes here what decoding does"
    )
    is_checked: bool = Field(description="whether it is exact, and there are enough trials")
    is_agreed: bool = Field(description="gap within tolerance and four standard errors")

    @classmethod
    def of(
        cls, depth: int, counts: DepthCounts, *, is_exact: bool, config: DraftEvaluationConfig
    ) -> DepthAgreement:
        """Compare the trials of one depth with their chances."""
        gap = abs(counts.realised_rate - counts.expected_rate)
        return cls(
            depth=depth,
            num_trials=counts.num_trials,
            expected=counts.expected_rate,
            realised=counts.realised_rate,
            standard_error=counts.standard_error,
            is_exact=is_exact,
            is_checked=is_exact and counts.num_trials >= config.min_trials,
            is_agreed=gap <= config.tolerance + _STANDARD_ERRORS * counts.standard_error,
        )

    @property
    def counts(self) -> DepthCounts:
        """Its trials as sums, which those of other domains can be added to."""
        num = self.num_trials
        return DepthCounts(
            num, round(num * self.realised), num * self.expected, (num * self.standard_error) ** 2
        )

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

    @property
    def agreement(self) -> str:
        """Whether it does in decoding what training expects: `yes`, `no` or `not compared`."""
        if not any(depth.is_checked for depth in self.depths):
            return "not compared"
        return "no" if self.failing_depths else "yes"


class SettingAgreement(Record):
    """Acceptance by depth of one shape and temperature, the trials of all domains together."""

    shape: DraftedShape
    temperature: float
    num_domains: int
    depths: tuple[DepthAgreement, ...]

    @property
    def name(self) -> str:
        """The setting in words."""
        return f"{self.shape}, temperature {self.temperature:g}"

    @property
    def is_checked(self) -> bool:
        """Whether its first depth, which every step with a draft tries, was compared."""
        return bool(self.depths) and self.depths[0].is_checked


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
    def settings(self) -> tuple[SettingAgreement, ...]:
        """Shapes and temperatures, the trials of all domains added up depth by depth."""
        found: dict[tuple[DraftedShape, float], list[DraftCell]] = defaultdict(list)
        for cell in self.cells:
            found[cell.shape, cell.temperature].append(cell)
        return tuple(
            SettingAgreement(
                shape=shape,
                temperature=temperature,
                num_domains=len(cells),
                depths=self._pooled(cells),
            )
            for (shape, temperature), cells in found.items()
        )

    def _pooled(self, cells: list[DraftCell]) -> tuple[DepthAgreement, ...]:
        known = [depth for cell in cells for depth in cell.depths]
        # Evaluations that were stored earlier say only what was checked.
        exact = {each.depth for each in known if each.is_exact or each.is_checked}
        sums = add_depths([depth.counts for depth in cell.depths] for cell in cells)
        return tuple(
            DepthAgreement.of(depth, counts, is_exact=depth in exact, config=self.config)
            for depth, counts in enumerate(sums, start=1)
        )

    @property
    def is_agreed(self) -> bool:
        """Whether expected and realised acceptance agree wherever they must."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """One line per gap beyond the tolerance, of single domains and of all together."""
        single = [
            (f"{cell.domain}, {cell.shape}, temperature {cell.temperature:g}", depth)
            for cell in self.cells
            for depth in cell.failing_depths
        ]
        pooled = [
            (f"all domains, {setting.name}", depth)
            for setting in self.settings
            for depth in setting.depths
            if setting.num_domains > 1 and depth.is_checked and not depth.is_agreed
        ]
        return tuple(
            f"{where}, depth {depth.depth}: expected {depth.expected:.3f}, realised "
            f"{depth.realised:.3f} in {depth.num_trials} steps"
            for where, depth in (*single, *pooled)
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
