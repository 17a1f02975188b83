import numpy as np
import pytest

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
