"""Fine-tunes and scores all nine tasks of GLUE (Wang et al. 2019), one after the other.

    python benchmarks/glue.py --data glue --init MODEL --output runs/glue > glue.json

``--data`` is the folder that the benchmark's download makes, with one folder a task: CoLA, SST-2, MRPC, STS-B, QQP,
MNLI, QNLI, RTE, WNLI; glue_cola, glue_sst2 and so on are found too. A task without training or development records is
named with the reason, and the others are run. Each is a run under ``--output``, by the config of its name under
``configs/text/glue``; further options such as ``--training.learning_rate 2e-5`` change all of them. Called again, it
reads the runs that are finished, goes on with the one that was interrupted, and begins the others.

Scores are those of the development records, on which the best epoch was chosen too; of several seeds, those of the
median one. A task's score is the mean of its metrics, and the benchmark's average that of its tasks; a task of which
there is only an excerpt is scored, and left out of the average. Where there are test records, their predictions are
written to ``submission`` in the form that gluebenchmark.com takes.

Prints one JSON object; a table and progress go to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqbert.errors import ConfigError, SeqbertError, nearest

VALIDATION, TEST = "validation", "test"

SPARED = {"WNLI"}
"""What is left out of the second average, as Devlin et al. 2019 do: its records mislead."""

EXCERPT = 0.9
"""Records are an excerpt where there are fewer than this share of the benchmark's; some are empty, and are not read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A task of the benchmark.

    Attributes:
        name: Its name, and that of its folder in the benchmark's download.
        development: How many development records it has.
        metrics: What its score is the mean of: parts of the run and their metrics.
        tests: The test files, beside the training file, by name in a submission.
    """

    name: str
    development: int
    metrics: tuple[tuple[str, str], ...]
    tests: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name in configs: "sst2"."""
        return self.name.lower().replace("-", "")

    @property
    def submissions(self) -> dict[str, str]:
        """Test files by name in a submission."""
        return self.tests or {self.name: "test.tsv"}


ACCURACY = (VALIDATION, "accuracy")

TASKS = (
    Task("CoLA", 1043, ((VALIDATION, "matthews"),)),
    Task("SST-2", 872, (ACCURACY,)),
    Task("MRPC", 408, ((VALIDATION, "f1"), ACCURACY)),
    Task("STS-B", 1500, ((VALIDATION, "pearson"), (VALIDATION, "spearman"))),
    Task("QQP", 40430, ((VALIDATION, "f1"), ACCURACY)),
    Task(
        "MNLI",
        9815,
        (ACCURACY, (TEST, "accuracy")),  # matched and mismatched genres
        {"MNLI-m": "test_matched.tsv", "MNLI-mm": "test_mismatched.tsv", "AX": "../diagnostic/diagnostic.tsv"},
    ),
    Task("QNLI", 5463, (ACCURACY,)),
    Task("RTE", 277, (ACCURACY,)),
    Task("WNLI", 71, (ACCURACY,)),
)


@dataclasses.dataclass(slots=True)
class Plan:
    """What is to be done for a task: a run, nothing because there is one, or nothing because it lacks data."""

    task: Task
    folder: Path | None = None
    config: Any = None
    finished: bool = False
    lacks: str = ""

    @property
    def state(self) -> str:
        """The plan in two words."""
        return f"without data: {self.lacks}" if self.lacks else "finished" if self.finished else "to run"


def main() -> int:
    """Runs what the command line asks for; 2 where the user can mend what is wrong, 1 where a task failed."""
    parser = _parser()
    arguments, overrides = parser.parse_known_args()
    if overrides and not overrides[0].startswith("--"):
        parser.error(f'"{overrides[0]}" belongs to no option')
    try:
        plans = [make_plan(task, arguments, overrides) for task in chosen(arguments.tasks)]
    except SeqbertError as error:
        print(f"glue: {error}", file=sys.stderr)
        return 2
    if arguments.dry_run:
        print(json.dumps({plan.task.name: plan.state for plan in plans}, indent=2))
        return 0
    rows, failed = {}, {}
    for plan in plans:
        print(f"{plan.task.name}: {plan.state}", file=sys.stderr, flush=True)
        if plan.lacks:
            continue
        try:
            rows[plan.task.name] = carry_out(plan, Path(arguments.output) / "submission")
        except SeqbertError as error:
            print(f"{plan.task.name}: {error}", file=sys.stderr)
            failed[plan.task.name] = str(error)
    averaged = [name for name, row in rows.items() if not row["excerpt"]]
    report = {
        "init": arguments.init,
        "tasks": rows,
        "without_data": {plan.task.name: plan.lacks for plan in plans if plan.lacks},
        "failed": failed,
        "averaged": averaged,
        "average": average(rows, averaged),
        "average_without_wnli": average(rows, [name for name in averaged if name not in SPARED]),
        "complete": len(averaged) == len(TASKS),
    }
    print(table(report), file=sys.stderr)
    print(json.dumps(report, indent=2))
    return 1 if failed else 0


