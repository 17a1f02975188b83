import numpy as np
import pytest
import torch

from seqbert.data.packing import PackedBatch, Target, idle, pack
from seqbert.data.static import NO_RECORD, Shape, cut, fill


def drawn(tokens: int, seed: int = 0, longest: int = 40) -> PackedBatch:
    """Sequences of a step in order of length, with targets on tokens and on sequences."""
    draw = np.random.default_rng(seed)
    lengths = []
    while sum(lengths) + longest <= tokens:
        lengths.append(int(draw.integers(4, longest + 1)))
    batch = pack("letters", [draw.integers(5, 99, length) for length in sorted(lengths)])
    chosen = torch.from_numpy(np.flatnonzero(draw.random(batch.tokens) < 0.2))
    asked = torch.arange(0, len(batch.lengths), 3)
    batch.targets = {
        "tokens": Target(chosen, batch.ids[chosen], torch.ones(len(chosen))),
        "pairs": Target(asked, batch.record[asked] % 2, of_sequences=True),
    }
    return batch


def targets(tokens: int, sequences: int) -> dict[str, int]:
    return {"tokens": tokens // 4, "pairs": sequences}


def shape(tokens: int, micro_tokens: int, ranks: int = 1) -> Shape:
    return Shape.of(tokens, tokens // 10, 40, micro_tokens, ranks, targets)


def held(pieces: list[PackedBatch]) -> tuple[list, list, list]:
    """What micro-batches hold that counts: sequences by record, and the targets of both terms, in any order."""
    sequences, of_tokens, of_sequences = [], [], []
    for piece in pieces:
        ends = piece.cu_seqlens.tolist()
        counted = {name: target.weight > 0 for name, target in piece.targets.items()}
        owners = torch.searchsorted(piece.cu_seqlens, piece.targets["tokens"].index, right=True) - 1
        for number, record in enumerate(piece.record.tolist()):
            if record != NO_RECORD:
                sequences.append((record, tuple(piece.ids[ends[number] : ends[number + 1]].tolist())))
        tokens = piece.targets["tokens"]
        for index, label, owner in zip(
            tokens.index[counted["tokens"]], tokens.labels[counted["tokens"]], owners[counted["tokens"]], strict=True
        ):
            place = int(index) - ends[owner]
            assert int(piece.positions[index]) == place
            of_tokens.append((int(piece.record[owner]), place, int(label)))
        pairs = piece.targets["pairs"]
        of_sequences += [
            (int(piece.record[index]), int(label))
            for index, label in zip(pairs.index[counted["pairs"]], pairs.labels[counted["pairs"]], strict=True)
        ]
    return sorted(sequences), sorted(of_tokens), sorted(of_sequences)


def sizes(piece: PackedBatch) -> tuple:
    rows = [len(value) for target in piece.targets.values() for value in (target.index, target.labels, target.weight)]
    return (piece.tokens, len(piece.segment_ids), len(piece.positions), len(piece.cu_seqlens), piece.limit, *rows)


@pytest.mark.parametrize("micro_tokens", [4096, 1500, 300])
def test_every_sequence_and_target_is_in_one_micro_batch_and_all_have_one_shape(micro_tokens: int) -> None:
    asked = shape(4096, micro_tokens)
    seen = set()
    for seed in range(20):
        batch = drawn(4096, seed)
        pieces = cut(batch, asked)
        seen |= {sizes(piece) for piece in pieces}
        whole = fill(batch, Shape(batch.tokens, len(batch.lengths), 40, {n: 5000 for n in batch.targets}))
        assert held(pieces) == held([whole])
    assert len(seen) == 1


def test_micro_batches_of_a_full_step_leave_at_most_a_hundredth_to_the_tail() -> None:
    shares = []
    for seed in range(20):
        batch = drawn(32768 + 20, seed)
        pieces = cut(batch, shape(32768, 8192))
        assert len(pieces) == 4
        shares.append(1 - batch.tokens / sum(piece.tokens for piece in pieces))
    assert 0 < np.mean(shares) < 0.01


def test_what_the_lists_have_no_room_for_makes_a_micro_batch_more() -> None:
    batch = drawn(1024)
    narrow = Shape(1024, len(batch.lengths), 40, {"tokens": len(batch.targets["tokens"].index) - 1, "pairs": 99})
    pieces = cut(batch, narrow)
    assert len(pieces) == 2 and sizes(pieces[0]) == sizes(pieces[1])
    few = Shape(1024, len(batch.lengths) - 1, 40, {"tokens": 1024, "pairs": 99})
    assert len(cut(batch, few)) == 2


def test_a_sequence_that_no_shape_holds_is_an_error() -> None:
    with pytest.raises(ValueError, match="at most"):
        cut(drawn(1024), Shape(16, 99, 16, {"tokens": 99, "pairs": 99}))


def test_a_batch_that_does_not_count_still_has_the_shape() -> None:
    batch, asked = drawn(1024), shape(1024, 1024)
    (piece,) = cut(idle(batch), asked)
    assert not piece.counted and sizes(piece) == sizes(cut(batch, asked)[0])


def test_the_tail_is_made_of_sequences_no_longer_than_a_kernel_expects() -> None:
    piece = fill(drawn(1024), shape(4096, 4096))
    assert max(piece.lengths) == 40 and piece.longest == 40
    assert sum(piece.lengths) == piece.tokens == int(piece.cu_seqlens[-1])
    assert piece.cu_seqlens.diff().tolist() == list(piece.lengths)
    assert int(piece.positions.max()) < 40


def test_several_processes_have_room_for_a_sequence_more_than_their_share() -> None:
    one, two = shape(4096, 4096), shape(4096, 4096, ranks=2)
    assert two.tokens >= one.tokens // 2 + 40
    assert two.tokens <= one.tokens // 2 + 40 + 64
