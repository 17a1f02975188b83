"""What is held out: nothing leaks, strata and shares are kept, and the choice is the records' own."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from seqbert.data.holdout import hold_out, shared_sequences, take
from seqbert.domain import Example
from seqbert.errors import DataError


def records(labels: Sequence[object], **metadata: Sequence[str]) -> list[Example]:
    return [
        Example(str(n), (f"text {n}",), label, metadata={key: values[n] for key, values in metadata.items()})
        for n, label in enumerate(labels)
    ]


def label(example: Example) -> object:
    return example.label


def ids(examples: Sequence[Example]) -> list[str]:
    return [example.id for example in examples]


def test_each_class_has_its_share_and_the_order_is_kept() -> None:
    examples = records(["a"] * 700 + ["b"] * 250 + ["c"] * 50)
    kept, held = hold_out(examples, 0.1, stratum=label)
    assert Counter(map(label, held)) == {"a": 70, "b": 25, "c": 5}
    assert ids(kept) == sorted(ids(kept), key=int) and ids(held) == sorted(ids(held), key=int)
    assert sorted(ids(kept) + ids(held), key=int) == ids(examples)


def test_the_total_is_right_even_where_every_class_is_rare() -> None:
    _, held = hold_out(records([n // 3 for n in range(900)]), 0.1, stratum=label)
    assert len(held) == 90
    assert max(Counter(map(label, held)).values()) == 1


def test_the_choice_is_the_same_in_any_order_of_the_records() -> None:
    examples = records([n % 3 for n in range(500)])
    shuffled = random.Random(1).sample(examples, len(examples))
    assert set(ids(hold_out(examples, 0.2, stratum=label)[1])) == set(ids(hold_out(shuffled, 0.2, stratum=label)[1]))


def test_a_class_of_one_record_stays_in_train() -> None:
    kept, _ = hold_out(records(["a"] * 99 + ["b"]), 0.1, stratum=label)
    assert "b" in set(map(label, kept))


def test_equal_sequences_are_on_one_side_whatever_their_labels() -> None:
    examples = [Example(str(n), (f"text {n % 60}",), n % 7) for n in range(200)]
    kept, held = hold_out(examples, 0.25, stratum=label)
    assert shared_sequences(kept, held) == 0
    assert abs(len(held) - 50) <= 2


def test_groups_are_whole_and_chains_of_duplicates_and_groups_too() -> None:
    rng = random.Random(0)
    groups = [f"article {rng.randrange(30)}" for _ in range(600)]
    examples = records([0] * 600, group=groups)
    examples[5].sequences = examples[6].sequences  # two groups that share a record
    kept, held = hold_out(examples, 0.2, group="group")
    assert not {e.metadata["group"] for e in kept} & {e.metadata["group"] for e in held}
    assert shared_sequences(kept, held) == 0
    assert abs(len(held) - 120) <= 3


def test_groups_reach_the_share_as_nearly_as_they_can() -> None:
    sizes = {"a": 50, "b": 20, "c": 17, "d": 13}
    groups = [name for name, size in sizes.items() for _ in range(size)]
    assert len(hold_out(records([0] * 100, group=groups), 0.33, group="group")[1]) == 33  # b and d
    assert len(hold_out(records([0] * 100, group=groups), 0.5, group="group")[1]) == 50


def test_records_without_the_group_key_stand_alone() -> None:
    examples = records([0] * 20)
    examples[0].metadata["group"] = examples[1].metadata["group"] = "g"
    _, held = hold_out(examples, 0.5, group="group")
    assert len(held) == 10 and len({"0", "1"} & set(ids(held))) in (0, 2)


def test_neither_side_is_empty() -> None:
    for share in (0.001, 0.999):
        kept, held = hold_out(records([0, 1, 2]), share, stratum=label)
        assert kept and held
    kept, held = hold_out(records([0] * 10, group=["a"] * 8 + ["b"] * 2), 0.4, group="group")
    assert (len(kept), len(held)) == (8, 2)


def test_what_cannot_be_divided_is_an_error_that_says_why() -> None:
    with pytest.raises(DataError, match="all 5 records are of one group by group"):
        hold_out(records([0] * 5, group=["g"] * 5), 0.2, group="group")
    with pytest.raises(DataError, match="all 2 records are equal"):
        hold_out([Example("0", ("a",)), Example("1", ("a",))], 0.5)
    with pytest.raises(DataError, match="there are 0 records"):
        hold_out([], 0.5)
    with pytest.raises(DataError, match=r"above 0 and below 1"):
        hold_out(records([0, 1]), 1.0)
    with pytest.raises(DataError, match='metadata key "work".*they have composer, title'):
        hold_out(records([0, 0], composer=["x", "y"], title=["t", "u"]), 0.5, group="work")


def test_a_smaller_part_is_within_a_larger_one_and_in_order() -> None:
    examples = records(list(range(1000)))
    small, large = take(examples, 100), take(examples, 400)
    assert len(small) == 100 and set(ids(small)) < set(ids(large))
    assert ids(large) == sorted(ids(large), key=int)
    assert take(examples, 5000) == examples
    assert 30 < sum(int(name) >= 500 for name in ids(small)) < 70


def test_a_part_of_what_is_kept_is_no_less_mixed() -> None:
    examples = records([n % 4 for n in range(2000)])
    kept, _ = hold_out(examples, 0.5, stratum=label)
    assert all(80 < count < 120 for count in Counter(map(label, take(kept, 400))).values())


def test_shared_sequences_counts_records_of_the_other_side() -> None:
    train = [Example("0", ("a", "b")), Example("1", ("c",))]
    other = [Example("0", ("c",)), Example("1", ("c",)), Example("2", ("b", "a"))]
    assert shared_sequences(train, other) == 2
