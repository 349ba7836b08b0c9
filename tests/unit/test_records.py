"""Where output tokens came from, read off the trace of a decode."""

from specdec_core.records import StepTrace


def test_origins_follow_the_steps():
    # Two drafted tokens and the target's own; nothing accepted; one, with its bonus cut off.
    trace = StepTrace(drafted=(3, 2, 1), depth=(3, 2, 1), accepted=(2, 0, 1), committed=(3, 1, 1))
    assert trace.origins() == ("prefill", 1, 2, "bonus", "bonus", 1)


def test_an_output_of_one_token_is_the_prefills():
    assert StepTrace().origins() == ("prefill",)
