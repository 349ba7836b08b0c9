"""Which units a search may skip, how much it can cost, and the identity of the space."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from specdec_core.config.layers import parse_layers
from specdec_core.config.search import UnitChoice
from specdec_core.errors import ConfigError
from specdec_core.search.outcome import half_count
from specdec_core.skip import SkipConfig, SkipUnit, UnitKind

KINDS: dict[UnitChoice, tuple[UnitKind, ...]] = {
    "block": (UnitKind.BLOCK,),
    "attention": (UnitKind.ATTENTION,),
    "mlp": (UnitKind.MLP,),
    "halves": (UnitKind.ATTENTION, UnitKind.MLP),
    "all": (UnitKind.BLOCK, UnitKind.ATTENTION, UnitKind.MLP),
}


def candidates(
    units: UnitChoice,
    num_layers: int,
    protect_ends: bool,
    *,
    only: str = "",
    protected: str = "",
) -> tuple[SkipUnit, ...]:
    """Return every unit the search may skip, by layer, then block, attention, MLP.

    What is protected is never skipped, whatever else names it.

    Args:
        units: Which parts of a layer may be skipped.
        num_layers: Transformer layers of the target, numbered from 0.
        protect_ends: Whether the first and the last layer are left alone.
        only: Layers that may be skipped, such as ``1-10,14``; empty for all.
        protected: Layers that may not, in the same form.

    Raises:
        ConfigError: if a layer does not exist, or nothing is left to skip.

    Source: TSS (whole blocks; no reported set holds the first or last layer). Halves of a layer
    are an extension of ours.
    """
    chosen = _existing("candidates", only, num_layers) or frozenset(range(num_layers))
    kept = _existing("protected", protected, num_layers)
    if protect_ends:
        kept |= {0, num_layers - 1}
    layers = sorted(chosen - kept)
    found = tuple(SkipUnit(layer, kind) for layer in layers for kind in KINDS[units])
    if not found or num_layers < 2:
        raise ConfigError(
            f"a target of {num_layers} layers leaves nothing to skip with units={units!r}, "
            f"candidates={only or 'all'}, protected={protected or 'none'}, "
            f"protect_ends={protect_ends}: name other layers, pass protect_ends=false or use a "
            "deeper target"
        )
    return found


def _existing(what: str, text: str, num_layers: int) -> frozenset[int]:
    """Return the layers that `text` names, all of which the target must have."""
    layers = parse_layers(text)
    beyond = sorted(layer for layer in layers if layer >= num_layers)
    if beyond:
        raise ConfigError(
            f"{what}={text} names layers {', '.join(map(str, beyond))}, but the target has "
            f"{num_layers}, numbered 0 to {num_layers - 1}: name some of these"
        )
    return layers


def check_candidates(units: Sequence[SkipUnit]) -> tuple[SkipUnit, ...]:
    """Return the units of a search in the order of the model.

    Raises:
        ConfigError: if there are none, or one repeats.
    """
    if not units or len(set(units)) != len(units):
        raise ConfigError(
            f"candidates {[str(unit) for unit in units]} must name at least one unit, and each once"
        )
    return tuple(sorted(units, key=lambda unit: unit.sort_key))


def leaves_something(skip: SkipConfig, units: Sequence[SkipUnit]) -> bool:
    """True if something is left of the layers up to the last one that may be skipped."""
    return half_count(skip) < 2 * (1 + max(unit.layer for unit in units))


def evaluation_bound(num_candidates: int, beam: int, depth: int) -> int:
    """Most configurations a breadth search can evaluate, the dense target not counted.

    Level 1 holds every candidate. A level after it holds at most one new set per expanded set
    and unit that is not yet in it; on level 2 every pair of expanded single units yields one
    set twice, which is counted once.

    Args:
        num_candidates: Units that may be skipped.
        beam: Sets expanded per level.
        depth: Most units skipped.
    """
    total = num_candidates
    for level in range(2, min(depth, num_candidates) + 1):
        expanded = min(beam, num_candidates)
        repeated = expanded * (expanded - 1) // 2 if level == 2 else 0
        total += expanded * (num_candidates - level + 1) - repeated
    return total


def space_hash(units: Sequence[SkipUnit]) -> str:
    """Hex SHA-256 of the candidate units; another space must not continue the same study."""
    text = ",".join(str(unit) for unit in sorted(units, key=lambda unit: unit.sort_key))
    return hashlib.sha256(text.encode()).hexdigest()
