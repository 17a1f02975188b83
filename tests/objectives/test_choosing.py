"""The tokens that are chosen are those with the lowest draws, however few of the draws are sorted."""

import numpy as np
import pytest

from seqbert.data.plan import Stretches
from seqbert.objectives.choosing import Draws, choose_tokens, choose_units
from seqbert.objectives.sequences import Sequences

SHAPES = {
    "alike": [50] * 40,
    "mixed": sorted(np.random.default_rng(1).integers(3, 200, 60).tolist()),
    "one much longer": [3] * 50 + [4000],
    "unsorted": np.random.default_rng(2).integers(3, 90, 40).tolist(),
    "one": [17],
}


def draws_of(lengths: list[int], step: int) -> Draws:
    tokens, count = sum(lengths), len(lengths)
    nothing = np.zeros(count, np.int64)
    stretches = Stretches(nothing, nothing, nothing, np.full(count, step), np.arange(count))
    position = np.concatenate([np.arange(length) for length in lengths])
    ids = np.zeros(tokens, np.int64)
    return Draws(Sequences(ids, ids, None, None, position, np.array(lengths), stretches, nothing), seed=5)


def wanted(count: int, probability: float) -> int:
    return max(1, int(np.floor(count * probability + 0.5))) if count else 0


@pytest.mark.parametrize("probability", [0.01, 0.15, 0.4, 1.0])
@pytest.mark.parametrize("lengths", SHAPES.values(), ids=SHAPES)
def test_of_each_sequence_the_tokens_with_the_lowest_draws_are_chosen(lengths: list[int], probability: float) -> None:
    for step in range(10):
        draws = draws_of(lengths, step)
        eligible = np.random.default_rng(step).random(sum(lengths)) < 0.9
        bits, expected = draws.bits("masked"), []
        for number in range(len(lengths)):
            own = np.flatnonzero(eligible & (draws.owner == number))
            expected += own[np.argsort(bits[own])][: wanted(len(own), probability)].tolist()
        assert choose_tokens(eligible, draws, probability).tolist() == sorted(expected)


@pytest.mark.parametrize("probability", [0.01, 0.15, 0.4, 1.0])
@pytest.mark.parametrize("lengths", SHAPES.values(), ids=SHAPES)
def test_units_are_taken_in_order_of_their_draws_until_the_rate_is_reached(
    lengths: list[int], probability: float
) -> None:
    for step in range(5):
        draws, draw = draws_of(lengths, step), np.random.default_rng(step)
        eligible = draw.random(sum(lengths)) < 0.9
        begins = (draw.random(sum(lengths)) < 0.6) | (draws.position == 0) | ~eligible
        unit, expected = np.cumsum(begins), []
        for number in range(len(lengths)):
            own = np.flatnonzero(eligible & (draws.owner == number))
            room = wanted(len(own), probability)
            first = own[np.unique(unit[own], return_index=True)[1]]
            bits, luck = draws.bits("masked", first), draws.bits("last unit", first) / 2.0**64
            for rank, place in enumerate(np.argsort(bits)):
                members = own[unit[own] == unit[first[place]]]
                if rank == 0 or len(members) <= room or luck[place] * len(members) < room:
                    expected += members.tolist()
                room -= len(members)
        assert choose_units(eligible, begins, draws, probability).tolist() == sorted(expected)


def test_where_nothing_may_be_chosen_nothing_is() -> None:
    draws, none = draws_of([5, 7], 0), np.zeros(12, bool)
    assert not len(choose_tokens(none, draws, 0.15)) and not len(choose_units(none, ~none, draws, 0.15))
