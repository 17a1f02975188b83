"""Measures pretraining steps of masked LM on a GPU against transformers, and against what its matrix units can do.

    python benchmarks/gpu.py > gpu.json

It takes at most --seconds (220), prints a table as it goes and one JSON object at the end:

- the rate of a large bf16 matrix product: what utilisation is a share of;
- a check of the GPU's results: attention, forward and backward, in each kind (whole, windowed, causal), and a whole
  compiled step of BERT and of ModernBERT in bf16, against the CPU's reference in fp32;
- tokens per second, without padding, and model-FLOPs utilisation for base and large at 128, 512 and 4,096 tokens,
  for sequences that are all full and for mixed ones (0.4 of the longest on average), of seqbert's own loop and of
  transformers. At 128 and 512 it is BERT, at 4,096 ModernBERT.

transformers runs as its Trainer runs it in bf16: padded micro-batches of at most as many tokens as seqbert's, the same
sequences, gradients added up, with FlashAttention where the package flash-attn is installed and SDPA where it is not.
Cases run in the order of their weight; what the time does not suffice for is said to be left out.

Model FLOPs are those of the tokens without padding: 6 for each weight of a linear layer and token (those of the masked
LM's head for each target), and 12 times width and seen keys for each token and block.

``--device cpu --small`` goes through the same at toy size, to see that it works. Needs the extra "benchmarks".
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import step as steps
import torch

GOALS = {("large", 512): 0.55, ("base", 512): 0.45}
"""Model-FLOPs utilisation that is aimed at."""

TIMES_FASTER = 3.0
"""How many times as fast as transformers mixed lengths are to be."""

VALUES, COSINE = 2e-2, 0.99
"""Largest error that bf16 is allowed, of the largest value; least cosine of two gradients of a step."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the longest sequence, and how long sequences are."""

    size: str
    length: int
    kind: str

    @property
    def family(self) -> str:
        """BERT, or ModernBERT where sequences are longer than BERT's positions."""
        return "bert" if self.length <= 512 else "modern"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    cases: tuple[Case, ...]
    presets: dict[str, str]
    vocabulary: int
    tokens: int
    product: int
    checked: tuple[int, ...]


def _cases(lengths: tuple[int, ...]) -> tuple[Case, ...]:
    first = [(size, lengths[1]) for size in ("large", "base")]
    order = [*first, ("base", lengths[0]), ("base", lengths[2]), ("large", lengths[0]), ("large", lengths[2])]
    return tuple(Case(size, length, kind) for size, length in order for kind in ("mixed", "full"))


REAL = Sizes(
    _cases((128, 512, 4096)),
    {f"{family}-{size}": f"{family}-{size}" for family in ("bert", "modern") for size in ("base", "large")},
    30522,
    32768,
    8192,
    (1, 1, 7, 64, 129, 300, 512, 700),
)
SMALL = Sizes(
    _cases((16, 32, 160)),
    {f"{family}-{size}": f"{family}-tiny" for family in ("bert", "modern") for size in ("base", "large")},
    99,
    320,
    128,
    (1, 1, 7, 64, 129),
)


def main() -> int:
    """Runs everything; 1 where the GPU's results are wrong."""
    arguments = parser().parse_args()
    result = measure(arguments, SMALL if arguments.small else REAL)
    print(json.dumps(result, indent=2))
    return 0 if all(row["is_right"] for row in result["checks"]) else 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = asked.add_argument
    add("--device", default="cuda", help="cuda, cuda:1 or cpu (cuda)")
    add("--seconds", type=float, default=220.0, help="that it may take (220)")
    add("--each", type=float, default=1.5, help="seconds over which steps of a case are timed (1.5)")
    add("--compile", choices=["auto", "graphs", "false"], default="auto", help="as run.compile (auto)")
    add("--small", action="store_true", help="at toy size")
    add("--without-peer", action="store_true", help="seqbert alone")
    return asked


