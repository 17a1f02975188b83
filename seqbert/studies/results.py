"""What the jobs of a study reached, as one tidy table: a row for each number."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqbert.data.whole import write_text
from seqbert.studies.declaration import SEED, ClaimConfig, PictureConfig, TableConfig
from seqbert.studies.jobs import Job
from seqbert.training.logging import read_metrics

ROWS = "rows.json"
"""What a measuring function gave, in the folder of its job."""

TABLE = "table.csv"


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """One number that a job reached.

    Attributes:
        stage: The job's stage.
        labels: The values of its axes, and what a measuring function calls this number by, such as a layer.
        seed: The job's seed.
        metric: What it is.
        value: The number.
    """

    stage: str
    labels: Mapping[str, str | float]
    seed: int
    metric: str
    value: float

    def fits(self, where: Mapping[str, Any]) -> bool:
        """Whether its labels have these values; a list stands for any of its items."""
        for label, wanted in where.items():
            if label not in self.labels:
                return False
            allowed = wanted if isinstance(wanted, list) else [wanted]
            if str(self.labels[label]) not in map(str, allowed):
                return False
        return True


def chosen(numbers: Iterable[Number], entry: TableConfig | PictureConfig | ClaimConfig) -> list[Number]:
    """The numbers that a table, a picture or a claim is about."""
    return [one for one in numbers if one.stage == entry.stage and one.metric == entry.metric and one.fits(entry.where)]


def result_file(job: Job) -> Path:
    """The file that is there when a job is done."""
    return job.folder / (ROWS if job.run == "measure" else "result.json")


def numbers_of(jobs: Iterable[Job], seconds: Mapping[Path, float]) -> list[Number]:
    """All numbers of the jobs that are done, and how many ``seconds`` each took, by its folder."""
    found: list[Number] = []
    for job in jobs:
        if result_file(job).is_file():
            found += _of_job(job)
            if job.folder in seconds:
                found.append(Number(job.stage, dict(job.values), job.seed, "seconds", seconds[job.folder]))
    return found


def _of_job(job: Job) -> Iterator[Number]:
    content = json.loads(result_file(job).read_text(encoding="utf-8"))
    if job.run == "measure":
        for row in content["rows"]:
            for metric, value in row["metrics"].items():
                if _is_number(value):
                    yield Number(job.stage, {**job.values, **row["labels"]}, job.seed, metric, float(value))
        return
    reached = _of_pretraining(content) if job.run == "pretrain" else _of_finetuning(content)
    for labels, metric, value in reached:
        yield Number(job.stage, {**job.values, **labels}, job.seed, metric, value)
    for metric, value in _cost(job).items():
        yield Number(job.stage, dict(job.values), job.seed, metric, value)


def _of_pretraining(content: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], str, float]]:
    several = len(content["domains"]) > 1
    for name, domain in content["domains"].items():
        for metric, value in domain["after"].items():
            if _is_number(value):
                yield {"domain": name} if several else {}, f"validation.{metric}", float(value)


def _of_finetuning(content: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], str, float]]:
    for part, metrics in content["metrics"].items():
        for metric, row in metrics.items():
            value = row["value"] if isinstance(row, Mapping) else row
            if _is_number(value):
                yield {}, f"{part}.{metric}", float(value)


def _cost(job: Job) -> dict[str, float]:
    """Steps and tokens of training, and the number of parameters, as far as they are known."""
    found: dict[str, float] = {}
    for row in read_metrics(job.folder):
        found |= {
            name: float(row[key]) for name, key in (("tokens", "tokens"), ("steps", "step")) if _is_number(row.get(key))
        }
    for weights in sorted((job.folder / "model").rglob("model.safetensors"))[:1]:
        found["parameters"] = float(_parameters(weights))
    return found


def _parameters(weights: Path) -> int:
    """How many numbers a file of weights holds, read off its head."""
    from safetensors import safe_open

    with safe_open(weights, framework="numpy") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def labels_of(numbers: Sequence[Number]) -> list[str]:
    """The names of all labels, in order of appearance."""
    return list(dict.fromkeys(label for number in numbers for label in number.labels))


def write_table(numbers: Sequence[Number], path: Path) -> None:
    """Writes all numbers as CSV: ``stage``, a column a label, ``seed``, ``metric``, ``value``."""
    labels = labels_of(numbers)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["stage", *labels, SEED, "metric", "value"])
    for number in numbers:
        cells = [number.labels.get(label, "") for label in labels]
        writer.writerow([number.stage, *cells, number.seed, number.metric, repr(number.value)])
    write_text(path, text.getvalue())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
