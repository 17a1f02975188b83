"""Sequences end to end in one stream: no padding, no attention across a boundary.

A :class:`PackedBatch` holds the tokens of one vocabulary. Sequences stand in order of length, so that those of
nearly equal length lie side by side and attention can treat them as one dense block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from seqbert.data.ranges import count_up


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """The part of every global batch that one of several processes builds and trains on.

    Attributes:
        rank: Number of the process.
        ranks: Number of processes.
    """

    rank: int = 0
    ranks: int = 1

    def of(self, order: np.ndarray) -> np.ndarray:
        """Every ``ranks``-th of what stands in order of length, so that all processes have equally much to do.

        >>> Share(1, 3).of(np.array([10, 11, 12, 13, 14])).tolist()
        [11, 14]
        """
        return order[self.rank :: self.ranks]


WHOLE = Share()
"""The share of a process that is alone."""


class _Sent:
    """Pickles tensors as arrays, so that they go to another process through its pipe and not in shared memory.

    Whole numbers go in as few bytes as they need, a quarter or an eighth of their own.
    """

    __slots__ = ()

    def __getstate__(self) -> list[Any]:
        values = [getattr(self, field.name) for field in dataclasses.fields(cast(Any, self))]
        return [_narrow(value.numpy()) if isinstance(value, Tensor) else value for value in values]

    def __setstate__(self, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(cast(Any, self)), state, strict=True):
            if isinstance(value, _Narrow):
                value = value.array.astype(np.int64)
            setattr(self, field.name, torch.from_numpy(value) if isinstance(value, np.ndarray) else value)


class _Narrow(NamedTuple):
    """An array of int64 in fewer bytes."""

    array: np.ndarray


def _narrow(array: np.ndarray) -> np.ndarray | _Narrow:
    if array.dtype != np.int64 or not array.size:
        return array
    ends = np.min_scalar_type(int(array.min())), np.min_scalar_type(int(array.max()))
    return _Narrow(array.astype(np.promote_types(*ends)))


@dataclasses.dataclass(slots=True)
class Target(_Sent):
    """What one objective has to say about a batch.

    Attributes:
        index: Where the targets stand: places in the token stream, or numbers of sequences; rising, ``[targets]``
            int64.
        labels: The true token ids or classes, ``[targets]`` int64; of other shapes and types where a task says so.
        symbols: How many symbols each target hides, ``[targets]`` float32; None where bits have no meaning.
        of_sequences: Whether ``index`` counts sequences rather than tokens.
        weight: What each target counts, ``[targets]`` float32: 0 where it only fills a list up. None: 1 each.
    """

    index: Tensor
    labels: Tensor
    symbols: Tensor | None = None
    of_sequences: bool = False
    weight: Tensor | None = None

    def to(self, device: torch.device) -> Target:
        """The same target on a device."""
        symbols, weight = (None if tensor is None else _on(tensor, device) for tensor in (self.symbols, self.weight))
        return Target(_on(self.index, device), _on(self.labels, device), symbols, self.of_sequences, weight)


@dataclasses.dataclass(slots=True)
class PackedBatch(_Sent):
    """One flat stream of tokens of one vocabulary.

    Attributes:
        vocabulary: Name of the vocabulary: the domain's name.
        ids: Token ids, ``[tokens]`` int64.
        segment_ids: 0 for the first part of a pair, 1 for the second, ``[tokens]`` int64.
        positions: Place of each token in its sequence, ``[tokens]`` int64; restarts at 0.
        cu_seqlens: Where sequences begin and end, ``[sequences + 1]`` int32, from 0 to ``tokens``.
        lengths: Lengths of the sequences, on the host, so that no kernel waits for them.
        record: Which record each sequence belongs to, ``[sequences]`` int64.
        targets: What is to be predicted, by the name of the loss term.
        choice: Which of its record's choices each sequence holds, ``[sequences]`` int64; neighbours of one record
            are then never parted. None where records have no choices.
        counted: Whether its targets count. Where a step has fewer sequences than there are processes, those without one
            go through the motions with a sequence that does not.
        limit: Most tokens of a sequence in batches of the same static shape; None where the shape is the batch's own.
        boundaries: ``cu_seqlens`` on the host, whatever the device; of batches of a static shape alone.
    """

    vocabulary: str
    ids: Tensor
    segment_ids: Tensor
    positions: Tensor
    cu_seqlens: Tensor
    lengths: tuple[int, ...]
    record: Tensor
    targets: dict[str, Target] = dataclasses.field(default_factory=dict)
    choice: Tensor | None = None
    counted: bool = True
    limit: int | None = None
    boundaries: Tensor | None = None

    @classmethod
    def of(
        cls,
        vocabulary: str,
        ids: np.ndarray,
        segment_ids: np.ndarray,
        lengths: np.ndarray,
        record: np.ndarray,
        targets: dict[str, Target],
        positions: np.ndarray | None = None,
    ) -> PackedBatch:
        """A batch from numpy arrays: ``ids`` and ``segment_ids`` ``[tokens]``, the others ``[sequences]``.

        ``positions``, ``[tokens]``, are given where they are known already.
        """
        boundaries = np.concatenate([[0], np.cumsum(lengths)])
        positions = count_up(lengths) if positions is None else positions
        return cls(
            vocabulary,
            torch.from_numpy(np.ascontiguousarray(ids, np.int64)),
            torch.from_numpy(np.ascontiguousarray(segment_ids, np.int64)),
            torch.from_numpy(positions),
            torch.from_numpy(boundaries.astype(np.int32)),
            tuple(lengths.tolist()),
            torch.from_numpy(np.asarray(record, np.int64)),
            targets,
        )

    @property
    def tokens(self) -> int:
        """Number of tokens in the stream."""
        return len(self.ids)

    @property
    def longest(self) -> int:
        """Most tokens that a sequence has, or with a static shape may have."""
        return max(self.lengths, default=0) if self.limit is None else self.limit

    def to(self, device: torch.device) -> PackedBatch:
        """The same batch on a device, on its way there when this returns: nothing waits for what a GPU still computes.

        The one on the host may be dropped at once.
        """
        ids, segment_ids, positions, cu_seqlens, record = (
            _on(tensor, device) for tensor in (self.ids, self.segment_ids, self.positions, self.cu_seqlens, self.record)
        )
        targets = {name: target.to(device) for name, target in self.targets.items()}
        choice = None if self.choice is None else _on(self.choice, device)
        return PackedBatch(
            self.vocabulary,
            ids,
            segment_ids,
            positions,
            cu_seqlens,
            self.lengths,
            record,
            targets,
            choice,
            self.counted,
            self.limit,
            self.boundaries,
        )


def _on(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. The copy to a GPU runs in the background, which it does from pinned memory alone.

    Pinned here rather than where batches are made: those come through pipes and are split, into memory of every kind.
    PyTorch keeps pinned memory for the next batch, and until the copy is done.
    """
    if device.type == "cuda" and tensor.is_cpu:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def pack(vocabulary: str, sequences: Sequence[np.ndarray]) -> PackedBatch:
    """Packs sequences of token ids, each ``[length]``, into one stream in the order given.

    >>> batch = pack("text", [np.array([2, 7, 3]), np.array([2, 8, 9, 3])])
    >>> batch.positions.tolist(), batch.cu_seqlens.tolist()
    ([0, 1, 2, 0, 1, 2, 3], [0, 3, 7])
    """
    lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
    ids = np.concatenate(sequences) if len(sequences) else np.zeros(0, np.int64)
    return PackedBatch.of(vocabulary, ids, np.zeros_like(ids), lengths, np.arange(len(lengths)), {})


