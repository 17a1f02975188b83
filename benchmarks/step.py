"""Measures a training step of masked LM against transformers, and against the matrix products it cannot do without.

    python benchmarks/step.py --model bert-mini --lengths mixed --precision bf16 > step.json

All train a BERT of one shape on the same sequences with the same tokens hidden (15 %, 80/10/10), ids by Zipf's law:

- seqbert: the loop of ``seqbert pretrain``, from a packed batch to the update, with the weights and settings of a run;
- transformers: ``BertForMaskedLM`` (or ``ModernBertForMaskedLM``) with SDPA over batches padded to their longest
  sequence, gradients clipped, fused AdamW, as its Trainer does it in mixed precision;
- transformers_grouped: the same over batches that its Trainer's ``group_by_length`` would make of the same sequences
  (with --grouped);
- transformers_compiled: the same under ``torch.compile``, every batch padded to the longest length (with --compiled);
- products: the matrix products of seqbert's step alone, forward and backward, found by running it once; their time is
  the least that a step of these shapes can take with PyTorch's products, in this precision, on this machine.

Lengths "full": every sequence has --max-length tokens. "mixed": exp(mu + 0.6 z), cut to 8 tokens and to --max-length,
with a mean of 0.4 --max-length, as sentences and proteins have them. With --both seqbert runs on full ones too.

Each has a process of its own and they take turns, pass by pass; the time of a batch is its median over the passes.
Nothing else may run on the machine. --profile prints where the time of seqbert's step goes instead (and of the peer's
with --profile transformers). Needs the extra "benchmarks".

Prints one JSON object: real tokens per second of each, without padding, and their ratios.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from contenders import Contender, ContenderError, answers

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))

POOL = 50
"""Batches among which the Trainer groups sequences of nearly equal length."""

IGNORED = -100
"""The label that transformers' loss leaves out."""


