"""Many stretches of a corpus are read at once, whatever files and record batches they lie in."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from seqbert.data.corpus import TokenStore


def write_shards(folder: Path, sizes: list[list[int]]) -> np.ndarray:
    """Shards of record batches of these sizes, and all their ids."""
    ids = np.random.default_rng(0).integers(0, 30_000, sum(map(sum, sizes))).astype(np.uint16)
    schema = pa.schema([("ids", pa.uint16()), ("unit_start", pa.uint8())])
    done = 0
    for shard, batches in enumerate(sizes):
        with pa.ipc.new_file(str(folder / f"tokens-{shard:05d}.arrow"), schema) as writer:
            for size in batches:
                own = ids[done : done + size]
                writer.write_batch(pa.record_batch([pa.array(own), pa.array((own % 3 == 0).astype(np.uint8))], schema))
                done += size
    return ids


@pytest.mark.parametrize("sizes", [[[1000]], [[40, 7, 300], [], [5], [200, 448]]], ids=["one batch", "several shards"])
def test_stretches_are_read_as_one_by_one_with_room_around_them(tmp_path: Path, sizes: list[list[int]]) -> None:
    ids = write_shards(tmp_path, sizes)
    store = TokenStore(tmp_path, len(sizes))
    draw = np.random.default_rng(1)
    start = np.append(draw.integers(0, 999, 50), [0, 0, 999, 39, 346])
    stop = np.append(np.minimum(1000, start[:50] + draw.integers(1, 400, 50)), [1000, 1, 1000, 48, 353])
    after = draw.integers(0, 2, len(start))
    for name, column in (("ids", ids), ("unit_start", ids % 3 == 0)):
        found = store.gather(name, start, stop, after)
        assert len(found) == (stop - start + 1 + after).sum()
        begins = np.cumsum(stop - start + 1 + after) - (stop - start) - after
        for low, high, begin in zip(start, stop, begins, strict=True):
            assert np.array_equal(found[begin : begin + high - low], column[low:high])
        found[:] = 0  # it is a copy
    assert np.array_equal(store.ids(0, 1000), ids)
