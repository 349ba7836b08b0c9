"""One shard of training data, made inside a model worker: answer, run again, write."""

from __future__ import annotations

import time
from pathlib import Path

from specdec_core.models.target import Target
from specdec_core.training.manifest import DataCounts, shard_path
from specdec_core.training.records import ShardWriter
from specdec_core.training.samples import SampleMaker
from tasks.draft_data_jobs import ShardRequest, ShardResult
from tasks.jobs import StopCheck


def make_shard(request: ShardRequest, target: Target, should_stop: StopCheck) -> ShardResult:
    """Answer the prompts of a shard and write it.

    Raises:
        ConfigError: if the target cannot be asked so.
        SearchCancelledError: once `should_stop` is true.
    """
    maker = SampleMaker(request.prompts, request.config, target, should_stop)
    started = time.perf_counter()
    texts = maker.texts()
    answered = time.perf_counter()
    path = shard_path(Path(request.folder), request.index)
    with ShardWriter(
        path, key=request.data_key, hidden_dtype=request.config.hidden_dtype
    ) as writer:
        for text in texts:
            writer.add(maker.sample(text))
        spent = DataCounts(generation_s=answered - started, states_s=time.perf_counter() - answered)
        counts = writer.finish(maker.counts + spent)
    return ShardResult(key=request.key, index=request.index, counts=counts)
