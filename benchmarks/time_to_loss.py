"""How long seqbert takes to reach the loss that transformers' BERT has after some minutes, on the same data.

    python benchmarks/time_to_loss.py text/pretrain --data books/ > text.json

The peer is ``BertForMaskedLM`` of bert-mini's shape, trained as its Trainer does it: batches padded to their longest
sequence and grouped by length, 15 % of the tokens hidden 80/10/10, fused AdamW that spares biases and LayerNorms its
decay, gradients no longer than 1, linear warm-up and decay that end with its time; both in bf16 where the processor
multiplies in it, else both in fp32. Its learning rate is the best of several that are tried for two minutes
each; then it trains for eight, and its loss over the validation records is the target.

seqbert runs a config for a share of that time (``training.minutes``, so that its schedule ends with the time), once
for each seed; then for a larger share, until the median over the seeds has reached the target. That share's time is its
time to the loss. The tokenizer, the training records, the validation records and what is hidden of them are the same
for both, and the number of parameters within 2 %. The weights that a run saved are read by transformers, and their loss
is computed by the code that computed the peer's.

On both sides the clock begins when the model is built and the data tokenized, and stops before the weights are judged.
Nothing else may run on the machine.
Needs the extra "benchmarks". Prints one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

IGNORED = -100
"""The label that transformers' loss leaves out."""

MEGA_BATCH = 50
"""Batches among which sequences of nearly equal length are put together, as by the Trainer."""

ALIKE = 0.02
"""By how much of the peer's the number of parameters may differ."""


