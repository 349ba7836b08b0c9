"""Decay where it belongs, and clipping of the whole gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specdec_core.training.optimizer import clip_gradients, make_optimizer, set_learning_rate
from specdec_core.training.state import load_moments
from specdec_core.training.workers import Workers, trainable


def module() -> nn.Module:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.fill_(1.0)
    return nn.ModuleDict({"layer": layer, "norm": nn.RMSNorm(2)})


def test_matrices_decay_and_norms_and_biases_do_not() -> None:
    parameters = trainable(module())
    optimizer = make_optimizer(parameters, weight_decay=0.5)
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    # Without gradient a step is the decay alone: 1 - 0.1 * 0.5.
    assert parameters["layer.weight"].tolist() == [[pytest.approx(0.95)] * 2]
    assert parameters["layer.bias"].tolist() == [1.0]
    assert parameters["norm.weight"].tolist() == [1.0, 1.0]


def test_the_norm_is_that_of_all_gradients_together() -> None:
    parameters = trainable(module())
    parameters["layer.weight"].grad = torch.tensor([[3.0, 0.0]])
    parameters["layer.bias"].grad = torch.tensor([4.0])
    assert clip_gradients(parameters, 10.0, Workers()) == pytest.approx(5.0)
    assert parameters["layer.bias"].grad is not None
    assert parameters["layer.bias"].grad.tolist() == [4.0]
    assert clip_gradients(parameters, 1.0, Workers()) == pytest.approx(5.0)
    assert parameters["layer.bias"].grad.tolist() == [pytest.approx(0.8)]
    assert parameters["layer.weight"].grad.tolist() == [[pytest.approx(0.6), 0.0]]


def test_frozen_parameters_are_left_out() -> None:
    frozen = module()
    frozen.get_parameter("layer.weight").requires_grad_(requires_grad=False)
    assert list(trainable(frozen)) == ["layer.bias", "norm.weight"]


def test_resumed_moments_are_with_their_weights_and_numbers_of_steps_on_the_processor() -> None:
    """AdamW reads the number before every update: on a GPU each reading would wait for it."""
    weight = nn.Parameter(torch.zeros(2, 2, device="meta"))
    optimizer = make_optimizer({"weight": weight}, weight_decay=0.0)
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2, 2)}
    load_moments(optimizer, {"weight": weight}, {"weight": moments})
    found = optimizer.state[weight]
    assert found["exp_avg"].device == weight.device
    assert found["step"].device == torch.device("cpu")
    assert found["step"] is not moments["step"]
    assert float(found["step"]) == 3.0
