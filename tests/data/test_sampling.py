import hashlib
import pickle

import numpy as np

from seqbert.data.sampling import BLOCK, PERIOD, EpochOrder, Mixture, below, counter_hash, uniform


def digest(*arrays: np.ndarray) -> str:
    """Stands for arrays of whole numbers. Those below are of the first version: a run may be resumed by a later one."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a, np.int64).tobytes() for a in arrays)).hexdigest()[:16]


def test_uniform_draws_have_the_moments_of_a_uniform_distribution_and_no_serial_correlation() -> None:
    draws = uniform(1, np.arange(500)[:, None], np.arange(500))
    assert abs(draws.mean() - 0.5) < 0.002
    assert abs(draws.var() - 1 / 12) < 0.001
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.01


def test_a_draw_depends_on_its_counters_alone_not_on_what_else_is_drawn() -> None:
    together = counter_hash(3, np.arange(100), 7)
    assert [int(counter_hash(3, i, 7)) for i in range(100)] == together.tolist()


def test_draws_are_those_of_the_first_version_for_numbers_and_for_arrays() -> None:
    assert int(counter_hash(3, 2**33, 7)) == 0xED112368CD0E2701
    assert counter_hash(3, np.arange(2), 7).tolist() == [3307161520201988577, 9354281127767234602]
    assert int(counter_hash(3, 1, 7)) == 9354281127767234602
    assert int(counter_hash(3, -1, 7)) == int(counter_hash(3, np.array(-1), 7))


def test_below_reaches_every_number_and_none_beyond() -> None:
    assert set(below(7, 0, np.arange(1000)).tolist()) == set(range(7))


def test_an_epoch_visits_every_sequence_once_also_across_blocks() -> None:
    total = 2 * BLOCK + 100
    epochs, sequences = EpochOrder(total, seed=5)(np.arange(2 * total))
    assert epochs.tolist() == [0] * total + [1] * total
    assert np.array_equal(np.sort(sequences[:total]), np.arange(total))
    assert np.array_equal(np.sort(sequences[total:]), np.arange(total))


def test_row62_each_epoch_has_an_order_of_its_own_that_depends_on_seed_and_epoch_alone() -> None:
    counters = np.arange(300).reshape(3, 100)
    orders = [EpochOrder(100, seed=0)(row)[1].tolist() for row in counters]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert EpochOrder(100, seed=0)(counters[2])[1].tolist() == orders[2]
    assert EpochOrder(100, seed=1)(counters[0])[1].tolist() != orders[0]


def test_orders_and_mixtures_are_those_of_the_first_version() -> None:
    assert digest(*EpochOrder(2 * BLOCK + 100, 5)(np.arange(0, 5 * BLOCK, 7))) == "3d86a4902fdf2b5b"
    assert digest(*Mixture(range(1, 101), 3)(np.arange(3 * PERIOD))) == "b47e92e5adaba435"


def test_an_order_and_a_mixture_are_the_same_in_another_process() -> None:
    counters = np.arange(0, 3 * BLOCK, 5)
    for draw in (EpochOrder(BLOCK + 9, 1), Mixture([7, 2.5, 0.1], 1)):
        again = pickle.loads(pickle.dumps(draw))
        assert all(np.array_equal(one, other) for one, other in zip(draw(counters), again(counters), strict=True))


def test_a_mixture_holds_its_shares_exactly_in_every_period_and_numbers_each_group_without_gaps() -> None:
    groups, numbers = Mixture([0.5, 0.25, 0.25], seed=0)(np.arange(2 * PERIOD))
    for period in (groups[:PERIOD], groups[PERIOD:]):
        assert np.bincount(period).tolist() == [PERIOD // 2, PERIOD // 4, PERIOD // 4]
    for group in range(3):
        own = numbers[groups == group]
        assert np.array_equal(np.sort(own), np.arange(len(own)))


def test_a_mixture_draws_even_the_smallest_group() -> None:
    groups, _ = Mixture([1e9, 1.0, 1.0], seed=0)(np.arange(PERIOD))
    assert np.bincount(groups).tolist() == [PERIOD - 2, 1, 1]


def test_a_mixture_of_nearly_as_many_groups_as_a_period_has_places_draws_all_of_them() -> None:
    groups, _ = Mixture([1e6, 1e6, *[1.0] * (PERIOD - 10)], seed=0)(np.arange(PERIOD))
    counts = np.bincount(groups)
    assert counts.min() == 1 and counts.sum() == PERIOD and len(counts) == PERIOD - 8