def measure(arguments: argparse.Namespace, sizes: Sizes) -> dict[str, Any]:
    """The rate of products, the checks, and each case for which there is time."""
    ends = time.monotonic() + arguments.seconds
    device = torch.device(arguments.device)
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    result: dict[str, Any] = {"machine": machine, "torch": torch.__version__, "peer": peer_name(device)}
    result["product_tflops"] = rate = round(product_rate(device, sizes.product) / 1e12, 4)
    say(f"{machine}, torch {torch.__version__}: products at {rate:.3g} TFLOP/s in bf16; peer: {result['peer']}")
    result["checks"] = list(checks(arguments, sizes, device))
    say(f"{'model':14} {'length':>6} {'kind':6} {'tokens/s':>10} {'util.':>6} {'peer':>10} {'util.':>6} {'ratio':>6}")
    result["cases"] = [row for case in sizes.cases for row in [run_case(arguments, sizes, case, rate, ends)]]
    return result


def say(text: str) -> None:
    """A line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def synchronise(device: torch.device) -> None:
    """Waits for what a device still computes."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(step: Callable[[], Any], device: torch.device, at_least: float) -> float:
    """Mean seconds of a step, over as many as take ``at_least`` together; none waits for the one before."""
    synchronise(device)
    begun = time.perf_counter()
    step()
    synchronise(device)
    count = max(2, round(at_least / max(1e-6, time.perf_counter() - begun)))
    begun = time.perf_counter()
    for _ in range(count):
        step()
    synchronise(device)
    return (time.perf_counter() - begun) / count


def product_rate(device: torch.device, size: int) -> float:
    """FLOPs per second of a bf16 product of two square matrices."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    return 2 * size**3 / min(seconds_of(lambda: left @ right, device, 0.2) for _ in range(3))


# Right


def checks(arguments: argparse.Namespace, sizes: Sizes, device: torch.device) -> Iterator[dict[str, Any]]:
    """What the device computes beside what the CPU does."""
    for causal, window in itertools.product((False, True), (None, 3, 64)):
        error = attention_error(device, sizes.checked, causal, window)
        name = f"attention{', causal' if causal else ''}{f', window {window}' if window else ''}"
        yield told({"what": name, "largest_error": round(error, 6), "is_right": error <= VALUES})
    for preset in ("bert-tiny", "modern-tiny"):
        error, cosine = step_error(arguments, device, preset)
        right = error <= VALUES and cosine >= COSINE
        row = {"what": f"step of {preset}", "loss_error": round(error, 6), "least_cosine": round(cosine, 6)}
        yield told({**row, "is_right": right})


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A check, after it was told."""
    rest = ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("what", "is_right"))
    say(f"{'right' if row['is_right'] else 'WRONG'}: {row['what']}: {rest}")
    return row


def attention_error(device: torch.device, lengths: tuple[int, ...], causal: bool, window: int | None) -> float:
    """Of outputs and gradients of the backend that the device takes, the largest error as a share of the largest."""
    from seqbert.data.packing import pack
    from seqbert.models.attention import packed_attention

    batch = pack("text", [np.zeros(length, np.int64) for length in lengths])
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(batch.tokens, 4, 64, generator=draw).bfloat16() for _ in range(4)]
    found = []
    for place, kind, backend in (
        (torch.device("cpu"), torch.float32, "reference"),
        (device, torch.bfloat16, None),
    ):
        *inputs, slope = (part.to(place, kind) for part in parts)
        leaves = [tensor.requires_grad_() for tensor in inputs]
        mixed = packed_attention(*leaves, batch.to(place), causal=causal, window=window, backend=backend)
        gradients = torch.autograd.grad(mixed, leaves, slope)
        found.append([tensor.detach().float().cpu() for tensor in (mixed, *gradients)])
    return max(float((ours - right).abs().max() / right.abs().max()) for right, ours in zip(*found, strict=True))


