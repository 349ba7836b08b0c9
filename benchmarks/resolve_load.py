"""The processes around the server of `benchmarks.resolve`: a client, or a search that writes.

A module of its own, because these processes must be light: `python -m benchmarks.resolve_load`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from typing import Any

from db.schemas import ProfileScores, SkipProfile
from db.store import Store
from specdec_core.config.drafters import PromptLookup
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import (
    EvaluationResult,
    EvaluationSummary,
    PhaseSeconds,
    SampleResult,
    StepTrace,
)

TARGET = "pypi:gemma3-270m"
DOMAINS = ("translation", "summarization", "qa", "rag", "math", "code", "chat", "mmlu")
NUM_ITEMS = 16
OUTPUT_TOKENS = 48
_IDENTITY = "a" * 64


def main() -> None:
    """Do what the command line says, and print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("client", "writer"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--database", default="")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--start-at", type=float, required=True, help="epoch seconds")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between evaluations")
    parser.add_argument("--tags", action="store_true", help="send If-None-Match")
    args = parser.parse_args()
    answer = _ask(args) if args.role == "client" else _write(args)
    sys.stdout.write(json.dumps(answer))


def publish(store: Store, domain: str, number: int) -> SkipProfile:
    """Publish an active profile of one domain, from a run of its own."""
    run = store.runs.create("tss-search", domain, {"number": number}, {"command": "benchmark"})
    scores = ProfileScores(acceptance_length=2.2, metric=0.12, dense_acceptance_length=2.0)
    return store.profiles.publish(
        SkipProfile(
            target=TARGET,
            target_identity=_IDENTITY,
            num_layers=18,
            dtype="bfloat16",
            domain=domain,
            drafter="prompt-lookup:num_tokens=3",
            skip=f"a{1 + number % 16}",
            status="active",
            is_dense=False,
            run_id=run.id,
            suite_hash="s" * 64,
            template_hash="t" * 64,
            selection=scores,
            tolerance_acceptance=-0.05,
            tolerance_metric=-0.05,
            reason="published by a benchmark",
        )
    )


def _ask(args: argparse.Namespace) -> dict[str, Any]:
    """Ask for one domain after the other until time is up, on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", args.port)
    latencies_s, num_wrong, num_unchanged = [], 0, 0
    tags: dict[str, str] = {}
    versions = dict.fromkeys(DOMAINS, 0)
    _wait_until(args.start_at)
    end = time.monotonic() + args.seconds
    index = args.number
    while (start := time.monotonic()) < end:
        domain = DOMAINS[index % len(DOMAINS)]
        index += 1
        headers = {"If-None-Match": tags[domain]} if args.tags and domain in tags else {}
        url = f"/api/v1/profiles/resolve?target={TARGET}&domain={domain}"
        connection.request("GET", url, headers=headers)
        response = connection.getresponse()
        body = response.read()
        latencies_s.append(time.monotonic() - start)
        tags[domain] = response.headers["ETag"]
        if response.status == 304:
            num_unchanged += 1
            continue
        profile = json.loads(body) if response.status == 200 else {}
        is_right = profile.get("domain") == domain and profile["status"] == "active"
        # Old or new, and never an older one than before.
        num_wrong += not is_right or profile["version"] < versions[domain]
        versions[domain] = profile.get("version", 0)
    return {"latencies_s": latencies_s, "num_wrong": num_wrong, "num_unchanged": num_unchanged}


def _write(args: argparse.Namespace) -> dict[str, Any]:
    """Store evaluations and link them as a search does; publish a profile every tenth time."""
    num_evaluations = num_profiles = 0
    with Store.open(args.database) as store:
        run = store.runs.create("tss-search", "translation", {}, {"command": "benchmark"})
        _wait_until(args.start_at)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            asked = _request(f"{args.start_at}/{num_evaluations}")
            store.evaluations.put(asked, _result(asked))
            store.runs.link(run.id, asked.key, "selection", 1)
            num_evaluations += 1
            if num_evaluations % 10 == 0:
                publish(store, DOMAINS[num_profiles % len(DOMAINS)], num_evaluations)
                num_profiles += 1
            time.sleep(args.pause)
    return {"num_evaluations": num_evaluations, "num_profiles": num_profiles}


def _request(name: str) -> EvaluationRequest:
    return EvaluationRequest(
        target=TARGET,
        target_identity=_IDENTITY,
        dtype="bfloat16",
        skip="a3",
        drafter=PromptLookup(num_tokens=3),
        suite="builtin",
        suite_hash="s" * 64,
        domain="translation",
        template_hash="t" * 64,
        item_ids=tuple(f"item-{number}" for number in range(NUM_ITEMS)),
        max_new_tokens=OUTPUT_TOKENS,
        repetition=name,
        code_version="benchmark",
    )


def _result(asked: EvaluationRequest) -> EvaluationResult:
    """A result of the size that a search stores: 16 outputs with their traces."""
    steps = OUTPUT_TOKENS // 2
    trace = StepTrace(
        drafted=(3,) * steps, depth=(3,) * steps, accepted=(1,) * steps, committed=(2,) * steps
    )
    samples = tuple(
        SampleResult(
            item_id=item_id,
            prompt_tokens=120,
            token_ids=tuple(range(number, number + OUTPUT_TOKENS)),
            text=f"{item_id} " * 12,
            answer=f"{item_id} " * 12,
            useful_tokens=OUTPUT_TOKENS,
            finish_reason="length",
            score=0.25,
            raw_score=0.25,
            trace=trace,
            seconds=0.5,
        )
        for number, item_id in enumerate(asked.item_ids)
    )
    num_steps, num_tokens = steps * NUM_ITEMS, OUTPUT_TOKENS * NUM_ITEMS
    summary = EvaluationSummary(
        num_samples=NUM_ITEMS,
        num_scored=NUM_ITEMS,
        metric=0.25,
        metric_raw=0.25,
        num_steps=num_steps,
        num_tokens=num_tokens,
        num_useful_tokens=num_tokens,
        num_drafted=3 * num_steps,
        num_accepted=num_steps,
        acceptance_length=2.0,
        hit_rate=1.0,
        mean_output_tokens=float(OUTPUT_TOKENS),
        stop_rate=0.0,
        distinct_2=1.0,
        longest_repeat=1.0,
        prefill_s=0.5,
        decode_s=8.0,
        tokens_per_s=96.0,
    )
    return EvaluationResult(
        key=asked.key,
        summary=summary,
        samples=samples,
        phases=PhaseSeconds(prefill=0.5, forward=7.5),
        wall_s=8.5,
        hardware="benchmark",
    )


def _wait_until(moment: float) -> None:
    """Wait for a time of day, so that processes begin together."""
    time.sleep(max(0.0, moment - time.time()))


if __name__ == "__main__":
    main()
