"""Which parts of the target a sparse view leaves out, as a canonical, comparable value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from specdec_core.errors import ConfigError

_UNIT = re.compile(r"(?P<kind>[am]?)(?P<layer>0|[1-9][0-9]*)")


class UnitKind(StrEnum):
    """What is left out of one transformer layer; the value is its prefix in canonical text."""

    BLOCK = ""
    ATTENTION = "a"
    MLP = "m"


_ORDER = {UnitKind.BLOCK: 0, UnitKind.ATTENTION: 1, UnitKind.MLP: 2}


@dataclass(frozen=True, slots=True)
class SkipUnit:
    """One skippable unit: a 0-based layer and which part of it."""

    layer: int
    kind: UnitKind = UnitKind.BLOCK

    def __str__(self) -> str:
        return f"{self.kind.value}{self.layer}"

    @property
    def sort_key(self) -> tuple[int, int]:
        """Order of units in canonical text: by layer, then block, attention, MLP."""
        return self.layer, _ORDER[self.kind]


@dataclass(frozen=True, slots=True)
class SkipConfig:
    """A set of units to skip; canonical, hashable, ordered by layer, then block, attention, MLP.

    The attention and MLP halves of one layer together are the whole block and are stored as
    such, so that one sparse model has one name. `SkipConfig()` is the dense target.

    Source: TSS (whole blocks); halves are ours.
    """

    units: tuple[SkipUnit, ...] = ()

    @classmethod
    def of(cls, units: Iterable[SkipUnit]) -> SkipConfig:
        """Return the canonical configuration of `units`, given in any order.

        Raises:
            ConfigError: if a unit occurs twice, or a block together with one of its halves.
        """
        given = list(units)
        unique = set(given)
        if len(unique) != len(given):
            raise ConfigError(f"skip units repeat in {_join(given)!r}: name each unit once")
        for layer in {unit.layer for unit in unique}:
            kinds = {unit.kind for unit in unique if unit.layer == layer}
            if UnitKind.BLOCK in kinds and len(kinds) > 1:
                raise ConfigError(
                    f"skip set {_join(given)!r} names block {layer} and one of its halves: "
                    f"keep {layer} alone, it already leaves out both"
                )
            if kinds == {UnitKind.ATTENTION, UnitKind.MLP}:
                unique -= {SkipUnit(layer, UnitKind.ATTENTION), SkipUnit(layer, UnitKind.MLP)}
                unique.add(SkipUnit(layer))
        return cls(tuple(sorted(unique, key=lambda unit: unit.sort_key)))

    @classmethod
    def parse(cls, text: str) -> SkipConfig:
        """Return the configuration written as `text`, such as ``3,m7,a12``; ``""`` is dense.

        Raises:
            ConfigError: if a part is not a layer number with an optional ``a`` or ``m`` before it.
        """
        parts = [part.strip() for part in text.split(",")] if text.strip() else []
        units = []
        for part in parts:
            match = _UNIT.fullmatch(part)
            if match is None:
                raise ConfigError(
                    f"skip unit {part!r} in {text!r} is not understood: write 0-based layers, "
                    "with 'a' before a layer for its attention half or 'm' for its MLP half, "
                    "such as '3,m7,a12'"
                )
            units.append(SkipUnit(int(match["layer"]), UnitKind(match["kind"])))
        return cls.of(units)

    def __str__(self) -> str:
        return _join(self.units)

    def __len__(self) -> int:
        return len(self.units)

    @property
    def label(self) -> str:
        """Text for people: the canonical text, or ``dense`` for the empty set."""
        return str(self) or "dense"

    @property
    def sort_key(self) -> tuple[tuple[int, int], ...]:
        """Total order used for tie-breaks: lexicographic over the sorted units."""
        return tuple(unit.sort_key for unit in self.units)

    def plus(self, unit: SkipUnit) -> SkipConfig | None:
        """Return this set with `unit` added, or None where it is already left out by it.

        A block added where one of its halves is skipped replaces the half.
        """
        kinds = {mine.kind for mine in self.units if mine.layer == unit.layer}
        if unit.kind in kinds or UnitKind.BLOCK in kinds:
            return None
        if unit.kind is UnitKind.BLOCK:
            return SkipConfig.of([u for u in self.units if u.layer != unit.layer] + [unit])
        return SkipConfig.of([*self.units, unit])

    def union(self, other: SkipConfig) -> SkipConfig:
        """Return the set that leaves out what this one or `other` does."""
        both = self
        for unit in other.units:
            both = both.plus(unit) or both
        return both

    def skips_attention(self, layer: int) -> bool:
        """True if the attention half of `layer` is left out."""
        return bool({SkipUnit(layer), SkipUnit(layer, UnitKind.ATTENTION)} & set(self.units))

    def skips_mlp(self, layer: int) -> bool:
        """True if the MLP half of `layer` is left out."""
        return bool({SkipUnit(layer), SkipUnit(layer, UnitKind.MLP)} & set(self.units))

    def sparsity(self, num_layers: int) -> float:
        """Share of the layers left out, in [0, 1]; a half counts as half a layer."""
        weight = sum(1.0 if unit.kind is UnitKind.BLOCK else 0.5 for unit in self.units)
        return weight / num_layers

    def validate(self, num_layers: int) -> None:
        """Check this set against a model of `num_layers` layers.

        Raises:
            ConfigError: if a layer does not exist, or nothing of the model would be left.
        """
        for unit in self.units:
            if unit.layer >= num_layers:
                raise ConfigError(
                    f"skip unit {unit} names layer {unit.layer}, but the target has layers 0 to "
                    f"{num_layers - 1}: choose among these"
                )
        if self.units and self.sparsity(num_layers) >= 1.0:
            raise ConfigError(f"skip set {self} leaves out every layer: keep at least one half")


def _join(units: Iterable[SkipUnit]) -> str:
    return ",".join(str(unit) for unit in units)
