"""The flow `train-drafter`: data, training, evaluation, registry and export of a draft."""

from __future__ import annotations

from typing import Literal

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts, draft_drivers
from flows.loss_tables import loss_markdown, loss_tables
from flows.runs import is_worth_retrying, run_name
from flows.training_tables import training_markdown, training_tables
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import (
    LossComparisonConfig,
    TrainingPreset,
    TrainingRunConfig,
    training_config,
)
from specdec_core.models.reference import resolve_model
from tasks.loss_report import LossReport
from tasks.training_plots import loss_plots, training_plots
from tasks.training_report import TrainingReport

KIND = "train-drafter"


@flow(name=KIND, flow_run_name=lambda: run_name("preset", "draft", "loss", "target"))
def train_drafter(
    preset: TrainingPreset | None = None,
    target: str | None = None,
    draft: str | None = None,
    loss: str | None = None,
    second_loss: str | None = None,
    losses: list[str] | None = None,
    seeds: list[int] | None = None,
    learning_rates: list[float] | None = None,
    compare_start: bool | None = None,
    gamma: int | None = None,
    temperature: float | None = None,
    lk_eta: float | None = None,
    lk_scope: Literal["depth", "position"] | None = None,
    depth_decay: float | None = None,
    grpo_groups: int | None = None,
    grpo_windows: int | None = None,
    grpo_clip_advantage: float | None = None,
    grpo_clip_ratio: float | None = None,
    num_epochs: int | None = None,
    second_epochs: int | None = None,
    learning_rate: float | None = None,
    warmup: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    batch_size: int | None = None,
    micro_batch_tokens: int | None = None,
    precision: Literal["auto", "float32", "bfloat16"] | None = None,
    num_validation: int | None = None,
    validate_every: int | None = None,
    select_by: Literal["auto", "greedy", "sampling"] | None = None,
    num_workers: int | None = None,
    sharding: Literal["ddp", "fsdp"] | None = None,
    max_failures: int | None = None,
    seed: int | None = None,
    dtype: str | None = None,
    prompts: list[str] | None = None,
    num_prompts: int | None = None,
    max_turns: int | None = None,
    max_tokens: int | None = None,
    max_new_tokens: int | None = None,
    data_temperature: float | None = None,
    data_batch_size: int | None = None,
    data_seed: int | None = None,
    hidden: Literal["none", "head-input", "taps"] | None = None,
    taps: list[int] | None = None,
    hidden_dtype: Literal["bfloat16", "float16", "float32"] | None = None,
    top_k: int | None = None,
    sweep_trials: int | None = None,
    sweep_epochs: int | None = None,
    sweep_rates: list[float] | None = None,
    sweep_weights: list[float] | None = None,
    evaluate: bool | None = None,
    eval_domains: list[str] | None = None,
    eval_shapes: list[Literal["chain", "tree"]] | None = None,
    eval_temperatures: list[float] | None = None,
    eval_branching: list[int] | None = None,
    eval_num_nodes: int | None = None,
    eval_num_items: int | None = None,
    eval_max_new_tokens: int | None = None,
    eval_repeats: int | None = None,
    eval_seed: int | None = None,
    eval_session: str | None = None,
    eval_tolerance: float | None = None,
    eval_min_trials: int | None = None,
    export: bool | None = None,
) -> State[str]:
    """Train a draft; losses, seeds, learning rates or its start make it a comparison.

    A parameter that is not given takes the default of the preset, if one is named, else its own.
    What is done under the same content is not done again. The state carries the id of the stored
    run, its message is the result in one sentence, and its name says where a draft was rejected.
    """
    given = dict(locals())  # the parameters, as nothing else has been assigned yet
    config = check_training(given.pop("preset"), given)
    report = train(config)
    leave_training(report)
    state: State[str] = Completed(
        name=None if report.is_good else "Rejected", message=report.headline, data=report.run_id
    )
    return state


@task(name="check-training", cache_policy=NO_CACHE)
def check_training(
    preset: str | None, given: dict[str, object]
) -> TrainingRunConfig | LossComparisonConfig:
    """Return the resolved training; the target is found before anything is stored."""
    config = training_config(preset, given)
    run = config.base if isinstance(config, LossComparisonConfig) else config
    log = get_run_logger().info
    target = resolve_model(run.train.data.target, Settings().cache_dir, log)
    log("training a draft of %s", target.reference)
    return config


@task(
    name="train",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_worth_retrying,
)
def train(config: TrainingRunConfig | LossComparisonConfig) -> TrainingReport | LossReport:
    """Train; a second try continues with what is stored."""
    bar = artifacts.ProgressBar(KIND)
    report = draft_drivers.train(
        config,
        Settings(),
        log=get_run_logger().info,
        progress=bar,
        flow_run_id=str(flow_run.id),
    )
    bar.finish(report.headline)
    return report


@task(name="leave-training", cache_policy=NO_CACHE)
def leave_training(report: TrainingReport | LossReport) -> None:
    """Show the result on the page of the run."""
    if isinstance(report, LossReport):
        tables, plots, text = loss_tables(report), loss_plots(report), loss_markdown(report)
        name = "compare-losses"
    else:
        tables, plots = training_tables(report), training_plots(report)
        text, name = training_markdown(report), KIND
    for title, view in tables:
        artifacts.publish_table(view, artifacts.artifact_key(name, title))
    artifacts.publish_plots(plots, name)
    artifacts.publish_markdown(text, artifacts.artifact_key(name, "report"), report.headline)
