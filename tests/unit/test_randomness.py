"""Noise depends on its key alone; its stream is the published one."""

import subprocess
import sys

import pytest
import torch

from specdec_core.bench.distribution import distribution_test
from specdec_core.randomness import Noise, derive_seed, uniform_stream


def test_the_stream_is_splitmix64():
    # The published outputs for seed 1234567.
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    found = uniform_stream(1234567, torch.arange(3)).tolist()
    assert found == [((value >> 12) + 0.5) / 2**52 for value in published]


def test_seeds_depend_on_every_part_and_its_kind():
    parts = [(1,), ("1",), (1, 2), (2, 1), (12,), ("1", "2"), ("1, 2",), (0, 1, 2)]
    assert len({derive_seed(*each) for each in parts}) == len(parts)
    assert all(0 <= derive_seed(*each) < 2**63 for each in parts)
    assert derive_seed(True, "a") == derive_seed(1, "a")


def test_seeds_are_the_same_in_every_process():
    code = "from specdec_core.randomness import derive_seed; print(derive_seed(5, 'item/3'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77"},
    )
    assert int(done.stdout) == derive_seed(5, "item/3")


def test_the_noise_of_an_id_does_not_depend_on_the_others():
    noise = Noise(3, 4)
    everything = noise.gumbel("sample", 7, torch.arange(50))
    some = torch.tensor([49, 3, 3, 0])
    assert torch.equal(noise.gumbel("sample", 7, some), everything[some])
    assert torch.equal(some, torch.tensor([49, 3, 3, 0]))


def test_every_part_of_the_key_gives_other_noise():
    noises = [Noise(1, 2), Noise(2, 1), Noise(1, 1), Noise(1)]
    keys = [("sample", 5), ("sample", 6), ("accept", 5)]
    values = {noise.uniform(*key, index) for noise in noises for key in keys for index in range(3)}
    assert len(values) == 36
    assert all(0 <= value < 1 for value in values)


@pytest.mark.parametrize("varied", ["request", "position", "index"])
def test_uniform_numbers_fill_the_interval_evenly(varied):
    drawn = []
    for number in range(8000):
        key = {"request": 0, "position": 0, "index": 0} | {varied: number}
        noise = Noise(9, key["request"])
        drawn.append(noise.uniform("accept", key["position"], key["index"]))
    cells = [int(16 * value) for value in drawn]
    law = dict.fromkeys(range(16), 1 / 16)
    assert distribution_test({cell: cells.count(cell) for cell in law}, law).is_passed()
    # Neighbours in the stream are not related either.
    pairs = [4 * int(4 * a) + int(4 * b) for a, b in zip(drawn[::2], drawn[1::2], strict=True)]
    assert distribution_test({cell: pairs.count(cell) for cell in law}, law).is_passed()


def test_gumbel_noise_has_the_moments_of_its_law():
    noise = Noise(1).gumbel("sample", 1, torch.arange(200_000))
    # Mean 0.57722 and variance pi^2 / 6, standard errors 0.003 and 0.008.
    assert float(noise.mean()) == pytest.approx(0.57722, abs=0.01)
    assert float(noise.var()) == pytest.approx(1.64493, abs=0.03)
    assert bool(torch.isfinite(noise).all())
