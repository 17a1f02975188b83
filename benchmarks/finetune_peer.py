"""Fine-tunes the same weights on the same records with seqbert and with the Trainer of transformers.

    python benchmarks/finetune_peer.py --task mrpc --data glue/MRPC --init MODEL > mrpc.json

Both take the records, the tokenizer, the batch size and the hyper-parameters from here; those that the Trainer has a
default for are the Trainer's: AdamW (0.9, 0.999, 1e-8) without weight decay, no warm-up, linear decay to 0, gradients
no longer than 1. The Trainer runs as in transformers' own ``run_glue.py``: batches padded to their longest record,
validation after each epoch, a checkpoint every 500 steps and at the end. Its validation batches are as large as those
of training, not of 8 as by default, which would be slower. seqbert runs as it does by default, with two processes that
prepare batches; it also writes the best weights whenever there are better ones.

Every run has a process of its own, so that none warms up another, and the two take turns, seed by seed. Several
``--peer_precision`` measure the Trainer in each. Nothing else may run on the machine where the times are to mean
anything. Needs the extra "benchmarks".

Prints one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqbert.errors import CheckpointError, ConfigError, SeqbertError

if TYPE_CHECKING:
    from seqbert.training.finetune_data import LabelledData

CLOCK = {
    "seconds": "from before the model is made until after the last validation and the last checkpoint; in it: the "
    "model, the optimizer, all steps, a validation after each epoch, the writing of checkpoints. Before it, for both: "
    "imports, reading the files, tokenizing; for seqbert also the reading and checking of the weights' file. After "
    "it: seqbert's scoring of its best weights with intervals",
    "process_seconds": "of the whole process, with all that is outside the first clock",
}

METRICS = ("accuracy", "f1")

OURS = "seqbert"


def main() -> int:
    """Runs what the command line asks for; 2 where the user can mend what is wrong."""
    arguments = _parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # read by torch in the processes to come
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        check_peer(arguments)
        if arguments.run:
            who, precision, seed = arguments.run
            train = train_ours if who == "ours" else train_peer
            print(json.dumps(train(arguments, precision, int(seed))))
            return 0
        records, _ = read_records(arguments)
        report: dict[str, Any] = {
            "task": arguments.task,
            "records": {part: len(examples) for part, examples in records.parts.items()},
            "recipe": recipe(arguments),
            "threads": arguments.threads,
            "versions": {name: importlib.metadata.version(name) for name in ("seqbert", "torch", "transformers")},
            "clock": CLOCK,
        }
        if arguments.floor:
            report["linear_floor"] = linear_floor(records)
        report["runs"] = list(take_turns(arguments))
    except SeqbertError as error:
        print(f"finetune_peer: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        return error.returncode
    report["systems"] = {name: summary(runs) for name, runs in by_system(report["runs"]).items()}
    report["compared"] = compared(by_system(report["runs"]))
    print(json.dumps(report, indent=2))
    return 0


def check_peer(arguments: argparse.Namespace) -> None:
    """Makes sure that the Trainer can run, before anything does.

    Raises:
        CheckpointError: The weights are not in a Hugging Face folder.
        ConfigError: A library is missing.
    """
    if not (Path(arguments.init) / "config.json").is_file():
        raise CheckpointError(f'"{arguments.init}" (--init) is no Hugging Face folder: it has no config.json.')
    missing = [name for name in ("accelerate", "sklearn", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} cannot be imported. Install the extra: pip install 'seqbert[benchmarks]'."
        )


def recipe(arguments: argparse.Namespace) -> dict[str, Any]:
    """The hyper-parameters of both."""
    return {
        "epochs": arguments.epochs,
        "batch_size": arguments.batch_size,
        "learning_rate": arguments.learning_rate,
        "max_length": arguments.max_length,
        "optimizer": {"name": "adamw", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
        "schedule": {"name": "linear", "warmup": 0.0},
        "clip_norm": 1.0,
    }


def take_turns(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The runs of all seeds; which of them goes first changes from seed to seed.

    Raises:
        CalledProcessError: A run failed; it has said why.
    """
    systems: list[tuple[str, str, str]] = []
    if arguments.only != "peer":
        systems.append((OURS, "ours", arguments.precision))
    if arguments.only != "ours":
        precisions = arguments.peer_precision or [arguments.precision]
        systems += [(f"trainer_{precision}", "peer", precision) for precision in precisions]
    for seed in range(arguments.seeds):
        for name, who, precision in systems if seed % 2 == 0 else reversed(systems):
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, *sys.argv[1:], "--run", who, precision, str(seed)]
            begun = time.perf_counter()
            run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            run["process_seconds"] = round(time.perf_counter() - begun, 1)
            yield {"system": name, "precision": precision, "seed": seed, **run}


