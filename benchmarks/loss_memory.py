"""Peak memory and seconds of a loss with its gradients: the eager form and the memory-bounded one.

Both compute the loss of one batch in float32 with the gradients for the draft's hidden states and
its head, each in processes of their own, forms and losses taking turns. Peak memory is the largest
resident size of the process less its size before the loss is asked for, so models, states and heads
do not count. Finished rounds are kept in the cache folder: an interrupted run goes on behind them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.common import Timed, order_of, ratio, write
from specdec_core.config.losses import LossConfig, parse_loss
from specdec_core.config.settings import QUIET_ENVIRONMENT, Settings
from specdec_core.profiling.hardware import peak_memory_bytes
from specdec_core.training import losses
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.eager import eager_loss
from tasks.run_files import write_text

_FORMS = {"eager": eager_loss, "bounded": bounded_loss}
_LOSSES = ("wtv", "kl+eal")
_SIZES = (8, 512, 49152, 576)  # sequences, tokens, vocabulary, hidden numbers
_ROUNDS = 3
# Relative; sums of 201 million numbers in two orders.
_TOLERANCE = 1e-4


def run() -> None:
    """Measure what is not there yet, and store all."""
    figures: dict[str, Any] = {
        "sequences, tokens, vocabulary, hidden": list(_SIZES),
        "dtype": "float32",
        "losses": {},
    }
    rounds = [{loss: _round(loss, number) for loss in _LOSSES} for number in range(_ROUNDS)]
    for loss in _LOSSES:
        figures["losses"][loss] = summarize([cells[loss] for cells in rounds])
    write("loss_memory", figures)


def summarize(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return ratios of the bounded form over the eager one, and all that was measured.

    Args:
        rounds: By form: peak bytes, seconds, loss, and norm of the gradients.

    Raises:
        AssertionError: if the forms do not agree.
    """
    for cell in rounds:
        for name in ("loss", "gradient_norm"):
            first, second = (cell[form][name] for form in _FORMS)
            assert abs(first - second) <= _TOLERANCE * abs(first), f"forms differ in {name}: {cell}"
    num_tokens = _SIZES[0] * _SIZES[1]
    timed = {form: [Timed(num_tokens, cell[form]["seconds"]) for cell in rounds] for form in _FORMS}
    shares = [cell["bounded"]["peak_bytes"] / cell["eager"]["peak_bytes"] for cell in rounds]
    # Seconds of the bounded form over the eager one are tokens/s the other way round.
    seconds = ratio(timed["eager"], timed["bounded"])
    return {
        "peak_memory_ratio": {
            "estimate": sum(shares) / len(shares),
            "low": min(shares),
            "high": max(shares),
            "num_samples": len(shares),
        },
        "seconds_ratio": {key: seconds[key] for key in ("estimate", "low", "high", "num_samples")},
        **{form: [cell[form] for cell in rounds] for form in _FORMS},
    }


def _round(loss: str, number: int) -> dict[str, Any]:
    code = hashlib.sha256()
    for path in sorted(Path(losses.__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    described = [loss, number, _SIZES, code.hexdigest()]
    name = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:24]
    kept = Settings().cache_dir / "benchmarks" / f"loss-memory-{name}.json"
    if not kept.exists():
        found = {form: _in_process(form, loss) for form in order_of(tuple(_FORMS), number)}
        write_text(kept, json.dumps(found))
        print(f"  {loss} round {number}: {json.dumps(found)}", flush=True)
    cell: dict[str, Any] = json.loads(kept.read_text())
    return cell


def _in_process(form: str, loss: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.loss_memory", form, loss],
        env={**os.environ, **QUIET_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(form: str, loss: str) -> dict[str, float]:
    """Return figures of one loss with its gradients, after a small one as warm-up."""
    torch.set_num_threads(Settings().threads)
    config = LossConfig(terms=parse_loss(loss))
    _loss(form, config, _inputs(1, 8, 512, 16))
    inputs = _inputs(*_SIZES)
    before = psutil.Process().memory_info().rss
    started = time.perf_counter()
    value = _loss(form, config, inputs)
    seconds = time.perf_counter() - started
    gradients = [inputs[1].hidden.grad, inputs[1].head.weight.grad]
    return {
        "peak_bytes": peak_memory_bytes(torch.device("cpu")) - before,
        "seconds": seconds,
        "loss": value,
        "gradient_norm": sum(float(g.norm()) for g in gradients if g is not None),
    }


def _loss(form: str, config: LossConfig, inputs: tuple[TrainingBatch, DraftPass, Head]) -> float:
    batch, made, target_head = inputs
    found = _FORMS[form](config, batch, [made], target_head)
    found.loss.backward()
    return float(found.loss.detach())


def _inputs(num: int, length: int, vocab: int, width: int) -> tuple[TrainingBatch, DraftPass, Head]:
    """Return a batch of responses, a draft near its target, and the target's head."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num, length, width, generator=generator)
    noise = torch.randn(num, length, width, generator=generator)
    weight = torch.randn(vocab, width, generator=generator).mul_(2.0 / width**0.5)
    batch = TrainingBatch(
        input_ids=torch.randint(vocab, (num, length), generator=generator),
        response_mask=torch.ones(num, length, dtype=torch.bool),
        lengths=torch.full((num,), length),
        hidden=hidden,
        taps=None,
        sample_ids=tuple(map(str, range(num))),
    )
    drafted = (hidden + 0.3 * noise).requires_grad_()
    return batch, DraftPass(drafted, Head(weight.clone().requires_grad_())), Head(weight)


if __name__ == "__main__":
    json.dump(_measure(sys.argv[1], sys.argv[2]), sys.stdout)
