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
