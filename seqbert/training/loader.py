"""Prepares the batches of coming steps in the background."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch.utils.data import DataLoader, Dataset

from seqbert.data.packing import PackedBatch


class Batches(Protocol):
    """Makes the global batch of one vocabulary: an objective or a task."""

    def examples(self, source: Any, step: int) -> PackedBatch:
        """The batch of a step, from what the source holds."""
        ...


class StepBatches(Dataset[list[PackedBatch]]):
    """The global batch of each step: one for each vocabulary, always in the same order."""

    def __init__(self, parts: Sequence[tuple[Batches, Any]]) -> None:
        self._parts = parts

    def __getitem__(self, step: int) -> list[PackedBatch]:
        return [maker.examples(source, step) for maker, source in self._parts]


def load_steps(parts: Sequence[tuple[Batches, Any]], steps: range, workers: int) -> Iterator[list[PackedBatch]]:
    """The batches of the steps, in order; the same ones for any number of workers."""
    loader: DataLoader[Any] = DataLoader(
        StepBatches(parts),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=_leave_interrupts_to_the_main_process,
    )
    return iter(loader)


def _as_it_is(batch: list[PackedBatch]) -> list[PackedBatch]:
    return batch


def _leave_interrupts_to_the_main_process(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