def chosen(names: Sequence[str] | None) -> list[Task]:
    """The tasks of these names, in the order of the benchmark; all where none are named.

    Raises:
        ConfigError: There is no such task.
    """
    by_key = {task.key: task for task in TASKS}
    keys = [_key(name) for name in names or by_key]
    for key, name in zip(keys, names or keys, strict=True):
        if key not in by_key:
            raise ConfigError(
                f'GLUE has no task "{name}" (--tasks); it has {", ".join(task.name for task in TASKS)}.'
                f"{nearest(key, by_key)}"
            )
    return [task for task in TASKS if task.key in keys]


def make_plan(task: Task, arguments: argparse.Namespace, overrides: Sequence[str]) -> Plan:
    """What is to be done for a task.

    Raises:
        ConfigError: An option is none of the config's, or the task's folder holds a run of another config.
    """
    from seqbert.training.finetune_config import load_finetune_config
    from seqbert.training.parallel import ALONE
    from seqbert.training.resuming import Resuming
    from seqbert.training.run_folder import RunFolder

    data = find_folder(Path(arguments.data), task)
    if isinstance(data, str):
        return Plan(task, lacks=data)
    run = RunFolder(Path(arguments.output) / task.key)
    options = ["--output", run.path, "--init", arguments.init, "--data.folder", data]
    for key, value in (
        ("data.train_size", arguments.train_size),
        ("training.seeds", arguments.seeds),
        ("training.epochs", arguments.epochs),
    ):
        options += [] if value is None else [f"--{key}", value]
    config = load_finetune_config(f"text/glue/{task.key}", [*map(str, options), *overrides])
    needed = [*config.data.train, *_listed(config.data.validation), *(config.data.test or [])]
    missing = [name for name in needed if not (data / name).is_file()]
    if missing:
        return Plan(task, lacks=f'the folder "{data}" has no {", ".join(missing)}')
    Resuming(run, "auto", allow_changes=False, note=print, world=ALONE).check_config(config)
    return Plan(task, data, config, (run.path / "result.json").is_file())


def find_folder(data: Path, task: Task) -> Path | str:
    """The folder of a task's files, or why there is none.

    The benchmark's own name goes before others, and a folder with training records before one without.

    Raises:
        ConfigError: ``data`` is no folder, or several are as good as each other.
    """
    if not data.is_dir():
        raise ConfigError(f'There is no folder "{data}" (--data).')
    ours = re.compile(rf"(glue)?{task.key}")
    also = re.compile(rf"glue[-_]{task.key}[-_].*")
    folders = [
        path
        for path in sorted(data.iterdir())
        if path.is_dir() and (ours.fullmatch(_key(path.name)) or also.fullmatch(path.name.lower()))
    ]
    if not folders:
        return f'"{data}" has no folder {task.name} or glue_{task.key}'
    ranked = sorted(folders, key=lambda path: _rank(path, task))
    if len(ranked) > 1 and _rank(ranked[0], task) == _rank(ranked[1], task):
        raise ConfigError(
            f'"{ranked[0]}" and "{ranked[1]}" could both be the data of {task.name}: move one of them elsewhere.'
        )
    return ranked[0]


