"""Times the same small job from its start to its end: ``seqbert pretrain`` and transformers' example ``run_mlm.py``.

    python benchmarks/end_to_end.py --data book.txt > end_to_end.json
    python benchmarks/end_to_end.py --data book.txt --script transformers/examples/pytorch/language-modeling/run_mlm.py

The job: from a text file to a BERT mini (4 layers of 256) trained on 100,000 tokens and written to disk. Both are given
the same file of one sentence a line, the same tokenizer, at most 128 tokens a sequence, as many tokens a step, and
neither drops out. ``run_mlm.py`` runs as its authors have it: ``--line_by_line``, batches padded to their longest line.
The clock is that of the whole process: imports, tokenizing, training, writing the model. Making the tokenizer comes
before it. Each run has folders of its own, so that nobody finds the other's, or an earlier, cache.

The script is part of transformers' repository and of no package, and nothing is downloaded here: give its path with
``--script``. Without one, the same calls of the same libraries in the same order stand in for it (``--run peer``); the
report says which it was. Needs the extra "benchmarks".

Prints one JSON object; ``ratio`` is the peer's median over seqbert's. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODEL = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SENTENCE_END = re.compile(r"(?<=[.!?]['\"”’]) +|(?<=[.!?]) +(?=[A-Z\"“‘'])")


def main() -> int:
    """Measures what the command line asks for."""
    arguments = _parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    if arguments.run:
        train_peer(Path(arguments.run), arguments)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = prepare(arguments, folder)
        print(
            json.dumps({key: job[key] for key in ("sentences", "mean_length", "batch_size", "steps")}), file=sys.stderr
        )
        runs: dict[str, list[dict[str, float]]] = {"seqbert": [], "peer": []}
        for number in range(arguments.repeats):
            for who in ("seqbert", "peer") if number % 2 == 0 else ("peer", "seqbert"):
                runs[who].append(timed(who, job, arguments, folder / f"{who}-{number}"))
                print(who, runs[who][-1], file=sys.stderr, flush=True)
    medians = {who: statistics.median(run["seconds"] for run in found) for who, found in runs.items()}
    report = {
        "job": job,
        "precision": arguments.precision,
        "threads": arguments.threads,
        "peer": "run_mlm.py" if arguments.script else "stand-in for run_mlm.py",
        "versions": {
            name: importlib.metadata.version(name) for name in ("seqbert", "torch", "transformers", "datasets")
        },
        "runs": runs,
        "seconds": medians,
        "ratio": round(medians["peer"] / medians["seqbert"], 2),
    }
    print(json.dumps(report, indent=2))
    return 0


def prepare(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The file, the tokenizer in both forms, and the sizes of the job: all that comes before the clock."""
    from transformers import PreTrainedTokenizerFast

    import seqbert

    characters = int(arguments.megabytes * 1e6)
    text = Path(arguments.data).read_text(encoding="utf-8", errors="replace")[:characters]
    paragraphs = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    sentences = [part for paragraph in paragraphs for part in SENTENCE_END.split(paragraph) if len(part) > 1]
    file = folder / "sentences.txt"
    file.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    made = folder / "tokenizer-run"
    seqbert.prepare(
        {
            "output": str(made),
            "domains": {"text": {"data": [str(file)], "vocab_size": arguments.vocab_size}},
            "run": {"corpus_dir": str(folder / "tokenizer-corpus"), "workers": 0},
        }
    )
    tokenizer_json = next(made.rglob("tokenizer.json"))
    names = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("unk", "sep", "pad", "cls", "mask")}
    fast: Any = PreTrainedTokenizerFast  # it has no types
    tokenizer = fast(tokenizer_file=str(tokenizer_json), model_max_length=arguments.max_length, **names)
    tokenizer.save_pretrained(folder / "tokenizer")
    lengths = [len(ids) for ids in tokenizer(sentences, truncation=True, max_length=arguments.max_length)["input_ids"]]
    mean = statistics.fmean(lengths)
    return {
        "file": str(file),
        "characters": file.stat().st_size,
        "tokenizer_json": str(tokenizer_json),
        "tokenizer": str(folder / "tokenizer"),
        "vocab_size": len(tokenizer),
        "sentences": len(sentences),
        "mean_length": round(mean, 1),
        "max_length": arguments.max_length,
        "tokens": arguments.tokens,
        "tokens_per_step": arguments.tokens_per_step,
        "batch_size": max(1, round(arguments.tokens_per_step / mean)),
        "steps": max(1, round(arguments.tokens / arguments.tokens_per_step)),
    }


