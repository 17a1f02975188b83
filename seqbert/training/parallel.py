"""One job of several processes, as torchrun starts them: who is who, what they tell each other, whose gradients add up.

A process that is alone never touches ``torch.distributed``.
"""

from __future__ import annotations

import hashlib
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from seqbert.data.packing import Share
from seqbert.errors import CheckpointError, ConfigError, Stopped, TrainingError
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

    def same(self, content: str, what: str) -> None:
        """Makes sure that all processes were given the same.

        Raises:
            ConfigError: They were not.
        """
        if not self._have_all(content.encode()):
            raise ConfigError(
                f"The processes of the job were not started with the same {what}: give all the same command."
            )

    def sees_alike(self, path: Path) -> None:
        """Makes sure that all processes see the same file, as they do on a file system that they share.

        Raises:
            CheckpointError: They do not.
        """
        if not self._have_all(path.read_bytes() if path.is_file() else b""):
            raise CheckpointError(
                f'The processes of the job do not see the same file "{path}": the output folder must lie on a file '
                "system that all of them share, and that shows to one what another wrote."
            )

    def _have_all(self, content: bytes) -> bool:
        """Whether every process has the same content."""
        digest = int.from_bytes(hashlib.sha256(content).digest()[:7], "big")
        return len(set(self.gather([digest])[:, 0].tolist())) == 1

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
        return module if self.size == 1 else replica_of(module)


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


def restarted_job() -> str | None:
    """The name of the job, if torchrun has started it again after a process of it had died."""
    return job_name() if _restarts() > 0 else None


def job_name() -> str | None:
    """What tells this launch of torchrun from others, also from those of the same id; None where there was none."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if job is None else f"{job} {socket.gethostname()} {os.getppid()}"


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def without_exchange(module: nn.Module) -> AbstractContextManager[Any]:
    """The context in which a replicated module keeps its gradients to itself, to be added up by a later backward."""
    no_sync = getattr(module, "no_sync", None)
    return nullcontext() if no_sync is None else cast("AbstractContextManager[Any]", no_sync())


def replica_of(module: nn.Module) -> nn.Module:
    """A module whose gradients are added up over the default process group, of any size, in the backward pass."""
    # Unused parameters are looked for even where there can be none: otherwise PyTorch arranges its buckets anew after
    # the first step of a process. A resumed run would then add its numbers up in another order than the run that was
    # not interrupted, and three processes or more would no longer arrive at the same bytes.
    replica = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True, find_unused_parameters=True)
    replica.register_comm_hook(None, lambda _, bucket: _add_up(bucket.buffer()))
    _spend_warning(next(module.parameters()).device)
    return replica


def _spend_warning(device: torch.device) -> None:
    """Lets PyTorch say unheard what it says once in each process that looks for unused parameters and finds none.

    A spare parameter that is never used would silence it too, but have each step wait for the GPU: what no process has
    used is known only when a map of all of them has been added up and copied to the host.
    """
    probe = nn.parallel.DistributedDataParallel(nn.LayerNorm(1, device=device), find_unused_parameters=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
        _Heard.apply(lambda: probe(torch.ones(1, 1, device=device)))  # type: ignore[no-untyped-call]


class _Heard(torch.autograd.Function):
    """A call whose warnings from C++ become Python's.

    The reducer behind ``DistributedDataParallel`` writes its own to stderr unless C++ code further up the stack
    collects them, as that of a custom autograd function does.
    """

    @staticmethod
    def forward(ctx: Any, call: Callable[[], object]) -> None:
        with torch.enable_grad():
            call()


@contextmanager
def exchange() -> Iterator[None]:
    """Around what waits for other processes.

    Raises:
        TrainingError: One of them is gone.
    """
    try:
        yield
    except RuntimeError as error:
        signs = ("onnection", "peer", "imed out")
        lost = isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)
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
