"""Processes that train one draft together: what they add up, and who they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from specdec_core.errors import SpecDecError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Workers:
    """This process among those of a training; alone unless torch's process group says otherwise.

    Every method is called by all workers in the same order.

    Attributes:
        rank: Of this process, from 0.
        num: How many there are.
        device: Where tensors to be exchanged must lie.
    """

    rank: int = 0
    num: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def of_group(cls, device: torch.device) -> Workers:
        """Return this process as a member of torch's default process group, if there is one."""
        if not dist.is_initialized():
            return cls(device=device)
        return cls(dist.get_rank(), dist.get_world_size(), device)

    @property
    def is_first(self) -> bool:
        """Whether this one writes files."""
        return self.rank == 0

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return numbers added up over the workers; a name that some lack counts as 0 there."""
        if self.num == 1:
            return dict(values)
        names = sorted({name for names in self.gather(list(values)) for name in names})
        numbers = [values.get(name, 0.0) for name in names]
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """Return what every worker gave, by rank; small picklable values only."""
        if self.num == 1:
            return [value]
        values: list[Any] = [None] * self.num
        dist.all_gather_object(values, value)
        return values

    def any(self, is_true: bool) -> bool:
        """Return whether it is true for any worker."""
        return bool(self.most(float(is_true)))

    def most(self, value: float) -> float:
        """Return the largest of the workers' numbers."""
        if self.num == 1:
            return value
        largest = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return float(largest)

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over the workers, in one exchange per dtype."""
        if self.num == 1:
            return
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        for group in by_dtype.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in group])
            dist.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in group])
            for tensor, part in zip(group, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def together(self, action: Callable[[], Result]) -> Result:
        """Return what an action gives on this worker, once it has succeeded on all.

        Raises:
            SpecDecError: what it raised here, or the first one that it raised elsewhere.
        """
        fault: SpecDecError | None = None
        try:
            result = action()
        except SpecDecError as error:
            fault = error
        faults = [one for one in self.gather(fault) if one is not None]
        if fault is not None or faults:
            raise fault or faults[0]
        return result


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name, each once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}