def main() -> int:
    """Runs what the command line asks for; 1 where a contender fails."""
    arguments = parser().parse_args()
    if arguments.contender:
        serve(arguments)
        return 0
    if arguments.profile:
        print(profile(arguments, arguments.profile))
        return 0
    try:
        print(json.dumps(measure(arguments), indent=2))
    except ContenderError as error:
        print(f"step: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = asked.add_argument
    add("--model", default="bert-mini", help="preset of seqbert (bert-mini)")
    add("--vocabulary", type=int, default=30522, help="ids (30,522)")
    add("--lengths", choices=["full", "mixed"], default="mixed", help="of the sequences (mixed)")
    add("--max-length", type=int, default=128, help="tokens of the longest sequence (128)")
    add("--tokens", type=int, default=4096, help="real tokens of a step, about (4,096)")
    add("--batches", type=int, default=4, help="different batches (4)")
    add("--passes", type=int, default=5, help="timed passes over them (5)")
    add("--precision", choices=["fp32", "bf16"], default="bf16", help="of matrix products (bf16)")
    add("--dropout", type=float, default=0.0, help="of both (0)")
    add("--threads", type=int, default=1, help="of each process (1)")
    add("--seed", type=int, default=0, help="of the sequences and of what is hidden (0)")
    add("--grouped", action="store_true", help="also transformers with batches grouped by length")
    add("--compiled", action="store_true", help="also transformers with torch.compile")
    add("--both", action="store_true", help="also seqbert on full sequences")
    add("--only", nargs="+", metavar="CONTENDER", help="measure these alone")
    add("--profile", nargs="?", const="seqbert", metavar="CONTENDER", help="print where the time of a step goes")
    add("--contender", help=argparse.SUPPRESS)
    return asked


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Lets the contenders take turns, and compares them."""
    names = arguments.only or contenders(arguments)
    taken = {name: Passes(name) for name in names}
    try:
        for number in range(arguments.passes + 1):  # the first warms up
            for name in names if number % 2 == 0 else reversed(names):
                taken[name].run_once()
                print(f"pass {number} of {arguments.passes}: {name}", file=sys.stderr, flush=True)
        rows = {name: passes.row() for name, passes in taken.items()}
    finally:
        for passes in taken.values():
            passes.contender.end()
    shown = ("model", "vocabulary", "lengths", "max_length", "tokens", "precision", "dropout", "threads")
    settings = {name: getattr(arguments, name) for name in shown}
    return {**settings, "contenders": rows, "ratios": ratios(rows)}


def contenders(arguments: argparse.Namespace) -> list[str]:
    """Those that the command line asks for."""
    extra = {
        "transformers_grouped": arguments.grouped,
        "transformers_compiled": arguments.compiled,
        "seqbert_full": arguments.both,
    }
    return ["seqbert", "transformers", "products", *(name for name, is_asked in extra.items() if is_asked)]


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """How many times as fast seqbert is as each of the others; of the products, the share of their rate it reaches."""
    if "seqbert" not in rows:
        return {}
    rate = rows["seqbert"]["tokens_per_second"]
    names = {name: f"seqbert / {name}" for name in rows if name != "seqbert"} | {
        "products": "share of the products' rate",
        "seqbert_full": "seqbert, these lengths / full",
    }
    return {names[name]: round(rate / row["tokens_per_second"], 3) for name, row in rows.items() if name != "seqbert"}


class Passes:
    """What a contender's process takes over its batches, pass by pass."""

    def __init__(self, name: str) -> None:
        self.contender = Contender(__file__, name)
        self._passes: list[list[float]] = []
        self._about = self.contender.answer()

    def run_once(self) -> None:
        """One pass over the batches."""
        self.contender.tell()
        self._passes.append(self.contender.answer()["seconds"])

    def row(self) -> dict[str, Any]:
        """What was measured, without the first pass."""
        seconds = [statistics.median(of_batch) for of_batch in zip(*self._passes[1:], strict=True)]
        tokens = self._about["tokens"]
        return {
            "tokens_per_second": round(sum(tokens) / sum(seconds), 1),
            "step_seconds": round(statistics.fmean(seconds), 4),
            "tokens_a_step": round(statistics.fmean(tokens), 1),
            "padding_efficiency": round(sum(tokens) / sum(self._about["rows"]), 3),
        }


def serve(arguments: argparse.Namespace) -> None:
    """What a contender's process does: a pass over its batches for every line that it reads."""
    replies = answers()
    import torch

    torch.set_num_threads(arguments.threads)
    name = arguments.contender
    batches = batches_of(arguments, name)
    steps = STEPS[name](arguments, batches)
    about = {
        "tokens": [batch.tokens for batch in batches],
        "rows": [batch.padded_tokens if name.startswith("transformers") else batch.tokens for batch in batches],
    }
    print(json.dumps(about), file=replies)
    for _ in sys.stdin:
        seconds = [next(steps) for _ in batches]
        print(json.dumps({"seconds": seconds}), file=replies)


@dataclasses.dataclass
class Batch:
    """Sequences of a step, those that are to be read and what stood there before some of it was hidden.

    Attributes:
        ids: By sequence, with tokens hidden, ``[length]`` each.
        labels: By sequence, the true id where a token is a target, else :data:`IGNORED`.
    """

    ids: list[np.ndarray]
    labels: list[np.ndarray]

    @property
    def tokens(self) -> int:
        """Without padding."""
        return sum(len(ids) for ids in self.ids)

    @property
    def padded_tokens(self) -> int:
        """With every sequence padded to the longest."""
        return len(self.ids) * max(len(ids) for ids in self.ids)


def batches_of(arguments: argparse.Namespace, contender: str = "seqbert") -> list[Batch]:
    """The batches of a contender: the same for all, but for those that are grouped by length.

    These are some of the batches that :data:`POOL` of the others are parted into, evenly spaced.
    """
    kind = "full" if contender.endswith("_full") else arguments.lengths
    mean = arguments.max_length * (1.0 if kind == "full" else 0.4)
    size = max(1, round(arguments.tokens / mean))
    lengths = draw_lengths(kind, arguments.max_length, POOL * size, arguments.seed)
    order = np.arange(len(lengths))
    chosen = np.arange(arguments.batches) % POOL
    if contender.endswith("_grouped"):
        order = np.argsort(-lengths, kind="stable")
        chosen = np.linspace(0, POOL - 1, arguments.batches).round().astype(int)
    rows = order.reshape(POOL, size)[chosen]
    return [Batch(*map(list, zip(*(hidden(arguments, lengths, int(row)) for row in one), strict=True))) for one in rows]


def draw_lengths(kind: str, longest: int, count: int, seed: int) -> np.ndarray:
    """Lengths of sequences, special tokens included."""
    if kind == "full":
        return np.full(count, longest)
    wide = np.random.default_rng(0).standard_normal(100_000)
    low, high = 0.0, float(np.log(longest)) + 2
    for _ in range(50):  # of mu, so that the mean is right after the lengths are cut
        middle = (low + high) / 2
        is_short = np.exp(middle + 0.6 * wide).clip(8, longest).mean() < 0.4 * longest
        low, high = (middle, high) if is_short else (low, middle)
    drawn = np.random.default_rng(seed).standard_normal(count)
    return np.rint(np.exp(low + 0.6 * drawn)).clip(8, longest).astype(np.int64)


def hidden(arguments: argparse.Namespace, lengths: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequence ``row`` with tokens hidden, and its labels."""
    random = np.random.default_rng([arguments.seed, row])
    length, ordinary = int(lengths[row]), arguments.vocabulary - len(SPECIALS)
    ids = len(SPECIALS) + (random.zipf(1.1, length) - 1) % ordinary
    ids[0], ids[-1] = CLS, SEP
    labels = np.full(length, IGNORED)
    chosen = 1 + random.permutation(length - 2)[: max(1, round(0.15 * (length - 2)))]
    labels[chosen] = ids[chosen]
    draw = random.random(len(chosen))
    ids[chosen[draw < 0.8]] = MASK
    replaced = chosen[draw >= 0.9]
    ids[replaced] = len(SPECIALS) + random.integers(ordinary, size=len(replaced))
    return ids, labels


def our_steps(arguments: argparse.Namespace, batches: list[Batch]) -> Iterator[float]:
    """Seconds of each of seqbert's steps, endlessly: what the loop does between two batches that it asks for."""
    packed = [pack_batch(batch) for batch in batches]
    with tempfile.TemporaryDirectory() as folder:
        loop = our_loop(arguments, Path(folder))
        for batch in itertools.cycle(packed):
            begun = time.perf_counter()
            loop._step(loop.progress.step, [batch], loop._meter)
            loop.progress.step += 1
            loop._check_finite()
            yield time.perf_counter() - begun


def our_loop(arguments: argparse.Namespace, folder: Path, device: Any = None, cut: Any = None) -> Any:
    """The loop that ``seqbert pretrain`` would run for such a model, with nothing to validate; on the CPU if None."""
    import torch

    from seqbert.models.config import ModelConfig
    from seqbert.models.model import Model
    from seqbert.objectives import Objective
    from seqbert.objectives.objective import ObjectiveConfig
    from seqbert.training.checkpoint import Checkpoints, Progress
    from seqbert.training.device import Device, RunConfig
    from seqbert.training.logging import Console, MetricsLog
    from seqbert.training.loop import Loop, LoopSettings
    from seqbert.training.optimizers import AdamWConfig, build_optimizer
    from seqbert.training.parallel import ALONE

    shape = ModelConfig(arguments.model, dropout=arguments.dropout).resolve()
    run = RunConfig(device="cpu", precision=arguments.precision, micro_tokens=2 * arguments.tokens)
    device = device or Device.of(run)
    torch.manual_seed(0)
    model = Model(shape, {"text": arguments.vocabulary}, {"text": ["masked_lm"]})
    model.initialise(seed=0)
    model = device.place(model).train()
    return Loop(
        model=model,
        learnables={"text": Objective(ObjectiveConfig(), corpus_of(arguments.vocabulary))},
        shares={"text": 1.0},
        optimizer=build_optimizer(AdamWConfig(), model.named_parameters(), 1e-4),
        schedule=lambda step, steps: 1.0,
        settings=LoopSettings(0, 1_000_000, 1e-4, 1.0, 1_000_000, 1_000_000, 1_000_000, evaluate_first=False),
        device=device,
        world=ALONE,
        checkpoints=Checkpoints(folder / "checkpoints", keep=1),
        validate=dict,
        score=lambda metrics: None,
        keep_best=lambda: None,
        visited=lambda step: {},
        console=Console(speaks=False),
        log=MetricsLog(folder, 0, writes=False),
        progress=Progress(),
        cut=cut,
    )


def corpus_of(vocabulary: int) -> Any:
    """What an objective asks of a corpus, where there is none: only its vocabulary is known."""
    ordinary = np.arange(vocabulary) >= len(SPECIALS)
    return SimpleNamespace(
        domain="text",
        unit="token",
        special_mask=~ordinary,
        ordinary_ids=np.flatnonzero(ordinary),
        special_ids={name: number for number, name in enumerate(SPECIALS)},
        symbols=ordinary.astype(np.float32),
        overlap=0,
    )


def pack_batch(batch: Batch) -> Any:
    """A batch as seqbert's objective makes it: one stream, sequences in order of length."""
    import torch

    from seqbert.data.packing import PackedBatch, Target

    order = np.argsort([len(ids) for ids in batch.ids], kind="stable")
    ids = np.concatenate([batch.ids[number] for number in order])
    labels = np.concatenate([batch.labels[number] for number in order])
    index = np.flatnonzero(labels != IGNORED)
    target = Target(torch.from_numpy(index), torch.from_numpy(labels[index]), torch.ones(len(index)))
    lengths = np.array([len(batch.ids[number]) for number in order])
    return PackedBatch.of("text", ids, np.zeros_like(ids), lengths, order, {"masked_lm": target})


def peer_steps(arguments: argparse.Namespace, batches: list[Batch], compiled: bool = False) -> Iterator[float]:
    """Seconds of each of transformers' steps, endlessly."""
    step = peer_step(arguments, compiled)
    padded = [pad_batch(batch, arguments.max_length if compiled else None) for batch in batches]
    for batch in itertools.cycle(padded):
        begun = time.perf_counter()
        step(batch)
        yield time.perf_counter() - begun


def peer_step(arguments: argparse.Namespace, compiled: bool = False) -> Callable[[dict[str, Any]], None]:
    """A step of transformers' model, with what its Trainer does by default."""
    import torch

    model = peer_model(arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    run = torch.compile(model) if compiled else model
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16")

    def step(batch: dict[str, Any]) -> None:
        with mixed:
            loss = run(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def peer_model(arguments: argparse.Namespace, attention: str = "sdpa") -> Any:
    """The peer's model of the same shape, in training."""
    import torch
    import transformers

    from seqbert.models.config import ModelConfig

    torch.manual_seed(0)
    shape = ModelConfig(arguments.model, dropout=arguments.dropout).resolve()
    sizes = {
        "vocab_size": arguments.vocabulary,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embeddings,
    }
    if shape.position == "rotary":
        special = {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP}
        special |= {"cls_token_id": CLS, "sep_token_id": SEP}
        dropouts = dict.fromkeys(("attention_dropout", "mlp_dropout", "embedding_dropout"), shape.dropout)
        config = transformers.ModernBertConfig(**sizes, **special, **dropouts)
        kind = transformers.ModernBertForMaskedLM
    else:
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), shape.dropout)
        config = transformers.BertConfig(**sizes, **dropouts)
        kind = transformers.BertForMaskedLM
    return kind._from_config(config, attn_implementation=attention).train()


def parameters_of(arguments: argparse.Namespace) -> int:
    """Number of the model's weights, for both alike: of masked LM the decoder is the word embeddings."""
    from seqbert.models.config import ModelConfig
    from seqbert.models.model import Model

    model = Model(ModelConfig(arguments.model).resolve(), {"text": arguments.vocabulary}, {"text": ["masked_lm"]})
    return sum(parameter.numel() for parameter in model.parameters())


def pad_batch(batch: Batch, length: int | None) -> dict[str, Any]:
    """A batch as transformers' collator makes it; padded to the longest sequence, or to ``length``."""
    import torch

    width = length or max(len(ids) for ids in batch.ids)
    shape = (len(batch.ids), width)
    columns = {
        "input_ids": np.full(shape, PAD),
        "attention_mask": np.zeros(shape, np.int64),
        "labels": np.full(shape, IGNORED),
    }
    for row, (ids, labels) in enumerate(zip(batch.ids, batch.labels, strict=True)):
        columns["input_ids"][row, : len(ids)] = ids
        columns["attention_mask"][row, : len(ids)] = 1
        columns["labels"][row, : len(ids)] = labels
    return {name: torch.from_numpy(column) for name, column in columns.items()}


PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
"""The matrix products among PyTorch's operators, to which linear layers and attention come down."""


def product_steps(arguments: argparse.Namespace, batches: list[Batch]) -> Iterator[float]:
    """Seconds of the matrix products of each step, endlessly: the same operators on memory of the same layout."""
    with tempfile.TemporaryDirectory() as folder:
        loop = our_loop(arguments, Path(folder))
        calls = [products_of(loop, pack_batch(batch)) for batch in batches]
    replayed = [replay(of_step) for of_step in calls]
    for run in itertools.cycle(replayed):
        begun = time.perf_counter()
        run()
        yield time.perf_counter() - begun


Operand = tuple[tuple[int, ...], tuple[int, ...], Any]
"""Shape, strides and type of a matrix."""


def products_of(loop: Any, batch: Any) -> list[tuple[str, list[Operand]]]:
    """The products of a step, forward and backward, in their order: the operator, and the tensors it takes."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[tuple[str, list[Operand]]] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            if name in PRODUCTS:
                tensors = [value for value in args if isinstance(value, Tensor)]
                calls.append((name, [(tuple(one.shape), one.stride(), one.dtype) for one in tensors]))
            return func(*args, **(kwargs or {}))

    with Recorder():
        loop._step(0, [batch], loop._meter)
    return calls


def replay(calls: Iterable[tuple[str, list[Operand]]]) -> Callable[[], None]:
    """What runs the products once more, into memory that is there already; operands of one layout share it."""
    import torch

    memory: dict[Any, Any] = {}

    def tensor(role: int, operand: Operand) -> Any:
        shape, strides, dtype = operand
        if (role, operand) not in memory:
            size = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
            values = torch.randn(max(1, size)).mul_(0.05).to(dtype)
            memory[role, operand] = values.as_strided(shape, strides)
        return memory[role, operand]

    ready = []
    for name, operands in calls:
        operator = getattr(torch, name)
        tensors = [tensor(role, operand) for role, operand in enumerate(operands)]
        result = operator(*tensors)
        out = tensor(-1, (tuple(result.shape), result.stride(), result.dtype))
        ready.append((operator, tensors, out))

    def run() -> None:
        with torch.no_grad():
            for operator, tensors, out in ready:
                operator(*tensors, out=out)

    return run


STEPS: dict[str, Callable[[argparse.Namespace, list[Batch]], Iterator[float]]] = {
    "seqbert": our_steps,
    "seqbert_full": our_steps,
    "transformers": peer_steps,
    "transformers_grouped": peer_steps,
    "transformers_compiled": lambda arguments, batches: peer_steps(arguments, batches, compiled=True),
    "products": product_steps,
}
"""What each contender does."""


KINDS = {
    "matrix products": ("addmm", "mm", "bmm", "baddbmm", "linear", "matmul"),
    "attention kernel": ("scaled_dot_product", "flash_attention"),
    "softmax and cross-entropy": ("softmax", "nll_loss", "cross_entropy", "logsumexp"),
    "LayerNorm": ("layer_norm", "LayerNorm"),
    "activation": ("gelu", "relu"),
    "embeddings": ("embedding",),
    "optimizer and clipping": ("adam", "foreach", "linalg_vector_norm", "clip_grad"),
    "copies and casts": ("copy_", "to_copy", "cat", "clone", "contiguous"),
    "gather and scatter": ("index", "gather", "scatter"),
    "sums of gradients": ("sum",),
    "zeros": ("zero_", "fill_", "zeros"),
    "sums and products of elements": ("add", "mul", "div", "sub"),
}
"""Kinds of work in a profile, by what the names of PyTorch's operators hold; the first that fits counts."""


def profile(arguments: argparse.Namespace, contender: str) -> str:
    """A table of the time in a step by kind of work, over a pass; what runs within an operator is its own."""
    import torch
    from torch.profiler import ProfilerActivity

    torch.set_num_threads(arguments.threads)
    batches = batches_of(arguments, contender)
    steps = STEPS[contender](arguments, batches)
    for _ in batches:
        next(steps)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as recorded:
        seconds = sum(next(steps) for _ in batches)
    spent: dict[str, float] = defaultdict(float)
    named: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in recorded.key_averages():
        kind = next((kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), "other")
        spent[kind] += event.self_cpu_time_total / 1e6
        named[kind].append((event.self_cpu_time_total / 1e6, event.key))
    spent["between operators"] = max(0.0, seconds - sum(spent.values()))
    lines = [f"{contender}: {1e3 * seconds / len(batches):.1f} ms a step under the profiler"]
    for kind, own in sorted(spent.items(), key=lambda item: -item[1]):
        largest = ", ".join(f"{name} {100 * one / seconds:.1f}" for one, name in sorted(named[kind], reverse=True)[:4])
        lines.append(f"{kind:30} {1e3 * own / len(batches):8.1f} ms {100 * own / seconds:5.1f} %  {largest}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