def step_error(arguments: argparse.Namespace, device: torch.device, preset: str) -> tuple[float, float]:
    """Relative error of a step's loss, and the least cosine of a large gradient with that of the CPU in fp32."""
    asked = settings(preset, SMALL, 16 if preset == "bert-tiny" else 160, "mixed")
    batch = steps.pack_batch(steps.batches_of(asked)[0])
    losses, slopes = [], []
    for kind in ("cpu", "device"):
        with tempfile.TemporaryDirectory() as folder:
            on = None if kind == "cpu" else device_of(arguments, device, SMALL)
            asked.precision = "fp32" if kind == "cpu" else "bf16"
            loop = steps.our_loop(asked, Path(folder), on, None if on is None else cut_of(asked, on))
            loop.settings = dataclasses.replace(loop.settings, clip_norm=None)
            sums = loop._step(0, [batch], loop._meter)
            losses.append(float(sums["text"]["masked_lm"]))
            slopes.append([weight.grad.float().cpu().flatten() for weight in loop.model.parameters()])
    largest = max(float(slope.norm()) for slope in slopes[0])
    cosines = [
        float(torch.nn.functional.cosine_similarity(one, other, dim=0))
        for one, other in zip(*slopes, strict=True)
        if float(one.norm()) > 1e-2 * largest
    ]
    return abs(losses[1] / losses[0] - 1), min(cosines)


# Fast


def settings(preset: str, sizes: Sizes, length: int, kind: str) -> argparse.Namespace:
    """What the benchmark of steps asks of the command line."""
    asked = steps.parser().parse_args([])
    asked.model, asked.vocabulary, asked.max_length, asked.lengths = preset, sizes.vocabulary, length, kind
    asked.tokens, asked.precision, asked.batches = sizes.tokens, "bf16", 4
    return asked


def device_of(arguments: argparse.Namespace, device: torch.device, sizes: Sizes) -> Any:
    """Where seqbert computes, and how."""
    from seqbert.training.device import Device, RunConfig

    compiled: Any = {"false": False}.get(arguments.compile, arguments.compile)
    if device.type == "cpu" and compiled == "auto":
        compiled = False  # as a run takes it
    run = RunConfig(device=str(device), precision="bf16", compile=compiled, micro_tokens=sizes.tokens)
    return Device.of(run)


def cut_of(asked: argparse.Namespace, device: Any) -> Callable[[Any, int], list[Any]]:
    """Brings batches to one shape, which holds every one of them, mixed and full: what is compiled serves both."""
    from seqbert.data.static import Shape, cut

    both = [argparse.Namespace(**{**vars(asked), "lengths": kind}) for kind in ("mixed", "full")]
    packed = [steps.pack_batch(batch) for one in both for batch in steps.batches_of(one)]
    most = max(batch.tokens for batch in packed)
    sequences = max(len(batch.lengths) for batch in packed)
    micro_tokens = max(device.micro_tokens, most)
    shape = Shape.of(most, sequences, asked.max_length, micro_tokens, 1, targets)
    return lambda batch, _: cut(batch, shape)


def targets(tokens: int, sequences: int) -> dict[str, int]:
    """As the objective has them at 15 %."""
    return {"masked_lm": int(0.15 * tokens + sequences / 2)}


def run_case(arguments: argparse.Namespace, sizes: Sizes, case: Case, rate: float, ends: float) -> dict[str, Any]:
    """Both contenders on one case, or a note that there is no time for it."""
    preset = sizes.presets[f"{case.family}-{case.size}"]
    row: dict[str, Any] = {"model": f"{case.family}-{case.size}", "length": case.length, "kind": case.kind}
    device = torch.device(arguments.device)
    asked = settings(preset, sizes, case.length, case.kind)
    batches = steps.batches_of(asked)
    work = float(np.mean([model_flops(asked, batch) for batch in batches]))
    tokens = float(np.mean([batch.tokens for batch in batches]))
    contenders = {"seqbert": functools.partial(our_step, arguments, sizes)}
    if not arguments.without_peer:
        contenders["peer"] = peer_step
    for name, make in contenders.items():
        left = ends - time.monotonic()
        if left < LEAST.get(name, 0.0) * (0.0 if arguments.small else 1.0) or left < 0:
            row[name] = "left out: no time"
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                step = make(asked, batches, device, Path(folder))
                for _ in batches:
                    step()
                seconds = seconds_of(step, device, 0.0 if arguments.small else arguments.each)
            except torch.cuda.OutOfMemoryError:
                row[name] = "left out: out of memory"
                continue
            finally:
                step = None
                if device.type == "cuda":
                    torch.cuda.empty_cache()
        row[name] = {
            "tokens_per_second": round(tokens / seconds, 1),
            "utilisation": round(work / seconds / rate / 1e12, 4),
        }
    if all(isinstance(row.get(name), dict) for name in ("seqbert", "peer")):
        row["ratio"] = round(row["seqbert"]["tokens_per_second"] / row["peer"]["tokens_per_second"], 3)
    if (case.size, case.length) in GOALS and case.kind == "full":
        row["utilisation_goal"] = GOALS[case.size, case.length]
    if case.kind == "mixed":
        row["ratio_goal"] = TIMES_FASTER
    say(in_columns(row))
    return row


