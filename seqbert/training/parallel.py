"""One job of several processes, as torchrun starts them: who is who, what they tell each other, whose gradients add up.

A process that is alone never touches ``torch.distributed``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from seqbert.data.packing import Share
from seqbert.errors import Stopped, TrainingError
from seqbert.training.signals import StopSignals

PATIENCE = timedelta(days=1)
"""How long a process waits for another that still runs: one may train a tokenizer while the others wait."""


class World:
    """This process among those of its job.

    Attributes:
        rank: Its number, from 0.
        size: How many there are.
        local_rank: Its number on its machine, which is also that of its GPU.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, local_rank: int = 0, host: Any = None, signals: StopSignals | None = None
    ) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self._host = host  # exchanges what lies in the host's memory, whatever the device
        self.signals = signals or StopSignals()

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and speaks."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        """What it takes of every global batch."""
        return Share(self.rank, self.size)

    @property
    def is_told_to_stop(self) -> bool:
        """Whether this process has received a signal to stop."""
        return self.signals.received is not None

    def gather(self, row: Sequence[int]) -> np.ndarray:
        """The numbers of every process, ``[size, len(row)]`` int64."""
        own = torch.tensor(row, dtype=torch.int64)
        if self.size == 1:
            return own[None].numpy()
        rows = [torch.empty_like(own) for _ in range(self.size)]
        with exchange():
            dist.all_gather(rows, own, group=self._host)
        return torch.stack(rows).numpy()

    def total(self, array: np.ndarray) -> np.ndarray:
        """The sum over all processes, element by element."""
        if self.size == 1:
            return array
        summed = torch.from_numpy(array.copy())
        with exchange():
            dist.all_reduce(summed, group=self._host)
        return summed.numpy()

    def complete(self, rows: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Every process' part of a list made whole: each entry is given by one process, and None in the others.

        Entries have one or two axes; they come back as float32.
        """
        if self.size == 1:
            return [row for row in rows if row is not None]
        shapes = np.zeros((len(rows), 2), np.int64)
        for number, row in enumerate(rows):
            if row is not None:
                shapes[number] = row.shape if row.ndim == 2 else (row.shape[0], -1)
        shapes = self.total(shapes)
        sizes = np.abs(shapes).prod(1)
        flat = np.zeros(int(sizes.sum()), np.float32)
        ends = np.cumsum(sizes)
        for row, end, size in zip(rows, ends, sizes, strict=True):
            if row is not None:
                flat[end - size : end] = row.reshape(-1)
        flat = self.total(flat)
        whole = []
        for (rows_, columns), end, size in zip(shapes, ends, sizes, strict=True):
            values = flat[end - size : end]
            whole.append(values if columns < 0 else values.reshape(rows_, columns))
        return whole

    def tell(self, text: str) -> str:
        """What process 0 says, known to all."""
        if self.size == 1:
            return text
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if text else torch.zeros(0).byte()
        size = torch.tensor([len(content)])
        with exchange():
            dist.broadcast(size, 0, group=self._host)
            told = content if self.leads else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(told, 0, group=self._host)
        return bytes(told.tolist()).decode()

    def wait(self) -> None:
        """Returns when every process has come here."""
        self.gather([0])

    def agree(self, row: Sequence[int] = ()) -> np.ndarray:
        """As :meth:`gather`, where all processes may also end together.

        Raises:
            Stopped: One of them was told to stop.
        """
        table = self.gather([self.signals.received or 0, *row])
        signals = table[:, 0]
        if signals.any():
            raise Stopped(int(signals[signals > 0][0]))
        return table[:, 1:]

    def replicate(self, module: nn.Module) -> nn.Module:
        """A module whose gradients are added up over all processes in the backward pass; itself where it is alone.

        Sums, not means: a loss is divided by the count of the whole global step before. Which parameters a backward
        pass leaves out may differ from step to step: those of other vocabularies, or of a head without targets.
        """
        if self.size == 1:
            return module
        replica = nn.parallel.DistributedDataParallel(
            _WithSpare(module), gradient_as_bucket_view=True, find_unused_parameters=True
        )
        replica.register_comm_hook(None, lambda _, bucket: _add_up(bucket.buffer()))
        return replica


class _WithSpare(nn.Module):
    """A module with a parameter that no backward pass reaches.

    PyTorch takes a step that uses all parameters as a sign that looking for unused ones is in vain, and warns each user
    of it.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.spare = nn.Parameter(torch.zeros(1, device=next(module.parameters()).device))

    def forward(self, *arguments: Any) -> Any:
        return self.module(*arguments)


ALONE = World()


@contextmanager
def join(signals: StopSignals | None = None) -> Iterator[World]:
    """This process in the job that the environment names, as torchrun sets it; alone where it names none."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(signals=signals)
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    gpu = torch.cuda.is_available() and local_rank < torch.cuda.device_count()
    if gpu:
        torch.cuda.set_device(local_rank)
    backend = "cuda:nccl,cpu:gloo" if gpu else "gloo"
    signals = signals or StopSignals()
    try:
        with signals.unheard():
            met, rank, size = next(rendezvous("env://"))
            # torchrun keeps what is written there when it starts a job again, and with it the addresses of the dead.
            store = PrefixStore(f"{_restarts()} of {size}", met)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size)
            host = dist.new_group(backend="gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise TrainingError(
            f"Process {os.environ.get('RANK', 'without RANK')} does not find the other processes of its "
            f"job (WORLD_SIZE {size}): {reason}. If one of them has ended, its own message says why. Otherwise see "
            "whether torchrun starts them all, and whether the machines reach each other."
        ) from error
    yield World(rank, size, local_rank, host, signals)
    dist.destroy_process_group()  # not after an error: it would wait for processes that wait for this one


def is_restarted() -> bool:
    """Whether torchrun has started the job again after a process of it had died."""
    return _restarts() > 0


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def without_exchange(module: nn.Module) -> AbstractContextManager[Any]:
    """The context in which a replicated module keeps its gradients to itself, to be added up by a later backward."""
    no_sync = getattr(module, "no_sync", None)
    return nullcontext() if no_sync is None else cast("AbstractContextManager[Any]", no_sync())


@contextmanager
def exchange() -> Iterator[None]:
    """Around what waits for other processes.

    Raises:
        TrainingError: One of them is gone.
    """
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or "onnection" in str(error) or "peer" in str(error)
        if not (dist.is_initialized() and lost):
            raise
        raise TrainingError(
            f"Process {dist.get_rank()} ends because another process of the job has: what happened stands in that "
            "one's own message."
        ) from error


def _add_up(gradients: Tensor) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(gradients, async_op=True)
    future: torch.futures.Future[Any] = work.get_future()
    return future.then(lambda done: done.value()[0])