def train_ours(arguments: argparse.Namespace, precision: str, seed: int) -> dict[str, Any]:
    """One run of seqbert; validation metrics after each epoch, seconds and tokens."""
    import torch

    import seqbert
    from seqbert.training.logging import read_metrics

    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        settings = {"output": folder, "seed": seed, "init": arguments.init}
        settings |= {f"training.{key}": value for key, value in recipe(arguments).items()}
        settings |= {"run.device": "cpu", "run.precision": precision}
        result = seqbert.finetune(_config(arguments), _options(settings))
        rows = read_metrics(result.folder)
        found = json.loads((result.folder / "result.json").read_text(encoding="utf-8"))
    epochs = [row["validation_text"] for row in rows if "validation_text" in row]
    tokens = [row["tokens"] for row in rows if "tokens" in row][-1]
    return _run_report([[row[name] for name in METRICS] for row in epochs], found["seconds"][str(seed)], tokens, tokens)


def train_peer(arguments: argparse.Namespace, precision: str, seed: int) -> dict[str, Any]:
    """One run of the Trainer, as :func:`train_ours`."""
    import torch
    from sklearn.metrics import accuracy_score, f1_score
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        EvalPrediction,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    class CountingTrainer(Trainer):
        """Also counts the tokens of the training batches."""

        real = padded = 0

        def training_step(self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> torch.Tensor:
            self.real += int(inputs["attention_mask"].sum())
            self.padded += inputs["attention_mask"].numel()
            return super().training_step(model, inputs, *rest, **named)

    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        chosen = prediction.predictions.argmax(-1)
        gold = prediction.label_ids
        return {"accuracy": accuracy_score(gold, chosen), "f1": f1_score(gold, chosen, zero_division=0.0)}

    torch.set_num_threads(arguments.threads)
    records, labels = read_records(arguments)
    tokenizer = AutoTokenizer.from_pretrained(arguments.init)
    rows = {}
    for part, examples in records.parts.items():
        texts = [list(column) for column in zip(*(example.sequences for example in examples), strict=True)]
        encoded = tokenizer(*texts, truncation=True, max_length=arguments.max_length)
        rows[part] = [
            {name: column[number] for name, column in encoded.items()} | {"labels": labels.index(example.label)}
            for number, example in enumerate(examples)
        ]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        begun = time.perf_counter()
        set_seed(seed)  # of the new layer's weights
        model = AutoModelForSequenceClassification.from_pretrained(arguments.init, num_labels=len(labels))
        trainer = CountingTrainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=arguments.epochs,
                per_device_train_batch_size=arguments.batch_size,
                per_device_eval_batch_size=arguments.batch_size,
                learning_rate=arguments.learning_rate,
                eval_strategy="epoch",
                save_total_limit=1,
                seed=seed,
                use_cpu=True,
                bf16=precision == "bf16",
                report_to="none",
                disable_tqdm=True,
            ),
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
            compute_metrics=metrics,
        )
        trainer.train()
        seconds = time.perf_counter() - begun
    epochs = [row for row in trainer.state.log_history if "eval_accuracy" in row]
    found = [[float(row[f"eval_{name}"]) for name in METRICS] for row in epochs]
    return _run_report(found, seconds, trainer.real, trainer.padded)


def read_records(arguments: argparse.Namespace) -> tuple[LabelledData, list[str]]:
    """The training and validation records of every run, and the labels in order."""
    from seqbert import registry
    from seqbert.tasks import build_task
    from seqbert.training.finetune_data import read_labelled

    config = _config(arguments)
    task = build_task(config.task)
    records = read_labelled(config.data, task, registry.load(config.domain.name)(config.domain.options), _say)
    return records, list(task.label_names or [])


def linear_floor(records: LabelledData) -> dict[str, Any]:
    """Logistic regression over TF-IDF of words and pairs of words.

    How much it is regularised is chosen by five folds of the training records. A pair of texts is described by where
    they differ and by what they share: ``|a - b|`` and ``a * b``.
    """
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score
    from sklearn.model_selection import GridSearchCV

    train, validation = records.parts["train"], records.parts["validation"]
    vectors = TfidfVectorizer(ngram_range=(1, 2)).fit(text for example in train for text in example.sequences)

    def features(examples: list[Any]) -> Any:
        columns = [vectors.transform(texts) for texts in zip(*(one.sequences for one in examples), strict=True)]
        if len(columns) == 1:
            return columns[0]
        first, second = columns
        return hstack([abs(first - second), first.multiply(second)]).tocsr()

    search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [0.1, 1.0, 10.0, 100.0]}, cv=5)
    search.fit(features(train), [example.label for example in train])
    gold, chosen = [example.label for example in validation], search.predict(features(validation))
    positive = search.classes_[-1]
    return {
        "accuracy": round(float(accuracy_score(gold, chosen)), 4),
        "f1": round(float(f1_score(gold, chosen, pos_label=positive, zero_division=0.0)), 4),
        "C": search.best_params_["C"],
    }


