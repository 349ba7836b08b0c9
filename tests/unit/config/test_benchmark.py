"""Benchmarks as users ask for them: topics, sampling, presets."""

import pytest

from specdec_core.config.benchmark import BenchmarkConfig, Topic
from specdec_core.config.domains import check_domain
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.presets import NIGHTLY, SPEC_BENCH, benchmark_config
from specdec_core.data.suites import PUBLIC_SETS
from specdec_core.decoding import DRAFTERS
from specdec_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chat", ("chat", None, None)),
        ("chat@spec_bench", ("chat", "spec_bench", None)),
        ("chat@mine.jsonl#*", ("chat", "mine.jsonl", "*")),
        ("qa@hf:org/set@main:test", ("qa", "hf:org/set@main:test", None)),
        ("qa@/a#b/c.jsonl#x", ("qa", "/a#b/c.jsonl", "x")),
    ],
)
def test_topics(text, expected):
    assert Topic.parse(text) == expected


@pytest.mark.parametrize("text", ["", "@x", "chat@", "chat@x#", "chat@#x"])
def test_topics_with_an_empty_part_are_refused_in_words(text):
    with pytest.raises(ConfigError, match=r"write domain, domain@suite or domain@suite#category"):
        benchmark_config({"domains": (text,)})


def test_a_suite_is_given_in_one_place():
    with pytest.raises(ConfigError, match=r"'qa@x' names its suite and suite='y' is given too"):
        benchmark_config({"domains": ("math", "qa@x"), "suite": "y"})


def test_sampling_is_stored_in_one_spelling_and_refused_before_anything_runs():
    config = BenchmarkConfig(sampling=" top_p=0.9, temperature=0.80 ")
    assert config.sampling == "temperature=0.8,top_p=0.9"
    with pytest.raises(ConfigError, match="sampling"):
        benchmark_config({"sampling": "temprature=1"})


def test_the_spec_bench_preset_names_each_set_by_itself():
    config = benchmark_config({"preset": "spec-bench", "num_items": 3})
    assert config.domains[:6] == SPEC_BENCH
    assert config.domains[6:] == ("math@gsm8k", "code@humaneval", "code@mbpp")
    assert config.num_items == 3
    for text in config.domains:
        topic = Topic.parse(text)
        assert check_domain(topic.domain) == topic.domain
        assert topic.domain in PUBLIC_SETS[topic.suite or ""]
    chosen = benchmark_config({"preset": "spec-bench", "methods": ("prompt-lookup",)})
    assert chosen.methods == ("prompt-lookup",)


def test_both_spec_bench_presets_compare_the_same_methods_at_two_sizes():
    few = benchmark_config({"preset": "spec-bench"})
    paper = benchmark_config({"preset": "spec-bench-paper"})
    assert few.domains == paper.domains
    assert [text.partition(":")[0] for text in few.methods] == [
        text.partition(":")[0] for text in paper.methods
    ]
    retrieving = [DRAFTERS.needs(parse_drafter(text)) for text in few.methods[:4]]
    assert [needs.max_nodes for needs in retrieving] == [5, 4, 15, 5]


def test_unknown_presets_list_those_there_are():
    with pytest.raises(
        ConfigError, match="'spec' is unknown: choose one of spec-bench, spec-bench-paper, "
    ):
        benchmark_config({"preset": "spec"})


def test_presets_come_before_other_defaults_and_given_values_before_both():
    config = benchmark_config({"preset": "spec-bench", "baseline": "mine"}, NIGHTLY)
    assert (config.target, config.max_new_tokens, config.baseline) == (
        "pypi:smollm2-135m",
        48,
        "mine",
    )


def test_dense_prefill_goes_with_a_skip_set():
    assert benchmark_config({"skip": "2", "prefill": "dense"}).prefill == "dense"
    with pytest.raises(ConfigError, match="nothing is skipped: give skip, or leave prefill out"):
        benchmark_config({"prefill": "dense"})