def carry_out(plan: Plan, submission: Path) -> dict[str, Any]:
    """Runs a task, or reads the run that is finished, and writes the predictions for its test records."""
    import seqbert
    from seqbert.training.run_folder import RunFolder

    output = Path(plan.config.output)
    if not plan.finished:
        with contextlib.redirect_stdout(sys.stderr):
            seqbert.finetune(plan.config, resume="auto" if RunFolder(output).exists() else None)
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    by_score = sorted(result["seeds"], key=lambda seed: task_score(plan.task, result["seeds"][seed]))
    median = by_score[(len(by_score) - 1) // 2]
    run = output if len(by_score) == 1 else output / "seeds" / median
    parts = {
        part: json.loads((run / "evaluation" / part / "metrics.json").read_text(encoding="utf-8"))
        for part in dict.fromkeys(part for part, _ in plan.task.metrics)
    }
    data = json.loads((output / "data.json").read_text(encoding="utf-8"))
    records = {part: row["used"]["records"] for part, row in data.items()}
    return {
        "score": round(task_score(plan.task, result["seeds"][median]), 4),
        "metrics": {_label(plan.task, part, name): parts[part]["metrics"][name] for part, name in plan.task.metrics},
        "seed": int(median),
        "scores_of_seeds": {seed: round(task_score(plan.task, found), 4) for seed, found in result["seeds"].items()},
        "records": records,
        "excerpt": records[VALIDATION] < EXCERPT * plan.task.development,
        "seconds": result["seconds"],
        "run": str(output),
        "submission": write_predictions(plan, output, submission),
    }


def write_predictions(plan: Plan, run: Path, submission: Path) -> dict[str, Any]:
    """Writes the predictions for each test file that is there, and tells how many rows they have.

    The benchmark takes a file only if it has a row for every record, so those that could not be read are counted too.

    Raises:
        DataError: A test file cannot be read.
    """
    from seqbert.inference.predict import predict
    from seqbert.training.finetuned import Finetuned

    assert plan.folder is not None
    trained = None
    written: dict[str, Any] = {}
    for name, file in plan.task.submissions.items():
        source, target = plan.folder / file, submission / f"{name}.tsv"
        if not source.is_file():
            continue
        if not (plan.finished and target.is_file()):
            trained = trained or Finetuned.of_run(run)
            submission.mkdir(parents=True, exist_ok=True)
            predict(trained, str(source), target)
        rows, lacking = _rows(target), _rows(source) - _rows(target)
        written[name] = {"file": str(target), "rows": rows, "lacking": lacking}
        if lacking:
            print(f'"{target}" lacks {lacking:,} records of "{source}" that cannot be read.', file=sys.stderr)
    return written


def task_score(task: Task, found: dict[str, dict[str, float | None]]) -> float:
    """Mean of a task's metrics; one that is not defined, as a correlation of constant predictions, counts as 0."""
    return statistics.fmean(found[part][name] or 0.0 for part, name in task.metrics)


def average(rows: dict[str, dict[str, Any]], names: Sequence[str]) -> float | None:
    """Mean score of the tasks of these names; None where there are none."""
    return round(statistics.fmean(rows[name]["score"] for name in names), 4) if names else None


def table(report: dict[str, Any]) -> str:
    """The report for people, in points."""
    lines = [f"{'task':6}  {'score':>6}  {'records':>8}  {'seconds':>8}  metrics with 95 % intervals"]
    for name, row in report["tasks"].items():
        metrics = ", ".join(f"{metric} {_points(found)}" for metric, found in row["metrics"].items())
        seconds = sum(row["seconds"].values())
        lines.append(
            f"{name:6}  {100 * row['score']:6.1f}  {row['records'][VALIDATION]:8,}  {seconds:8,.0f}  {metrics}"
            f"{' (an excerpt, left out of the average)' if row['excerpt'] else ''}"
        )
    for title in ("without_data", "failed"):
        lines += [f"{name:6}  {title.replace('_', ' ')}: {reason}" for name, reason in report[title].items()]
    if report["average"] is not None:
        spared = report["average_without_wnli"]
        rest = "" if spared is None else f", {100 * spared:.1f} without WNLI"
        lines.append(f"average of {len(report['averaged'])} tasks: {100 * report['average']:.1f}{rest}")
    return "\n".join(lines)


def _label(task: Task, part: str, name: str) -> str:
    """A metric's name; where a task is scored on two files also which of them."""
    if len({where for where, _ in task.metrics}) == 1:
        return name
    return f"{name}_{'matched' if part == VALIDATION else 'mismatched'}"


def _points(found: dict[str, Any]) -> str:
    if found["value"] is None:
        return "not defined"
    interval = f" [{100 * found['low']:.1f}, {100 * found['high']:.1f}]" if "low" in found else ""
    return f"{100 * found['value']:.1f}{interval}"


def _rank(folder: Path, task: Task) -> tuple[bool, bool, bool]:
    """The lower the better: training records, the benchmark's own name, a name without a suffix."""
    return not (folder / "train.tsv").is_file(), folder.name != task.name, not _key(folder.name).endswith(task.key)


def _rows(path: Path) -> int:
    """Lines below the header."""
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip()) - 1


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _listed(names: Any) -> list[str]:
    return names if isinstance(names, list) else [names] if isinstance(names, str) else []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="Further options, such as --training.learning_rate 2e-5, are keys of the config of every run.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", metavar="FOLDER", required=True, help="the benchmark's data, one folder a task")
    parser.add_argument("--init", metavar="MODEL", required=True, help="a run or a Hugging Face folder")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these, such as CoLA RTE")
    parser.add_argument("--output", metavar="FOLDER", default="runs/glue", help="where the runs go")
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of each task; default: 1")
    parser.add_argument("--train_size", type=int, metavar="N", help="train on N records at most")
    parser.add_argument("--epochs", type=float, metavar="N", help="default: those of each config")
    parser.add_argument("--dry_run", action="store_true", help="only say what would run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
