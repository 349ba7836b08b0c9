"""What training expects of a draft at just the places where decoding tried it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from specdec_core.bench.depths import (
    DepthCounts,
    add_depths,
    count_depths,
    expected_anywhere,
)
from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.data.templates import get_template, render_prompts
from specdec_core.models.reference import ResolvedModel
from specdec_core.records import SampleResult
from specdec_core.training.draft import DraftOutput
from specdec_core.training.expected import AcceptanceRule, acceptance_chances, one_sequence
from specdec_core.training.reference import DraftForm, ReferenceDraft, load_reference
from specdec_core.training.target import FrozenTarget
from tasks.draft_report import DepthAgreement
from tasks.prepare import Workload


def drafter_of(
    kind: DraftForm, folder: Path, shape: DraftedShape, config: DraftEvaluationConfig
) -> str:
    """Return the text of the drafter that a draft is evaluated as.

    Chains are drawn and verified by rejection; trees hold the likeliest tokens, which are verified
    as point masses: both leave the target's law as it is.
    """
    branching = "/".join(map(str, config.branching))
    tree = f"branching={branching},num_nodes={config.num_nodes}"
    if kind == "model":
        reference = f"model=path:{folder}"
        if shape == "chain":
            return f"draft-model:{reference},gamma={config.gamma}"
        return f"draft-tree:{reference},{tree}"
    if shape == "chain":
        return f"{kind}:model={folder},shape=chain,gamma={config.gamma},draft=sample"
    return f"{kind}:model={folder},shape=static,{tree}"


def rule_of(
    drafter: DrafterConfig, shape: DraftedShape, temperature: float, config: DraftEvaluationConfig
) -> AcceptanceRule:
    """Return how a drafter's tokens are made and verified.

    A tree is counted before it is pruned to its number of nodes, which takes away its least likely
    ones; 8 of 136 in the published shape.
    """
    children = (1,) * config.gamma if shape == "chain" else config.branching
    return AcceptanceRule(temperature, children, is_drawn=drafter.draws_candidates)


@dataclass(slots=True)
class Expectation:
    """Target and reference draft in memory, asked about outputs one after the other."""

    config: DraftEvaluationConfig
    target: FrozenTarget
    draft: ReferenceDraft
    _prompts: dict[tuple[str, tuple[str, ...]], dict[str, tuple[int, ...]]] = field(
        default_factory=dict
    )

    @classmethod
    def load(
        cls,
        config: DraftEvaluationConfig,
        target: ResolvedModel,
        folder: Path,
        *,
        dtype: str,
        device: str,
        settings: Settings,
    ) -> Expectation:
        """Load both.

        Raises:
            ConfigError: if one cannot be loaded.
        """
        depths = max(config.gamma, len(config.branching))
        draft = load_reference(folder, target, num_steps=depths, device=device)
        frozen = FrozenTarget.load(target, dtype=dtype, device=device, settings=settings)
        return cls(config, frozen, draft)

    def compare(
        self,
        workload: Workload,
        request: EvaluationRequest,
        shape: DraftedShape,
        samples: Sequence[SampleResult],
    ) -> tuple[tuple[DepthAgreement, ...], float | None]:
        """Return the agreement by depth, and the accepted tokens expected of windows anywhere.

        The latter is None where no output is as long as a window.

        Args:
            workload: Suite of the prompts.
            request: What was decoded.
            shape: Of the draft.
            samples: What came of it.
        """
        drafter, sampling = request.drafter, request.sampling
        temperature = 0.0 if sampling.is_greedy else sampling.temperature
        rule = rule_of(drafter, shape, temperature, self.config)
        prompts = self._prompts_of(workload, request)
        counts: list[tuple[DepthCounts, ...]] = []
        total, num_windows = 0.0, 0
        for sample in samples:
            prompt = prompts[sample.item_id]
            chances = self._chances(prompt, sample.token_ids, rule)
            counts.append(count_depths(sample.trace, chances))
            windows = expected_anywhere(chances, self._window(rule))
            total, num_windows = total + windows[0], num_windows + windows[1]
        exact = self.draft.exact_depths
        found = tuple(
            DepthAgreement.of(
                depth, each, is_exact=exact is None or depth <= exact, config=self.config
            )
            for depth, each in enumerate(add_depths(counts), start=1)
        )
        return found, total / num_windows if num_windows else None

    def _window(self, rule: AcceptanceRule) -> int:
        """Return how many tokens of one path are proposed at most."""
        most = self.draft.most_drafted
        return len(rule.children) if most is None else min(len(rule.children), most)

    def _chances(
        self, prompt: Sequence[int], token_ids: Sequence[int], rule: AcceptanceRule
    ) -> list[list[float]]:
        sequence = [*prompt, *token_ids]
        taps = self.draft.taps
        ((hidden, tapped),) = self.target.states([sequence], taps)
        batch = one_sequence(sequence, len(prompt), hidden, tapped if taps else None)
        with torch.inference_mode():
            output: DraftOutput = self.draft.forward(batch)
        return acceptance_chances(output, batch, self.target.head, len(prompt), rule)

    def _prompts_of(
        self, workload: Workload, request: EvaluationRequest
    ) -> dict[str, tuple[int, ...]]:
        """Return the token ids of a request's prompts by item, rendered once."""
        key = request.suite_hash, request.item_ids
        if key not in self._prompts:
            template = get_template(workload.suite.domain, workload.target.kind)
            items = workload.suite.select(request.item_ids)
            rendered = render_prompts(items, template, self.target.target.tokenizer)
            self._prompts[key] = dict(zip(request.item_ids, rendered.ids, strict=True))
        return self._prompts[key]