def main() -> int:
    """Measures, or is one of the processes that are measured."""
    arguments = parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # read by torch in the processes to come
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.peer is not None:
        print(json.dumps(peer(Path(arguments.config), arguments)))
        return 0
    if arguments.judge is not None:
        print(json.dumps(judge(Path(arguments.config), arguments.judge)))
        return 0
    if arguments.precision == "auto":
        import torch

        from seqbert.training.device import multiplies_bf16

        arguments.precision = "bf16" if multiplies_bf16(torch.device("cpu")) else "fp32"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(measure(arguments, folder), indent=2))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = asked.add_argument
    add("config", help="config of a pretraining run on one domain, or its name")
    add("--data", nargs="+", help="files or folders in place of the config's")
    add("--override", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"), help="change a key of the config")
    add("--minutes", type=float, default=8.0, help="that the peer trains (8)")
    add("--search-minutes", type=float, default=2.0, help="that it trains with each learning rate before (2)")
    add("--rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3], help="learning rates to choose from")
    add("--shares", type=float, nargs="+", default=[0.05, 0.1, 0.2], help="of the minutes, for seqbert (0.05 0.1 0.2)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of seqbert's runs (0 1 2)")
    add("--validation-tokens", type=int, default=65536, help="held-out tokens that both are judged by (65,536)")
    add("--threads", type=int, default=2, help="of each process (2)")
    add("--precision", choices=["auto", "fp32", "bf16"], default="auto", help="of both (bf16 where the CPU has it)")
    add("--target", type=float, help="a peer's loss measured before, in place of measuring it")
    add("--folder", help="where data and runs are kept; a temporary one is removed")
    add("--peer", type=float, metavar="RATE", help=argparse.SUPPRESS)
    add("--judge", metavar="MODEL", help=argparse.SUPPRESS)
    return asked


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The peer, then seqbert for one share of its time after another."""
    domain, config = shared_data(arguments, folder)
    if arguments.target is None:
        searched = {rate: peer_run(arguments, folder, rate, arguments.search_minutes) for rate in arguments.rates}
        warn_of_unlike_sizes(folder, searched[arguments.rates[0]]["parameters"])
        best = min(searched, key=lambda rate: searched[rate]["loss"])
        reached = peer_run(arguments, folder, best, arguments.minutes)
        theirs = {
            "learning_rates": {f"{rate:g}": round(row["loss"], 4) for rate, row in searched.items()},
            "learning_rate": best,
            **reached,
        }
        target = reached["loss"]
    else:
        theirs, target = {"loss": arguments.target}, arguments.target
    rows, reached_in = [], None
    for share in sorted(arguments.shares):
        runs = [own_run(arguments, folder, config, share, seed) for seed in arguments.seeds]
        loss = statistics.median(run["loss"] for run in runs)
        seconds = statistics.median(run["seconds"] for run in runs)
        rows.append({"share": share, "median_loss": loss, "median_seconds": seconds, "runs": runs})
        say(f"seqbert: loss {loss:.4f} in {seconds:.1f} seconds, median of {len(runs)}; the target is {target:.4f}")
        if loss <= target:
            reached_in = seconds
            break
    return {
        "domain": domain,
        "peer": theirs,
        "seqbert": rows,
        "parameters": json.loads((folder / "about.json").read_text())["parameters"],
        "seconds_to_target": reached_in,
        "times_as_fast": None if reached_in is None else round(60 * arguments.minutes / reached_in, 2),
        "threads": arguments.threads,
        "precision": arguments.precision,
    }


def warn_of_unlike_sizes(folder: Path, theirs: int) -> None:
    """Tells where one model is larger than the other."""
    ours = json.loads((folder / "about.json").read_text())["parameters"]
    if abs(ours / theirs - 1) > ALIKE:
        say(
            f"seqbert's model has {ours:,} parameters and the peer's {theirs:,}: not within 2 % of one another, which "
            "--override model.intermediate_size can change"
        )


def shared_data(arguments: argparse.Namespace, folder: Path) -> tuple[str, list[str]]:
    """Prepares the corpus, and writes what the peer trains on and what both are judged by.

    Returns:
        The domain, and the overrides that give seqbert the same.
    """
    import seqbert
    from seqbert.data.corpus import TRAIN, VALIDATION
    from seqbert.data.plan import Plan, Source
    from seqbert.models.model import Model
    from seqbert.objectives import Objective, ObjectiveConfig
    from seqbert.training.pretrain import VALIDATION_SEED
    from seqbert.training.pretrain_config import load_config

    overrides = [part for key, value in arguments.override for part in (f"--{key}", value)]
    domain = next(iter(load_config(arguments.config, overrides).domains))
    if arguments.data:
        overrides += [f"--domains.{domain}.data", json.dumps(arguments.data)]
    config = load_config(arguments.config, overrides)
    corpus = seqbert.prepare(config, ["--output", str(folder / "prepared")])[domain]
    longest = config.training.max_length
    objective = Objective(ObjectiveConfig(config.objective.masked_lm, pair="none"), corpus)
    sources = {}
    for part in (TRAIN, VALIDATION):
        split = corpus.split(part)
        plan = Plan.of(corpus, split, objective.window_size(longest), VALIDATION_SEED)
        sources[part] = Source(corpus, split, plan, VALIDATION_SEED, longest, config.training.tokens_per_step)
    train = sources[TRAIN]
    whole = list(objective.validation(train, train.plan.total * longest))
    unhidden = []
    for batch in whole:
        ids = batch.ids.numpy().copy()
        ids[batch.targets["masked_lm"].index.numpy()] = batch.targets["masked_lm"].labels.numpy()
        unhidden.append(ids)
    write_sequences(folder / "train.npz", unhidden, [batch.lengths for batch in whole])
    held = list(objective.validation(sources[VALIDATION], arguments.validation_tokens))
    ends = np.cumsum([0, *(batch.tokens for batch in held)])
    targets = [batch.targets["masked_lm"] for batch in held]
    write_sequences(
        folder / "validation.npz",
        [batch.ids.numpy() for batch in held],
        [batch.lengths for batch in held],
        index=np.concatenate([end + target.index.numpy() for end, target in zip(ends, targets, strict=False)]),
        labels=np.concatenate([target.labels.numpy() for target in targets]),
    )
    special = {name: int(number) for name, number in corpus.special_ids.items()}
    model = Model(config.model.resolve(), {domain: corpus.vocab_size}, {domain: ["masked_lm"]})
    parameters = sum(parameter.numel() for parameter in model.parameters())
    about = {"vocab_size": corpus.vocab_size, "special": special, "max_length": longest, "parameters": parameters}
    (folder / "about.json").write_text(json.dumps(about))
    return domain, overrides


def write_sequences(path: Path, ids: list[np.ndarray], lengths: list[Any], **more: np.ndarray) -> None:
    """Sequences end to end."""
    np.savez(path, ids=np.concatenate(ids), lengths=np.concatenate([np.array(row) for row in lengths]), **more)


def peer_run(arguments: argparse.Namespace, folder: Path, rate: float, minutes: float) -> dict[str, Any]:
    """Trains the peer in a process of its own."""
    command = [sys.executable, __file__, str(folder), "--peer", str(rate), "--minutes", str(minutes)]
    say(f"peer: learning rate {rate:g}, {minutes:g} minutes")
    command += ["--threads", str(arguments.threads), "--precision", arguments.precision]
    found: dict[str, Any] = json.loads(run(command))
    say(f"peer: loss {found['loss']:.4f} after {found['steps']} steps")
    return found


def peer(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains transformers' BERT, as its Trainer does, until its time is over."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.set_num_threads(arguments.threads)
    about = json.loads((folder / "about.json").read_text())
    shape: dict[str, Any] = {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }
    torch.manual_seed(0)
    dropout: dict[str, Any] = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }  # faster, and better in minutes
    model = BertForMaskedLM._from_config(
        BertConfig(vocab_size=about["vocab_size"], **shape, **dropout), attn_implementation="sdpa"
    ).train()
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]  # biases and LayerNorms
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=arguments.peer, fused=True)
    batches = padded_batches(folder, about)
    budget, begun = 60 * arguments.minutes, time.monotonic()
    steps = tokens = 0
    while (share := (time.monotonic() - begun) / budget) < 1:
        for group in optimizer.param_groups:
            group["lr"] = arguments.peer * min(1.0, share / 0.05 + 1e-3, (1 - share) / 0.95)
        batch = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps, tokens = steps + 1, tokens + int(batch["attention_mask"].sum())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    seconds = round(time.monotonic() - begun, 1)
    row = {"steps": steps, "tokens": tokens, "seconds": seconds, "parameters": parameters}
    return {"loss": masked_loss(model, folder), **row}


def padded_batches(folder: Path, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Endless batches of 4,096 tokens and padding, grouped by length and masked anew, as the Trainer makes them."""
    import torch

    data = np.load(folder / "train.npz")
    sequences = np.split(data["ids"], np.cumsum(data["lengths"])[:-1])
    lengths, size = data["lengths"], max(1, 4096 // about["max_length"])
    generator = np.random.default_rng(0)
    special = about["special"]
    ordinary = np.setdiff1d(np.arange(about["vocab_size"]), list(special.values()))
    while True:
        order = generator.permutation(len(sequences))
        for low in range(0, len(order), MEGA_BATCH * size):
            mega = order[low : low + MEGA_BATCH * size]
            mega = mega[np.argsort(-lengths[mega], kind="stable")]
            for first in generator.permutation(range(0, len(mega), size)):
                chosen = mega[first : first + size]
                ids = np.full((len(chosen), lengths[chosen].max()), special["[PAD]"])
                for row, number in zip(ids, chosen, strict=True):
                    row[: lengths[number]] = sequences[number]
                mask = np.arange(ids.shape[1]) < lengths[chosen][:, None]
                hidden = (generator.random(ids.shape) < 0.15) & ~np.isin(ids, list(special.values()))
                labels = np.where(hidden, ids, IGNORED)
                draw = generator.random(ids.shape)
                ids = np.where(hidden & (draw < 0.8), special["[MASK]"], ids)
                random = generator.choice(ordinary, ids.shape)
                ids = np.where(hidden & (draw >= 0.9), random, ids)
                arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "labels": labels}
                yield {name: torch.from_numpy(array) for name, array in arrays.items()}


def masked_loss(model: Any, folder: Path) -> float:
    """Mean cross-entropy of a transformers model over the hidden tokens of the validation records, in float32."""
    import torch

    data = np.load(folder / "validation.npz")
    labels = np.full(len(data["ids"]), IGNORED)
    labels[data["index"]] = data["labels"]
    ends = np.cumsum(data["lengths"])[:-1]
    total = 0.0
    model.eval()
    with torch.no_grad():
        for ids, own in zip(np.split(data["ids"], ends), np.split(labels, ends), strict=True):
            hidden = own != IGNORED
            logits = model(input_ids=torch.from_numpy(ids)[None]).logits[0, torch.from_numpy(hidden)]
            wanted = torch.from_numpy(own[hidden])
            total += float(torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum"))
    return total / len(data["index"])


def own_run(
    arguments: argparse.Namespace, folder: Path, overrides: list[str], share: float, seed: int
) -> dict[str, Any]:
    """A run of ``seqbert pretrain``, and the loss of what it saved."""
    output = folder / f"run-{share:g}-{seed}"
    minutes = arguments.minutes * share
    command = [sys.executable, "-m", "seqbert", "pretrain", arguments.config, *overrides]
    command += ["--output", str(output), "--overwrite", "--seed", str(seed), "--training.minutes", str(minutes)]
    command += ["--objective.pair", "none", "--run.precision", arguments.precision, "--run.log_every", "1"]
    # It validates before the first step and after the last, on the clock; the loss of the last is not what is reported.
    command += ["--training.evaluate_every", "1000000", "--training.validation_tokens", "4096"]
    command += ["--run.checkpoint_every", "1000000", "--run.keep", "1"]
    run(command)
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "seconds" in row][-1]
    row = {"seed": seed, "seconds": last["seconds"], "steps": last["step"], "tokens": last["tokens"]}
    row |= json.loads(run([sys.executable, __file__, str(folder), "--judge", str(output / "model")]))
    say(f"seqbert: {row}")
    return row


def judge(folder: Path, model: str) -> dict[str, Any]:
    """The loss of saved weights, by transformers."""
    from transformers import AutoModelForMaskedLM

    loaded = AutoModelForMaskedLM.from_pretrained(model)
    parameters = sum(parameter.numel() for parameter in loaded.parameters())
    return {"loss": masked_loss(loaded, folder), "parameters": parameters}


def run(command: list[str]) -> str:
    """What a process prints; its own messages are shown where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"time_to_loss: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def say(text: str) -> None:
    """Tells how far it is."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
