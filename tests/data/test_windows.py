import hashlib
import pickle
import tracemalloc

import numpy as np
import pytest

from seqbert.data.groups import Groups
from seqbert.data.sampling import BLOCK
from seqbert.data.windows import Windows


@pytest.mark.parametrize("size", [16, 126])
@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_the_windows_of_an_epoch_hold_every_token_once_and_none_is_too_long(size: int, epoch: int) -> None:
    tokens = np.random.default_rng(0).integers(1, 1000, 300)
    windows = Windows(tokens, size)
    document, start, stop = windows.locate(np.arange(windows.total), np.full(windows.total, epoch), seed=0)
    assert (stop - start).min() >= 1 and (stop - start).max() <= size
    order = np.lexsort((start, document))
    document, start, stop = document[order], start[order], stop[order]
    first = np.append(True, document[1:] != document[:-1])
    assert (start[first] == 0).all() and (start[1:][~first[1:]] == stop[:-1][~first[1:]]).all()
    assert np.array_equal(np.bincount(document, stop - start), tokens)


def test_windows_of_one_long_document_are_found_across_blocks() -> None:
    windows = Windows(np.array([50, 10 * (BLOCK + 1000), 7]), 10)
    numbers = np.array([0, BLOCK - 1, BLOCK, windows.total - 1])
    document, start, stop = windows.locate(numbers, np.zeros(4, int), seed=0)
    assert document.tolist() == [0, 1, 1, 2]
    assert stop[1] == start[2]


def test_long_documents_are_cut_elsewhere_in_each_epoch() -> None:
    windows = Windows(np.array([1000]), 100)
    cuts = {int(windows.locate(np.array([1]), np.array([epoch]), seed=0)[1][0]) for epoch in range(20)}
    assert len(cuts) > 10


def test_windows_are_those_of_the_first_version() -> None:
    windows = Windows(np.random.default_rng(0).integers(1, 1500, 70_000), 510)
    numbers = np.arange(0, windows.total, 11)
    assert windows.total == 160_868
    for epoch, expected in ((0, "16e95512708ed3bc"), (3, "1fc58f61c05e1658")):  # a run may be resumed by a later one
        found = windows.locate(numbers, np.full(len(numbers), epoch), seed=9)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(a, np.int64).tobytes() for a in found)).hexdigest()
        assert digest[:16] == expected


@pytest.mark.parametrize("in_order", [True, False])
def test_windows_of_groups_are_those_of_each_group_alone_laid_end_to_end(in_order: bool) -> None:
    draw = np.random.default_rng(0)
    documents = 2 * BLOCK + 999
    tokens = draw.integers(1, 300, documents)
    column = draw.choice([0, 3, 7], documents, p=[0.9, 0.0999, 0.0001]).astype(np.uint16)
    if in_order:
        column.sort()
    windows = Windows(tokens, 100, Groups(documents, column))
    for number, code in enumerate((0, 3, 7)):
        members = np.flatnonzero(column == code)
        alone = Windows(tokens[members], 100)
        assert alone.total == windows.of_group[number]
        numbers = draw.permutation(alone.total)[:5000]
        epochs = draw.integers(0, 3, len(numbers))
        document, start, stop = alone.locate(numbers, epochs, seed=2)
        found = windows.locate(windows.first[number] + numbers, epochs, seed=2)
        assert all(np.array_equal(a, b) for a, b in zip(found, (members[document], start, stop), strict=True))


def test_counts_take_a_thousandth_of_the_memory_that_the_documents_would() -> None:
    documents = 2**22
    tokens = np.full(documents, 700, np.int32)
    tracemalloc.start()
    try:
        windows = Windows(tokens, 510)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert windows.total == 2 * documents
    assert held < 8 * documents / 250


def test_windows_go_to_another_process_without_the_documents_and_find_the_same_there() -> None:
    draw = np.random.default_rng(0)
    tokens, column = draw.integers(1, 300, 100_000), draw.integers(0, 4, 100_000).astype(np.uint16)
    windows = Windows(tokens, 100, Groups(len(tokens), column))
    sent = pickle.dumps(windows)
    assert len(sent) < len(tokens) / 20
    again = pickle.loads(sent)
    again.attach(tokens, column)
    numbers = np.arange(0, windows.total, 7)
    there, here = (w.locate(numbers, np.zeros_like(numbers), seed=0) for w in (again, windows))
    assert all(np.array_equal(a, b) for a, b in zip(there, here, strict=True))


def test_no_windows_are_found_where_none_are_asked_for_or_there_are_none() -> None:
    nothing = np.zeros(0, np.int64)
    assert Windows(nothing, 100).total == 0
    assert [len(found) for found in Windows(np.array([5]), 100).locate(nothing, nothing, seed=0)] == [0, 0, 0]
