import pickle

import numpy as np
import torch

from seqbert.data.packing import Target, pack, split


def test_split_keeps_every_token_and_every_target_with_its_label() -> None:
    sequences = [np.arange(10 * n, 10 * n + n + 2) for n in range(6)]
    batch = pack("letters", sequences)
    index = torch.tensor([0, 3, 7, 11, 20, 26])
    batch.targets = {
        "tokens": Target(index, batch.ids[index], torch.ones(6)),
        "pairs": Target(torch.tensor([0, 2, 5]), torch.tensor([1, 0, 1]), of_sequences=True),
    }
    pieces = split(batch, 10)
    assert torch.equal(torch.cat([piece.ids for piece in pieces]), batch.ids)
    assert all(piece.tokens <= 10 for piece in pieces)
    for piece in pieces:
        target = piece.targets["tokens"]
        assert torch.equal(piece.ids[target.index], target.labels)
        assert piece.cu_seqlens[0] == 0 and piece.cu_seqlens[-1] == piece.tokens
    pairs = [
        (int(p.record[i]), int(y))
        for p in pieces
        for i, y in zip(p.targets["pairs"].index, p.targets["pairs"].labels, strict=True)
    ]
    assert pairs == [(0, 1), (2, 0), (5, 1)]


def test_a_batch_is_sent_in_a_fraction_of_its_bytes_and_arrives_as_it_was() -> None:
    batch = pack("letters", [np.arange(300) % 250 + n for n in range(40)])
    batch.targets = {
        "tokens": Target(torch.arange(0, 9000, 7), torch.arange(1286) - 5, torch.rand(1286)),
        "pairs": Target(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), of_sequences=True),
    }
    sent = pickle.dumps(batch)
    assert len(sent) < batch.tokens * 3 * 8 / 3
    arrived = pickle.loads(sent)
    for name in ("ids", "segment_ids", "positions", "cu_seqlens", "record"):
        here, there = getattr(batch, name), getattr(arrived, name)
        assert here.dtype == there.dtype and torch.equal(here, there)
    for name, target in batch.targets.items():
        assert arrived.targets[name].labels.dtype == torch.int64
        assert torch.equal(arrived.targets[name].labels, target.labels)
        assert torch.equal(arrived.targets[name].index, target.index)
    assert torch.equal(arrived.targets["tokens"].symbols, batch.targets["tokens"].symbols)
    assert arrived.lengths == batch.lengths
