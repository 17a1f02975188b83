import numpy as np
import pytest
from letters import Letters

from seqbert.data.packing import split
from seqbert.data.records import Batcher, Inputs, Records, lay_out, places_in_original
from seqbert.domain import Example
from seqbert.errors import DataError


@pytest.fixture
def letters() -> Letters:
    domain = Letters()
    domain.use(domain.tokenizer(iter(()), None))
    return domain


def encode(letters: Letters, *rows: tuple[str, ...], shape="texts", offsets=False) -> Records:
    examples = [Example(str(n), row, source=f"table:{n}") for n, row in enumerate(rows)]
    return Records.encode(examples, letters, shape, offsets)


def batcher(records: Records, inputs: Inputs, batch_size: int = 4, together: bool = False, seed: int = 0) -> Batcher:
    return Batcher(records, inputs, "letters", 2, 3, seed, batch_size, together)


def test_a_text_that_records_share_is_encoded_once(letters):
    records = encode(letters, ("ab", "cde"), ("fg", "cde"), shape="question")
    assert len(records.ids) == 2 + 3 + 2
    assert records.texts[0][1] == records.texts[1][1]


def test_windows_hold_every_token_of_long_records_and_overlap_by_half(letters):
    records = encode(letters, ("abcdefghij" * 3,), ("abc",))
    inputs = lay_out(records, "texts", 12, "window", None)
    spans = [(start, stop) for _, start, stop in inputs.parts[inputs.record == 0, 0].tolist()]
    assert spans == [(0, 10), (5, 15), (10, 20), (15, 25), (20, 30)]
    assert (inputs.windowed, inputs.cut, inputs.cut_tokens) == (1, 0, 0)
    assert inputs.lengths.max() == 12


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("ab", "abcdefghij", [(2, 7)] * 2),  # the longer one is cut, the shorter one stays whole
        ("abcdefghij", "ab", [(7, 2)] * 2),
        ("abcdefghij", "abcdefghij", [(4, 5)] * 4),  # neither leaves room for the other
    ],
)
def test_of_a_pair_the_longer_text_is_cut_into_windows(letters, first, second, expected):
    records = encode(letters, (first, second))
    inputs = lay_out(records, "texts", 12, "window", None)
    widths = [tuple(stop - start for _, start, stop in parts) for parts in inputs.parts.tolist()]
    assert widths == expected
    for side, text in enumerate((first, second)):
        seen = {place for _, start, stop in inputs.parts[:, side].tolist() for place in range(start, stop)}
        assert seen == set(range(len(text)))


def test_a_question_stays_whole_beside_each_window_of_its_context(letters):
    records = encode(letters, ("abc", "abcdefghij" * 2), shape="question")
    inputs = lay_out(records, "question", 13, "window", 4)
    assert {tuple(part) for part in inputs.parts[:, 0, 1:].tolist()} == {(0, 3)}
    assert [tuple(part) for part in inputs.parts[:, 1, 1:].tolist()] == [(0, 7), (4, 11), (8, 15), (12, 19), (13, 20)]


def test_row78_each_policy_for_long_records_has_its_outcome(letters):
    records = encode(letters, ("a" * 600,), ("b",))
    windowed = lay_out(records, "texts", 512, "window", None)
    assert (len(windowed), windowed.windowed, windowed.cut) == (3, 1, 0)
    cut = lay_out(records, "texts", 512, "cut", None)
    assert (len(cut), cut.cut, cut.cut_tokens) == (2, 1, 90)
    with pytest.raises(DataError, match="table:0: with its special tokens the record has 602 tokens"):
        lay_out(records, "texts", 512, "error", None)


def test_an_epoch_visits_each_item_once_and_its_last_step_is_smaller(letters):
    records = encode(letters, *[(letter * n,) for letter in "abcde" for n in (1, 2)])
    inputs = lay_out(records, "texts", 16, "window", None)
    batches = batcher(records, inputs)
    assert batches.steps_per_epoch == 3
    for epoch in (0, 1):
        steps = [batches.step(epoch * 3 + n).tolist() for n in range(3)]
        assert [len(step) for step in steps] == [4, 4, 2]
        assert sorted(number for step in steps for number in step) == list(range(10))
    assert batches.step(0).tolist() != batches.step(3).tolist()
    assert batches.step(0).tolist() != batcher(records, inputs, seed=1).step(0).tolist()


@pytest.mark.parametrize("budget", [1, 7, 40, 10_000])
def test_row82_every_sequence_is_evaluated_whatever_the_size_of_a_batch(letters, budget):
    records = encode(letters, *[("a" * n,) for n in (3, 1, 9, 4, 4, 2, 8)])
    inputs = lay_out(records, "texts", 16, "window", None)
    seen = [chosen.tolist() for chosen in batcher(records, inputs).all(budget)]
    assert sorted(number for chosen in seen for number in chosen) == list(range(7))
    assert all(inputs.lengths[chosen].sum() <= max(budget, inputs.lengths.max()) for chosen in map(np.array, seen))


def test_a_packed_pair_has_the_layout_of_bert(letters):
    records = encode(letters, ("ab", "c"))
    batch = batcher(records, lay_out(records, "texts", 16, "window", None)).pack(np.array([0]))
    assert batch.ids.tolist() == [2, 5, 6, 3, 7, 3]
    assert batch.segment_ids.tolist() == [0, 0, 0, 0, 1, 1]


def test_the_choices_of_a_record_are_never_parted(letters):
    records = encode(letters, *[("ab", "c" * n, "d" * 9) for n in (1, 5, 3)], shape="choices")
    inputs = lay_out(records, "choices", 32, "window", None)
    batch = batcher(records, inputs, together=True).pack(np.arange(6))
    for micro_tokens in (1, 20, 30, 1000):
        for piece in split(batch, micro_tokens):
            assert sorted(np.bincount(piece.record.numpy()).tolist()) in (
                [0, 2],
                [2],
                [0, 0, 2],
                [2, 2],
                [0, 2, 2],
                [2, 2, 2],
            )
            assert piece.choice.tolist() == [0, 1] * (len(piece.lengths) // 2)


@pytest.mark.parametrize(
    ("original", "canonical"),
    [("a  B", "a b"), ("  Blue Nile", "blue nile"), ("caf\u0065\u0301 x", "caf\u00e9 x"), ("ac gt\nA", "ACGTA")],
)
def test_places_in_canonical_text_lead_back_to_the_original(original, canonical):
    starts, ends = places_in_original(original, canonical)
    assert (np.diff(starts) >= 0).all() and (starts < ends).all()
    spelled = "".join(original[start:end] for start, end in zip(starts, ends, strict=True))
    assert spelled.replace(" ", "").lower()[:2] == original.strip().replace(" ", "").lower()[:2]
    assert int(ends[-1]) == len(original)