def timed(who: str, job: dict[str, Any], arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Seconds of a whole process, and those that processors worked for it."""
    folder.mkdir()
    command = seqbert_command(job, arguments, folder) if who == "seqbert" else peer_command(job, arguments, folder)
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "TOKENIZERS_PARALLELISM": "true" if arguments.threads > 1 else "false",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 2), "processor_seconds": round(worked, 2)}


def seqbert_command(job: dict[str, Any], arguments: argparse.Namespace, folder: Path) -> list[str]:
    """The command line of ``seqbert pretrain``, with its config written to a file."""
    from seqbert import config as config_tree
    from seqbert.training.pretrain_config import load_config

    tree = {
        "output": str(folder / "run"),
        "domains": {"text": {"data": [job["file"]], "tokenizer": job["tokenizer_json"], "validation": 0.0}},
        "model": {"preset": "bert-mini", "dropout": 0.0},
        "training": {
            "max_length": job["max_length"],
            "tokens_per_step": job["tokens_per_step"],
            "steps": job["steps"],
            "evaluate_every": 10**6,
        },
        "run": {
            "device": "cpu",
            "precision": arguments.precision,
            "corpus_dir": str(folder / "corpora"),
            "checkpoint_every": 500,
            "workers": arguments.workers,
        },
    }
    config = folder / "config.yaml"
    config.write_text(config_tree.dump(load_config(tree)), encoding="utf-8")
    return [str(Path(sys.executable).with_name("seqbert")), "pretrain", str(config)]


def peer_command(job: dict[str, Any], arguments: argparse.Namespace, folder: Path) -> list[str]:
    """The command line of ``run_mlm.py``, or of what stands in for it."""
    if not arguments.script:
        settings = folder / "job.json"
        settings.write_text(json.dumps(job | {"output": str(folder / "run")}), encoding="utf-8")
        passed = ["--precision", arguments.precision, "--threads", str(arguments.threads), "--data", job["file"]]
        return [sys.executable, __file__, "--run", str(settings), *passed]
    overrides = ",".join(
        f"{key}={value}" for key, value in (MODEL | DROPOUT | {"vocab_size": job["vocab_size"]}).items()
    )
    command = [sys.executable, arguments.script, "--model_type", "bert", "--config_overrides", overrides]
    command += ["--tokenizer_name", job["tokenizer"], "--train_file", job["file"], "--line_by_line", "--do_train"]
    command += ["--max_seq_length", str(job["max_length"]), "--per_device_train_batch_size", str(job["batch_size"])]
    command += ["--max_steps", str(job["steps"]), "--output_dir", str(folder / "run"), "--report_to", "none"]
    command += ["--cache_dir", str(folder / "cache"), "--use_cpu", "True"]
    return [*command, "--bf16", "True"] if arguments.precision == "bf16" else command


def train_peer(settings: Path, arguments: argparse.Namespace) -> None:
    """What ``run_mlm.py --line_by_line --do_train`` does: the calls that it makes of datasets and of transformers."""
    import evaluate  # type: ignore[import-untyped]  # noqa: F401  # it is imported there too
    from datasets import load_dataset  # type: ignore[import-untyped]
    from transformers import (
        AutoConfig,
        AutoModelForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    job = json.loads(settings.read_text(encoding="utf-8"))
    set_seed(42)
    cache = str(settings.parent / "cache")
    files = {"train": job["file"]}
    training = load_dataset("text", data_files=files, split="train[5%:]", cache_dir=cache)  # it always holds out 5 %
    load_dataset("text", data_files=files, split="train[:5%]", cache_dir=cache)
    tokenizer = AutoTokenizer.from_pretrained(job["tokenizer"])
    masked_lm: Any = AutoModelForMaskedLM  # it has no types
    model = masked_lm.from_config(AutoConfig.for_model("bert", **MODEL, **DROPOUT, vocab_size=job["vocab_size"]))

    def tokenize(examples: dict[str, list[str]]) -> Any:
        lines = [line for line in examples["text"] if line and not line.isspace()]
        return tokenizer(lines, truncation=True, max_length=job["max_length"], return_special_tokens_mask=True)

    training = training.map(tokenize, batched=True, remove_columns=["text"])
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=job["output"],
            per_device_train_batch_size=job["batch_size"],
            max_steps=job["steps"],
            report_to="none",
            use_cpu=True,
            bf16=arguments.precision == "bf16",
        ),
        train_dataset=training,
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=0.15),
    )
    trainer.train()
    trainer.save_model()
    trainer.save_state()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text file in sentences, such as a book")
    parser.add_argument("--script", help="run_mlm.py of the transformers that is installed")
    parser.add_argument("--megabytes", type=float, default=1.0, help="how much of the file is used")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--tokens_per_step", type=int, default=2048)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--vocab_size", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1, help="of torch, in both")
    parser.add_argument("--workers", type=int, default=1, help="processes in which seqbert prepares batches")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", metavar="JOB", help="train in place of run_mlm.py, as a file describes; used within")
    return parser


if __name__ == "__main__":
    sys.exit(main())
