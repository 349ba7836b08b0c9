"""Distribution tests of the methods of a benchmark that samples."""

from __future__ import annotations

from db.cells import LawTest
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.sampling import parse_sampling
from specdec_core.errors import ConfigError
from tasks.jobs import StopCheck
from tasks.runtime import LogLine

NUM_DRAWS = 10_000
SIGNIFICANCE = 1e-3


def law_tests(
    config: BenchmarkConfig, log: LogLine, should_stop: StopCheck = lambda: False
) -> dict[str, LawTest]:
    """Return the test of the methods that have only their law in common with the target.

    There is none where outputs are compared token for token, or the rule keeps no law.
    `NUM_DRAWS` outputs are drawn per method, and as many for its negative control. A method that
    does not work on a tiny target, such as one with a datastore of another vocabulary, is left
    out and said so.

    Args:
        config: Methods and sampling.
        log: Takes a line per method.
        should_stop: Asked before every step.

    Raises:
        SearchCancelledError: if `should_stop` said so.
    """
    sampling = parse_sampling(config.sampling)
    drafters = {method: parse_drafter(method) for method in config.methods}
    tested = [
        method
        for method, drafter in drafters.items()
        if not sampling.is_coupled_for(draws_candidates=drafter.draws_candidates)
    ]
    if not tested or not sampling.is_lossless:
        return {}
    from specdec_core.decoding.law import check_law  # slow to import, and most runs never need it

    found = {}
    for method in tested:
        try:
            check = check_law(
                drafters[method], sampling, num_draws=NUM_DRAWS, should_stop=should_stop
            )
        except ConfigError as error:
            log(f"{method}: its distribution was not tested: {error}")
            continue
        found[method] = LawTest(
            num_draws=NUM_DRAWS,
            num_degrees=check.test.num_degrees,
            p_value=check.test.p_value,
            control_p_value=check.control.p_value,
            significance=SIGNIFICANCE,
        )
        log(
            f"{method}: {NUM_DRAWS} draws, p = {check.test.p_value:.3g}; "
            f"negative control p = {check.control.p_value:.3g}"
        )
    return found
