"""The domain map of one target and drafter, from the active profiles of the store."""

from __future__ import annotations

from db.repositories.resolution import canonical_drafter
from db.schemas import SkipProfile
from db.store import Store
from db.version import package_version
from specdec_core.config.domain_map import DomainEntry, DomainMap
from specdec_core.errors import ConfigError, ProfileNotFoundError
from specdec_core.skip import SkipConfig, UnitKind


def domain_map(store: Store, target: str, drafter: str, dtype: str | None = None) -> DomainMap:
    """Return what the active profiles of a target and drafter say, one entry per domain.

    Args:
        store: The open store.
        target: Model reference or identity.
        drafter: Drafter in any spelling of its options.
        dtype: Floating point type of the target; may be left out where all profiles share one.

    Raises:
        ProfileNotFoundError: if no profile is active.
        ConfigError: for an unknown drafter, or profiles of several revisions or types.
    """
    drafter = canonical_drafter(drafter)
    active = store.profiles.list(target=target, drafter=drafter, status="active", limit=None)
    found = [profile for profile in active if dtype in (None, profile.dtype)]
    asked = f"target {target!r} with drafter {drafter!r}" + (f" in {dtype}" if dtype else "")
    if not found:
        raise ProfileNotFoundError(
            f"no profile of {asked} is active: `specdec profiles list --status active` shows what "
            "is, or search one (`specdec search --help`)"
        )
    first = found[0]
    kinds = sorted({(profile.target_identity, profile.dtype) for profile in found})
    if len(kinds) > 1:
        listed = "; ".join(f"identity {identity[:12]} in {kind}" for identity, kind in kinds)
        raise ConfigError(
            f"active profiles of {asked} are for several targets ({listed}), and a map is for one: "
            "give --dtype, or the whole identity as --target"
        )
    return DomainMap(
        model=first.target,
        model_identity=first.target_identity,
        dtype=first.dtype,
        drafter=drafter,
        num_layers=first.num_layers,
        created_by=f"specdec-lab {package_version()}",
        domains={
            profile.domain: _entry(store, profile)
            for profile in sorted(found, key=lambda profile: profile.domain)
        },
    )


def _entry(store: Store, profile: SkipProfile) -> DomainEntry:
    run = store.runs.get(profile.run_id)
    assert run is not None  # the database holds on to the runs of its profiles
    scores = profile.selection
    return DomainEntry(
        skip=tuple(
            unit.layer if unit.kind is UnitKind.BLOCK else str(unit)
            for unit in SkipConfig.parse(profile.skip).units
        ),
        A=scores.acceptance_length,
        M=scores.metric,
        A0=scores.dense_acceptance_length,
        M0=scores.dense_metric,
        metric_name=scores.metric_name,
        eps=(profile.tolerance_acceptance, profile.tolerance_metric),
        prefill=profile.prefill,
        sel_ids=tuple(run.summary.get("selection_ids", ())),
        status=profile.status,
    )
