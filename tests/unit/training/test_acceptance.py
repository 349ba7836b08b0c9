"""Expected acceptance under teacher forcing, against slow loops and by hand."""

from dataclasses import replace

import pytest
import torch

from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.eager import eager_loss, head_logits
from tests.unit.training.loss_cases import losses, make_batch, make_head, make_passes

FORMS = pytest.mark.parametrize("form", [eager_loss, bounded_loss])


@FORMS
@pytest.mark.parametrize("num", [1, 2, 5])
def test_counts_are_those_of_slow_loops(form, num):
    gamma, temperature = 3, 0.7
    batch, head, target_head = make_batch(), make_head(width=3), make_head()
    passes = make_passes(batch, head, num=num)
    config = losses("kl", gamma=gamma, temperature=temperature)
    with torch.no_grad():
        result = form(config, batch, passes, target_head, measures_acceptance=True)
        target = head_logits(batch.hidden, target_head)
        draft = [head_logits(one.hidden, head) for one in passes]
    windows, greedy, sampling = 0, [0.0] * gamma, [0.0] * gamma
    for b in range(2):
        for t in range(1, 9):
            places = [(min(j, num - 1), t + j) for j in range(gamma)]
            if any(s >= 9 or s - 1 - d < 0 or not batch.response_mask[b, s] for d, s in places):
                continue
            windows += 1
            chances = {"greedy": 1.0, "sampling": 1.0}
            for j, (d, s) in enumerate(places):
                y, z = target[b, s - 1], draft[d][b, s - 1 - d]
                p, q = ((x / temperature).softmax(0) for x in (y, z))
                chances["greedy"] *= float(y.argmax() == z.argmax())
                chances["sampling"] *= float(torch.minimum(p, q).sum())
                greedy[j] += chances["greedy"]
                sampling[j] += chances["sampling"]
    assert float(result.counts.windows) == windows > 0
    assert result.acceptance.greedy.tolist() == pytest.approx(greedy)
    assert result.acceptance.sampling.tolist() == pytest.approx(sampling)


@FORMS
def test_what_a_narrow_vocabulary_leaves_out_is_rejected(form):
    """Half of the target's mass is outside; inside the draft is perfect."""
    target = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    ids = torch.tensor([2, 0])
    batch = make_batch(spans=[[(1, 5)]], length=5, vocab=3)
    batch = replace(batch, input_ids=torch.tensor([[0, 0, 1, 2, 0]]))
    hidden = torch.ones(1, 5, 1, dtype=torch.float64)
    batch = replace(batch, hidden=hidden)
    draft = DraftPass(hidden.clone().requires_grad_(), Head(target[ids, None].log(), None, ids))
    config = losses("kl+tv+ce+eal", gamma=2)
    head = Head(target[:, None].log())
    found = form(config, batch, [draft], head, measures_acceptance=True)
    found.loss.backward()
    assert float(found.counts.windows) == 3.0
    assert found.acceptance.sampling.tolist() == pytest.approx([3 * 0.5, 3 * 0.25])
    assert found.acceptance.greedy.tolist() == [0.0, 0.0]  # the likeliest is outside
    assert float(found.sums["kl"]) == pytest.approx(0.0, abs=1e-12)
    assert float(found.sums["tv"]) == pytest.approx(4 * 0.5)
    # Of the tokens 0, 1, 2, 0 the draft knows three; q is .4 for 0 and .6 for 2.
    assert found.counts.labels.tolist() == [3.0]
    nats = -2.0 * torch.log(torch.tensor(0.4)) - torch.log(torch.tensor(0.6))
    assert float(found.sums["ce"]) == pytest.approx(float(nats), rel=1e-6)
    # Windows of two at 1, 2, 3: the second begins with the unknown token, the first ends with it.
    assert float(found.sums["eal"]) == pytest.approx(-(0.4 + 0.0 + (0.6 + 0.6 * 0.4)))


@FORMS
def test_the_target_as_its_own_draft_is_always_accepted(form):
    batch, head = make_batch(), make_head()
    itself = [DraftPass(batch.hidden.clone(), head)]
    with torch.no_grad():
        found = form(losses("kl", gamma=4), batch, itself, head, measures_acceptance=True)
    num_windows = float(found.counts.windows)
    assert found.acceptance.greedy.tolist() == [num_windows] * 4
    assert found.acceptance.sampling.tolist() == pytest.approx([num_windows] * 4)