LEAST = {"seqbert": 15.0, "peer": 6.0}
"""Seconds that a contender needs, with what is compiled before the first step."""


def in_columns(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = []
    for name in ("seqbert", "peer"):
        found = row.get(name)
        known = isinstance(found, dict)
        cells += [
            f"{found['tokens_per_second']:10,.0f} {found['utilisation']:6.3f}" if known else f"{'-':>10} {'-':>6}"
        ]
    ratio = f"{row['ratio']:6.2f}" if "ratio" in row else f"{'-':>6}"
    return f"{row['model']:14} {row['length']:6} {row['kind']:6} {cells[0]} {cells[1]} {ratio}"


def our_step(
    arguments: argparse.Namespace,
    sizes: Sizes,
    asked: argparse.Namespace,
    batches: list[steps.Batch],
    device: torch.device,
    folder: Path,
) -> Callable[[], None]:
    """A step of seqbert's loop, from a batch on the host to the update."""
    on = device_of(arguments, device, sizes)
    loop = steps.our_loop(asked, folder, on, cut_of(asked, on))
    packed = itertools.cycle([steps.pack_batch(batch) for batch in batches])

    def step() -> None:
        loop._step(loop.progress.step, [next(packed)], loop._meter)
        loop._meter.unchecked.clear()  # looked at where a line is logged
        loop.progress.step += 1

    return step


def peer_name(device: torch.device) -> str:
    """How transformers attends here."""
    has_flash = device.type == "cuda" and importlib.util.find_spec("flash_attn") is not None
    return "flash_attention_2" if has_flash else "sdpa"


def peer_step(
    asked: argparse.Namespace, batches: list[steps.Batch], device: torch.device, folder: Path
) -> Callable[[], None]:
    """A step of transformers' model, with what its Trainer does in bf16."""
    model = steps.peer_model(asked, peer_name(device)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    padded = itertools.cycle([micro_batches(batch, asked.tokens) for batch in batches])
    pinned = device.type == "cuda"

    def step() -> None:
        pieces = next(padded)
        for piece in pieces:
            inputs = {
                name: (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=True)
                for name, tensor in piece.items()
            }
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(**inputs).loss
            (loss / len(pieces)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def micro_batches(batch: steps.Batch, most: int) -> list[dict[str, Any]]:
    """A batch in the fewest parts of equally many sequences that have at most so many tokens with padding."""
    count = len(batch.ids)
    size = max(1, min(count, most // max(len(ids) for ids in batch.ids)))
    parts = np.array_split(np.arange(count), -(-count // size))
    return [
        steps.pad_batch(steps.Batch([batch.ids[n] for n in part], [batch.labels[n] for n in part]), None)
        for part in parts
    ]


def model_flops(asked: argparse.Namespace, batch: steps.Batch) -> float:
    """Of a step, forward and backward, for the tokens without padding."""
    from seqbert.models.config import PRESETS

    shape = PRESETS[asked.model]
    width = shape.hidden_size
    of_block = 4 * width**2 + (3 if shape.gated else 2) * width * shape.intermediate_size
    lengths = np.array([len(ids) for ids in batch.ids], np.float64)
    seen = 0.0
    for block in range(shape.num_hidden_layers):
        window = shape.window_of(block)
        seen += float((lengths * (lengths if window is None else np.minimum(lengths, 2 * window + 1))).sum())
    hidden = sum(int((labels != steps.IGNORED).sum()) for labels in batch.labels)
    linear = shape.num_hidden_layers * of_block * lengths.sum() + (width**2 + width * asked.vocabulary) * hidden
    return float(6 * linear + 12 * width * seen)


if __name__ == "__main__":
    raise SystemExit(main())
