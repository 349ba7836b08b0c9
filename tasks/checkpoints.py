"""Sparse checkpoints made from a skip set or a stored profile."""

from __future__ import annotations

import logging
from pathlib import Path

from db.repositories.profile_moves import unknown_profile
from db.schemas import METRIC_TITLES, Interval, SkipProfile
from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.export.card import CardFigure
from specdec_core.export.checkpoint import ExportedCheckpoint, export_checkpoint
from specdec_core.models.reference import resolve_model
from specdec_core.skip import SkipConfig

logger = logging.getLogger(__name__)


def export_skip(target: str, skip: str, folder: Path, settings: Settings) -> ExportedCheckpoint:
    """Write `target` without `skip` as a checkpoint; see `export_checkpoint` for what it raises."""
    model = resolve_model(target, settings.cache_dir, logger.info)
    return export_checkpoint(model, SkipConfig.parse(skip), folder)


def export_profile(profile_id: int, folder: Path, settings: Settings) -> ExportedCheckpoint:
    """Write the sparse target of a stored profile as a checkpoint, its figures in the model card.

    Raises:
        ProfileNotFoundError: if the profile is not stored.
        ConfigError: if the target's files are not those of the profile, or it skips nothing.
        ExportError: if what was written computes something else.
    """
    with Store.open(settings.resolved_database_url) as store:
        profile = store.profiles.get(profile_id)
    if profile is None:
        raise unknown_profile(profile_id)
    if profile.prefill == "dense":
        raise ConfigError(
            f"profile {profile_id} was measured with dense prefill, and a checkpoint without the "
            "skipped parts cannot read prompts with them: serve it with `specdec serve`, or search "
            "with prefill=sparse"
        )
    model = resolve_model(profile.target, settings.cache_dir, logger.info)
    if model.identity != profile.target_identity:
        raise ConfigError(
            f"profile {profile_id} is for files {profile.target_identity[:12]}.., but "
            f"{profile.target} has {model.identity[:12]}.. here: get the revision it was made for"
        )
    return export_checkpoint(
        model,
        SkipConfig.parse(profile.skip),
        folder,
        figures=card_figures(profile),
        notes=_notes(profile),
    )


def card_figures(profile: SkipProfile) -> list[CardFigure]:
    """Return the held-out figures of a profile for a model card; empty without a comparison."""
    held = profile.heldout
    if held is None:
        return []
    figures = [
        CardFigure(
            "acceptance length, tokens per step",
            f"{held.acceptance_dense:.3f}",
            f"{held.acceptance_sparse:.3f}",
            _percent(held.acceptance_change),
        )
    ]
    if held.metric_dense is not None and held.metric_sparse is not None:
        change = held.metric_change
        is_ratio = held.metric_change_kind == "relative"
        shown = "-" if change is None else _percent(change) if is_ratio else _plain(change)
        figures.append(
            CardFigure(
                METRIC_TITLES[held.metric_name],
                f"{held.metric_dense:.4f}",
                f"{held.metric_sparse:.4f}",
                shown,
            )
        )
    figures.append(
        CardFigure(
            "tokens per second",
            f"{held.tokens_per_s_dense:.1f}",
            f"{held.tokens_per_s_sparse:.1f}",
            f"x{held.speedup.estimate:.3f} [{held.speedup.low:.3f}, {held.speedup.high:.3f}]",
        )
    )
    return figures


def _notes(profile: SkipProfile) -> list[str]:
    held = profile.heldout
    notes = [
        f"Profile {profile.id}, {profile.status}: {profile.reason.rstrip('.')}.",
        f"Domain {profile.domain}, drafter `{profile.drafter}`, {profile.dtype}; in other domains "
        "the model has not been measured.",
    ]
    if held is not None:
        hardware = f", on {profile.hardware}" if profile.hardware else ""
        notes.append(
            f"Measured on {held.num_items} held-out items{hardware}, by the engine that leaves "
            f"skipped parts out; intervals are {held.speedup.confidence:.0%}."
        )
    return ["\n".join(notes)]


def _percent(change: Interval) -> str:
    return f"{change.estimate:+.1%} [{change.low:+.1%}, {change.high:+.1%}]"


def _plain(change: Interval) -> str:
    return f"{change.estimate:+.4f} [{change.low:+.4f}, {change.high:+.4f}]"
