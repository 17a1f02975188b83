"""Where a run computes, and in which precision; nothing here changes an outcome beyond rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar, cast

import torch

from seqbert.data.allocator import keep_freed_memory
from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model
from seqbert.training.parallel import ALONE, World

Part = TypeVar("Part", bound=Callable[..., Any])

COMPILATIONS = 64
"""Most graphs of one function: a few kinds of blocks and the embeddings of each vocabulary, for each of the stages in
which warm-ups let steps grow."""


@dataclasses.dataclass
class RunConfig:
    """How a run is carried out: nothing here changes the outcome beyond rounding."""

    device: str = "auto"
    """cpu, cuda, cuda:1, mps, or auto: a GPU where there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of matrix products: auto is bf16 on a GPU, and in training on a processor, that multiplies in it, else fp32.
    Weights are always fp32."""
    compile: Literal["auto", "graphs"] | bool = "auto"
    """Whether torch.compile makes one graph of each kind of block, forward and backward, over micro-batches that are
    filled up to one size; in fine-tuning, of the feed-forward parts alone. graphs: and has CUDA record them, which
    gains where the kernels are shorter than their launches, in small models. auto: yes in pretraining on a GPU, in bf16
    and without dropout, where FlashAttention serves; else no."""
    activation_checkpointing: bool = False
    """Keep only what goes into each block for the backward pass, and compute the rest anew: less memory, more time."""
    workers: int = 2
    """Processes that prepare the corpus and the batches; 0: none but the main one."""
    micro_tokens: int | None = None
    """Most tokens that go through the model at once; a step's gradients are added up. Null: what suits the device."""
    corpus_dir: str | None = None
    """Where corpora are kept for all runs. Null: $SEQBERT_CACHE, else ~/.cache/seqbert/corpora."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl."""
    checkpoint_every: int = 100
    """Steps between two checkpoints; one is written too where a validation finds the best weights so far."""
    keep: int = 3
    """Checkpoints that are kept."""

    def __post_init__(self) -> None:
        for name in ("log_every", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, and it must be at least 1.")
        if self.micro_tokens is not None and self.micro_tokens < 1:
            raise ConfigError(f"micro_tokens is {self.micro_tokens}, and it must be at least 1.")
        if self.workers < 0:
            raise ConfigError(f"workers is {self.workers}, and it cannot be below 0.")


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A device, the precision that is used on it, the tokens that go through the model at once, and how it runs."""

    torch: torch.device
    bf16: bool
    micro_tokens: int
    compile: Literal["auto", "graphs"] | bool = False
    activation_checkpointing: bool = False

    @classmethod
    def of(cls, config: RunConfig, world: World = ALONE, *, trains: bool = True) -> Device:
        """The device that a config asks for; each process of a job on a machine has a GPU of its own.

        Where nothing is trained a processor computes in fp32 by itself: what a model answers is not rounded for speed.

        Raises:
            ConfigError: if it is not there.
        """
        device = _find(config.device)
        if device.type == "cuda" and world.size > 1:
            device = _own_gpu(config.device, world.local_rank)
        if device.type == "mps" and world.size > 1:
            raise ConfigError("Several processes cannot share the device mps: set run.device to cpu.")
        gpu = device.type == "cuda"
        bf16 = config.precision == "bf16" or (
            config.precision == "auto" and (gpu or trains) and multiplies_bf16(device)
        )
        return cls(
            device,
            bf16,
            config.micro_tokens or (32768 if gpu else 4096),
            config.compile,
            config.activation_checkpointing,
        )

    def place(self, model: Model) -> Model:
        """The model on this device."""
        model.encoder.recomputes = self.activation_checkpointing
        if self.torch.type == "cpu":
            keep_freed_memory()
        return model.to(self.torch)

    def compiles(self, config: EncoderConfig) -> bool:
        """Whether pretraining steps of such an encoder are compiled; their micro-batches then have a static shape."""
        if self.compile == "auto":
            return self.torch.type == "cuda" and self.bf16 and config.dropout == 0
        return bool(self.compile)

    @property
    def records(self) -> bool:
        """Whether CUDA records what is compiled and plays it back: whole passes then are one launch."""
        return self.compile == "graphs" and self.torch.type == "cuda"

    def compiled(self, part: Part) -> Part:
        """A function of a micro-batch of static shape, compiled once for each shape, if anything is to be compiled.

        Nothing in it may depend on the values of tensors or on the lengths of sequences: it is one graph or an error.
        Blocks are compiled rather than whole passes: all of one kind share their code, so that a run begins in seconds
        where it would take minutes, and gradients are exchanged while the next are computed.
        """
        if not self.compile:
            return part
        import torch._dynamo

        import seqbert.models.attention_op  # noqa: F401  makes its operator known

        torch._dynamo.config.recompile_limit = max(COMPILATIONS, torch._dynamo.config.recompile_limit)
        mode = "reduce-overhead" if self.records else None
        return cast(Part, torch.compile(part, fullgraph=True, dynamic=False, mode=mode))

    @staticmethod
    def graphs() -> int:
        """How many graphs torch.compile has made in this process: it stays what it is after the first steps."""
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def compile_parts(self, model: Model) -> None:
        """Compiles the feed-forward parts of a model, if that is asked for: for streams of any length, once."""
        if self.compile and self.compile != "auto":
            for block in model.encoder.blocks:
                block.feed_forward.compile(dynamic=True)  # type: ignore[union-attr]

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which the model runs forward."""
        return torch.autocast(self.torch.type, torch.bfloat16, enabled=self.bf16)

    def __str__(self) -> str:
        return f"{self.torch} in {'bf16' if self.bf16 else 'fp32'}"


def multiplies_bf16(device: torch.device) -> bool:
    """Whether a device has instructions for products in bf16, which make steps shorter (on a CPU 1.5 to 2 times)."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # not public yet, so that they may be missing
    return any(getattr(torch.cpu, name, bool)() for name in asked)


def _own_gpu(name: str, number: int) -> torch.device:
    if name not in ("auto", "cuda"):
        raise ConfigError(f'run.device is "{name}", which several processes would share: use cuda, auto, or cpu.')
    if number >= torch.cuda.device_count():
        raise ConfigError(
            f"Process {number} of this machine has no GPU: there are {torch.cuda.device_count()}. Start as many "
            "processes as there are GPUs (torchrun --nproc-per-node), or set run.device to cpu."
        )
    return torch.device("cuda", number)


def _find(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f'run.device is "{name}", and PyTorch cannot use it: {reason}. Use cpu, or auto.') from error
    return device