def split(batch: PackedBatch, micro_tokens: int) -> list[PackedBatch]:
    """Cuts a batch between sequences into pieces of at most ``micro_tokens`` tokens (or of one longer sequence).

    The choices of a record stay together.

    >>> batch = pack("text", [np.arange(3), np.arange(4), np.arange(5)])
    >>> [piece.lengths for piece in split(batch, 8)]
    [(3, 4), (5,)]
    """
    pieces, first = [], 0
    ends = [0, *accumulate(batch.lengths)]
    for here, edge in pairwise(_edges(batch)):
        if here > first and ends[edge] - ends[first] > micro_tokens:
            pieces.append(_piece(batch, first, here))
            first = here
    if batch.lengths:
        pieces.append(_piece(batch, first, len(batch.lengths)))
    return pieces


def idle(batch: PackedBatch) -> PackedBatch:
    """The first sequence of a batch, or the choices of its first record, as a batch that does not count."""
    return dataclasses.replace(_piece(batch, 0, _edges(batch)[1]), counted=False)


def _edges(batch: PackedBatch) -> list[int]:
    """The sequences before which a batch may be cut, and its end."""
    if batch.choice is None:
        return list(range(len(batch.lengths) + 1))
    changes = (batch.record[1:] != batch.record[:-1]).nonzero().squeeze(1) + 1
    return [0, *changes.tolist(), len(batch.lengths)]


def _piece(batch: PackedBatch, first: int, last: int) -> PackedBatch:
    start, stop = int(batch.cu_seqlens[first]), int(batch.cu_seqlens[last])
    targets = {}
    for name, target in batch.targets.items():
        low, high = (first, last) if target.of_sequences else (start, stop)
        chosen = slice(*torch.searchsorted(target.index, torch.tensor([low, high])).tolist())
        symbols = None if target.symbols is None else target.symbols[chosen]
        weight = None if target.weight is None else target.weight[chosen]
        targets[name] = Target(target.index[chosen] - low, target.labels[chosen], symbols, target.of_sequences, weight)
    return PackedBatch(
        batch.vocabulary,
        batch.ids[start:stop],
        batch.segment_ids[start:stop],
        batch.positions[start:stop],
        batch.cu_seqlens[first : last + 1] - start,
        batch.lengths[first:last],
        batch.record[first:last],
        targets,
        None if batch.choice is None else batch.choice[first:last],
        batch.counted,
    )