def by_system(runs: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Runs by what made them, seqbert first."""
    systems: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: (run["system"] != OURS, run["seed"])):
        systems.setdefault(run["system"], []).append(run)
    return systems


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation of the metrics over the seeds, median of the seconds, and the tokens of a run."""
    rows: dict[str, Any] = {}
    for when in ("last", "best"):
        rows[when] = {}
        for name in METRICS:
            values = [run[when][name] for run in runs]
            spread = statistics.stdev(values) if len(values) > 1 else None
            rows[when][name] = {
                "mean": round(statistics.fmean(values), 4),
                "standard_deviation": None if spread is None else round(spread, 4),
            }
    return rows | {
        "seconds": round(statistics.median(run["seconds"] for run in runs), 2),
        "process_seconds": round(statistics.median(run["process_seconds"] for run in runs), 1),
        "padding_efficiency": round(statistics.fmean(run["padding_efficiency"] for run in runs), 3),
    }


def compared(systems: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Against each form of the peer: seqbert's mean metrics less its, in points, and the ratio of the seconds.

    The ratio is the median over the seeds, each run beside that of the same seed.
    """
    rows = {}
    for name in [name for name in systems if name != OURS and OURS in systems]:
        pairs = list(zip(systems[OURS], systems[name], strict=True))
        rows[name] = {
            "points": {
                when: {
                    metric: round(
                        100 * statistics.fmean(ours[when][metric] - theirs[when][metric] for ours, theirs in pairs), 2
                    )
                    for metric in METRICS
                }
                for when in ("last", "best")
            },
            **{
                f"{clock}_ratio": round(statistics.median(ours[clock] / theirs[clock] for ours, theirs in pairs), 3)
                for clock in CLOCK
            },
        }
    return rows


def _run_report(epochs: list[list[float]], seconds: float, real: int, padded: int) -> dict[str, Any]:
    """A run as plain data: "best" is the epoch of the highest accuracy, "last" what training ended with."""
    rows = [{name: round(value, 4) for name, value in zip(METRICS, row, strict=True)} for row in epochs]
    return {
        "last": rows[-1],
        "best": max(rows, key=lambda row: row["accuracy"]),
        "epochs": rows,
        "seconds": round(seconds, 2),
        "tokens": {"real": real, "padded": padded},
        "padding_efficiency": round(real / padded, 3),
    }


def _config(arguments: argparse.Namespace) -> Any:
    """The shipped config of the task, on the records that are asked for."""
    from seqbert.training.finetune_config import load_finetune_config

    data = {"data.folder": arguments.data, "data.train_size": arguments.train_size, "data.long": "cut"}
    return load_finetune_config(f"text/glue/{arguments.task}", _options(data))


def _options(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """A tree as it would be written on the command line."""
    options = []
    for key, value in settings.items():
        if isinstance(value, dict):
            options += _options(value, f"{prefix}{key}.")
        elif value is not None:
            options += [f"--{prefix}{key}", str(value)]
    return options


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def count(text: str) -> int:
    """A whole number above 0, from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", choices=["mrpc", "sst2"], required=True, help="a task of GLUE")
    parser.add_argument("--data", metavar="FOLDER", required=True, help="where its train.tsv and dev.tsv are")
    parser.add_argument("--init", metavar="MODEL", required=True, help="a Hugging Face folder with BERT weights")
    parser.add_argument("--seeds", type=count, default=3, help="runs of each, with seeds from 0 on")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch_size", type=count, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--max_length", type=int, default=128, help="tokens; what is longer is cut")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="of seqbert")
    parser.add_argument(
        "--peer_precision", choices=["bf16", "fp32"], nargs="+", help="of the Trainer; default: that of seqbert"
    )
    parser.add_argument("--train_size", type=int, metavar="N", help="train on N records, the same ones for both")
    parser.add_argument("--threads", type=count, default=2, help="of torch")
    parser.add_argument("--only", choices=["ours", "peer"], help="run one of the two")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)  # one run, in the process that is there for it
    parser.add_argument("--floor", action="store_true", help="also a linear model on the same records")
    return parser


if __name__ == "__main__":
    sys.exit(main())
