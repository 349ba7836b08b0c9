"""Whether a training run can work, as far as that is known before its data are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.losses import format_loss
from specdec_core.config.settings import Settings
from specdec_core.config.training import (
    EagleDraft,
    MedusaDraft,
    ModelDraft,
    PrunedDraft,
    TrainConfig,
)
from specdec_core.config.training_run import TrainingRunConfig
from specdec_core.data.templates import get_template, render_prompts
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import Architecture, read_architecture
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.training.plan import TrainingPlan
from specdec_core.training.prompts import shared_with
from tasks.draft_benchmarks import benchmark_of, methods_of, plain_grid
from tasks.grid import Grid
from tasks.training_job import check_tokenizer
from tasks.training_sweep import check_sweep, sweep_of

if TYPE_CHECKING:
    from specdec_core.training.reference import DraftForm


def check_training_run(
    config: TrainingRunConfig, target: ResolvedModel, settings: Settings, *, is_inline: bool
) -> None:
    """Check that data, draft, training, sweep and evaluation fit each other; no weights are read.

    Args:
        config: What is asked for.
        target: The model that `config` names as its target.
        settings: Where models and suites are found.
        is_inline: Whether data and training are made in this process.

    Raises:
        ConfigError: if the run would fail, however far it came.
    """
    train = config.train
    check_losses(train)
    sweep = sweep_of(config)
    if sweep is not None:
        check_sweep(train, sweep)
    _check_workers(train, is_inline)
    if train.num_validation >= train.data.num_prompts:
        raise ConfigError(
            f"num_validation {train.num_validation} holds out all of {train.data.num_prompts} "
            "prompts: lower num_validation or raise num_prompts"
        )
    arch = read_architecture(target.folder)[0]
    _check_lengths(train, arch)
    _check_draft(train, target, arch, settings)
    if config.evaluate:
        _check_evaluation(config, target, settings)


def check_losses(train: TrainConfig) -> None:
    """Check that both phases have epochs, and responses are long enough for what losses look at.

    Raises:
        ConfigError: if not.
    """
    TrainingPlan.of(train, 1)
    longest = train.data.max_new_tokens
    if train.window > longest:
        raise ConfigError(
            f"a window of gamma {train.window} tokens fits no response of at most max_new_tokens "
            f"{longest}: lower gamma or raise max_new_tokens"
        )
    for losses in train.loss_configs:
        if "grpo" in losses.names and losses.group_span > longest:
            raise ConfigError(
                f"grpo in {format_loss(losses.terms)!r} compares {losses.grpo_windows} windows "
                f"over {losses.group_span} tokens, which no response of at most max_new_tokens "
                f"{longest} has: lower grpo_windows or gamma, or raise max_new_tokens"
            )


def _check_workers(train: TrainConfig, is_inline: bool) -> None:
    if is_inline and train.num_workers > 1:
        raise ConfigError(
            f"{train.num_workers} workers cannot train in one process: leave inline out, or give "
            "num_workers 1"
        )
    if train.sharding == "fsdp" and isinstance(train.draft, EagleDraft | MedusaDraft):
        raise ConfigError(
            f"sharding fsdp spreads the blocks of a draft model, but drafts of kind "
            f"{train.draft.kind} have none: use sharding ddp"
        )


def _check_lengths(train: TrainConfig, arch: Architecture) -> None:
    data = train.data
    if data.max_new_tokens >= arch.max_positions:
        raise ConfigError(
            f"responses of max_new_tokens {data.max_new_tokens} leave no room for a prompt within "
            f"the {arch.max_positions} positions of target {data.target}: lower max_new_tokens"
        )
    longest = min(data.max_tokens, arch.max_positions)
    if train.micro_batch_tokens < longest:
        raise ConfigError(
            f"micro_batch_tokens {train.micro_batch_tokens} cannot hold a sequence of {longest} "
            "tokens, which the data may have: raise micro_batch_tokens or lower max_tokens"
        )


def _check_draft(
    train: TrainConfig, target: ResolvedModel, arch: Architecture, settings: Settings
) -> None:
    from specdec_core.training.pruning import kept_layers

    draft = train.draft
    if isinstance(draft, PrunedDraft):
        kept_layers(draft, arch.num_layers)
    if isinstance(draft, PrunedDraft | EagleDraft) and draft.vocab_size is not None:
        _check_vocabulary(draft.vocab_size, target, arch)
    if isinstance(draft, ModelDraft):
        start = resolve_model(draft.model, settings.cache_dir)
        check_tokenizer(start, target, settings)
        _check_model(train, start, read_architecture(start.folder)[0], target, arch)


def _check_model(
    train: TrainConfig,
    start: ResolvedModel,
    own: Architecture,
    target: ResolvedModel,
    arch: Architecture,
) -> None:
    """Check that a model has a row for every token and a position for every sequence."""
    longest = min(train.data.max_tokens, arch.max_positions)
    if own.max_positions < longest:
        raise ConfigError(
            f"draft {start.reference} has {own.max_positions} positions, but sequences of the data "
            f"may have {longest} tokens: lower max_tokens to {own.max_positions}, or choose "
            "another draft"
        )
    if own.vocab_size < arch.vocab_size:
        from specdec_core.models.loading import load_tokenizer

        # What a target has beyond its tokenizer is padding, which no text has.
        num_ids = max(load_tokenizer(target.folder).get_vocab().values()) + 1
        if own.vocab_size < min(num_ids, arch.vocab_size):
            raise ConfigError(
                f"draft {start.reference} embeds {own.vocab_size} token ids, but the tokenizer of "
                f"target {target.reference} has {num_ids}: choose a draft with a row for each"
            )


def _check_vocabulary(size: int, target: ResolvedModel, arch: Architecture) -> None:
    """Check a size with counts that are not known yet: what is in it always is."""
    import torch

    from specdec_core.training.pruning import frequent_vocabulary

    frequent_vocabulary(torch.zeros(arch.vocab_size), size, target)


def _check_evaluation(config: TrainingRunConfig, target: ResolvedModel, settings: Settings) -> None:
    kind = config.train.draft.kind
    form: DraftForm = kind if kind in ("eagle", "medusa") else "model"
    # Where trainings lie: the drafter's text names the folder.
    folder = settings.home_dir / "trainings" / "draft"
    methods = methods_of(form, folder, config.evaluation)
    for temperature in config.evaluation.temperatures:
        benchmark_of(config.evaluation, methods, temperature)
    grid = plain_grid(config.evaluation, settings)
    _check_prompts(config.evaluation, grid, target)
    _check_apart(config.train, grid, settings)


def _check_apart(train: TrainConfig, grid: Grid, settings: Settings) -> None:
    """Check that nothing is decoded that the draft may learn."""
    prompts = [
        item.prompt
        for cell, *_ in grid.rows
        for item in cell.workload.suite.select(cell.requests[0].item_ids)
    ]
    shared = shared_with(prompts, train.data.prompts, settings.data)
    if shared:
        raise ConfigError(
            f"{len(shared)} of the {len(prompts)} prompts that the evaluation decodes are among "
            f"those that training data are drawn from, such as {shared[0][:60]!r}: acceptance "
            "would be of what the draft has learned; take them out of prompts, or name other "
            "eval_domains"
        )


def _check_prompts(config: DraftEvaluationConfig, grid: Grid, target: ResolvedModel) -> None:
    """Check that the target has positions for every prompt that is decoded, and its output."""
    from specdec_core.models.loading import load_tokenizer

    most = read_architecture(target.folder)[0].max_positions
    tokenizer = load_tokenizer(target.folder)
    for cell, *_ in grid.rows:
        workload = cell.workload
        items = workload.suite.select(cell.requests[0].item_ids)
        template = get_template(workload.suite.domain, workload.target.kind)
        longest = max(map(len, render_prompts(items, template, tokenizer).ids))
        if longest + config.max_new_tokens > most:
            raise ConfigError(
                f"the evaluation has prompts of {longest} tokens in {cell.label} and up to "
                f"{config.max_new_tokens} new ones, more than the {most} positions of target "
                f"{target.reference}: lower eval_max_new_tokens, name other eval_domains, or leave "
                "the evaluation out"
            )
