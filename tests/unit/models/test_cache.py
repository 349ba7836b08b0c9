"""The key-value cache by itself: rows are numbered, so that every move can be checked."""

import pytest
import torch

from specdec_core.errors import CacheDesyncError
from specdec_core.models.cache import KVCache


def make(lengths, capacity=8):
    """A cache whose committed row r of sequence s is 10 * s + r, its value negative."""
    cache = KVCache.allocate(
        (2, 1, len(lengths), 1, capacity, 1), torch.float64, torch.device("cpu")
    )
    append(cache, [[10 * s + r for r in range(length)] for s, length in enumerate(lengths)])
    cache.commit([range(length) for length in lengths])
    return cache


def append(cache, numbers):
    """Run a pass whose keys are `numbers`, one list per sequence, padded with -1."""
    width = max(map(len, numbers))
    padded = [[*row, *[-1] * (width - len(row))] for row in numbers]
    keys = torch.tensor(padded, dtype=torch.float64).reshape(len(numbers), width, 1, 1)
    cache.begin([len(row) for row in numbers])
    return cache.write(0, keys, -keys)


def contents(cache):
    rows = [cache.rows(sequence) for sequence in range(cache.batch_size)]
    assert all(torch.equal(row[1], -row[0]) for row in rows)
    return [row[0].flatten().int().tolist() for row in rows]


def test_a_path_is_moved_behind_the_committed_rows_and_the_rest_dropped():
    cache = make([2, 3])
    append(cache, [[50, 51, 52, 53], [60, 61]])
    cache.commit([[0, 2, 3], [0]])
    assert contents(cache) == [[0, 1, 50, 52, 53], [10, 11, 12, 60]]


def test_a_pass_sees_committed_rows_and_its_own():
    keys, values = append(make([2, 3]), [[50], [60, 61]])
    assert keys.flatten(1).int().tolist() == [[0, 1, 50, -1, 0], [10, 11, 12, 60, 61]]
    assert torch.equal(values, -keys)


@pytest.mark.parametrize("rows", [[0, 1, 2], [1], [0, 2], [2, 0], [2, 1, 0], []])
def test_kept_sequences_take_the_given_order(rows):
    cache = make([2, 3, 1])
    expected = [contents(cache)[row] for row in rows]
    cache.keep(rows)
    assert cache.batch_size == len(rows)
    assert contents(cache) == expected


def test_a_kept_batch_goes_on():
    cache = make([2, 3, 1])
    cache.keep([1, 2])
    append(cache, [[50], [60, 61]])
    cache.commit([[0], [0, 1]])
    assert contents(cache) == [[10, 11, 12, 50], [20, 60, 61]]


def test_sequences_are_not_dropped_while_rows_are_pending():
    cache = make([1, 1])
    append(cache, [[5], [6]])
    with pytest.raises(CacheDesyncError, match="keep before commit"):
        cache.keep([0])


def test_rollback_drops_committed_and_pending_rows():
    cache = make([3, 2])
    append(cache, [[5], [6]])
    cache.rollback([1, 2])
    assert contents(cache) == [[0], [10, 11]]
    append(cache, [[7], [8]])  # nothing is pending any more
    cache.commit([[0], [0]])
    assert contents(cache) == [[0, 7], [10, 11, 8]]


@pytest.mark.parametrize("lengths", [[4, 2], [-1, 2]])
def test_rollback_to_rows_that_are_not_there_is_refused(lengths):
    cache = make([3, 2])
    with pytest.raises(CacheDesyncError, match=f"sequence 0 from 3 to {lengths[0]} rows"):
        cache.rollback(lengths)
    assert cache.lengths == [3, 2]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([[0]], "commit of 1 paths for 2 sequences"),
        ([[0], []], r"path \[\] does not fit 2 pending"),
        ([[0], [1]], r"path \[1\] does not fit 2 pending"),
        ([[0, 1, 1], [0]], r"path \[0, 1, 1\] does not fit 3 pending"),
        ([[0], [0, 2]], r"path \[0, 2\] does not fit 2 pending"),
    ],
)
def test_paths_that_do_not_fit_are_refused(paths, message):
    cache = make([1, 1])
    append(cache, [[5, 6, 7], [8, 9]])
    with pytest.raises(CacheDesyncError, match=message):
        cache.commit(paths)


def test_capacity_counts_the_widest_pass_behind_the_longest_sequence():
    cache = make([5, 1], capacity=8)
    append(cache, [[5], [6, 7, 8]])
    cache.rollback([5, 1])
    with pytest.raises(CacheDesyncError, match="8 rows cannot take 4 nodes behind 5 committed"):
        append(cache, [[5], [6, 7, 8, 9]])
