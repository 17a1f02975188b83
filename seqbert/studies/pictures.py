"""The pictures of a study, each as PNG and SVG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqbert.analysis import charts
from seqbert.studies.declaration import PictureConfig, StudyConfig
from seqbert.studies.jobs import Job
from seqbert.studies.results import Number, chosen
from seqbert.training.logging import read_metrics

ALL = "all"
"""The series where nothing tells any apart."""


def draw_pictures(study: StudyConfig, jobs: Sequence[Job], numbers: Sequence[Number], folder: Path) -> None:
    """Draws what the study asks for; a picture of which there is no number yet is left out."""
    for place, config in enumerate(study.pictures, start=1):
        path = folder / f"{place:02d}-{config.kind}"
        folder.mkdir(parents=True, exist_ok=True)
        names: dict[str, Any] = {
            "title": config.title,
            "x_label": config.x_label or config.x.replace("_", " "),
            "y_label": config.y_label or config.metric.replace("_", " "),
        }
        if config.kind == "curves":
            series = _curves(config, study, jobs)
        elif config.kind == "lines":
            series = _lines(config, study, numbers)
        else:
            groups = _groups(config, study, numbers)
            if groups:
                (charts.bars if config.kind == "bars" else charts.boxes)(path, groups, **names)
            continue
        if series:
            charts.lines(path, series, **names, log_x=config.log_x)


def _groups(config: PictureConfig, study: StudyConfig, numbers: Sequence[Number]) -> dict[str, dict[str, list[float]]]:
    """Group, series, and one value a seed: the mean of what differs in neither."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for one in chosen(numbers, config):
        group, series = str(one.labels.get(config.x, ALL)), _series(config, one.labels)
        found.setdefault(group, {}).setdefault(series, {}).setdefault(one.seed, []).append(one.value)
    return {
        group: {name: [statistics.fmean(values) for values in found[group][name].values()] for name in rows}
        for group, rows in _ordered(config.x, study, found)
    }


def _lines(config: PictureConfig, study: StudyConfig, numbers: Sequence[Number]) -> dict[str, dict[float, list[float]]]:
    """Series, x, and one value a seed; x is a label, or another metric of the same run."""
    places = {
        (tuple(one.labels.items()), one.seed): one.value
        for one in numbers
        if one.stage == config.stage and one.metric == config.x
    }
    found: dict[str, dict[float, list[float]]] = {}
    for one in chosen(numbers, config):
        x = one.labels.get(config.x, places.get((tuple(one.labels.items()), one.seed)))
        try:
            place = float(x)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        found.setdefault(_series(config, one.labels), {}).setdefault(place, []).append(one.value)
    return {name: dict(sorted(points.items())) for name, points in _ordered(config.series, study, found)}


def _curves(config: PictureConfig, study: StudyConfig, jobs: Sequence[Job]) -> dict[str, dict[float, list[float]]]:
    """Series, step, and one value a seed, from what the runs logged."""
    found: dict[str, dict[float, list[float]]] = {}
    for job in jobs:
        if job.stage != config.stage or not Number(job.stage, job.values, job.seed, "", 0.0).fits(config.where):
            continue
        for row in read_metrics(job.folder):
            value, x = _logged(row, config.metric), row.get(config.x)
            if isinstance(value, int | float) and isinstance(x, int | float):
                found.setdefault(_series(config, job.values), {}).setdefault(float(x), []).append(float(value))
    return dict(_ordered(config.series, study, found))


def _logged(row: Mapping[str, Any], metric: str) -> Any:
    """A value of a line of metrics.jsonl by the path of its keys: ``validation.text.masked_lm_loss``."""
    if metric in row:
        return row[metric]
    here: Any = row
    for part in metric.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here.get("value") if isinstance(here, Mapping) else here


def _series(config: PictureConfig, labels: Mapping[str, Any]) -> str:
    return ALL if config.series is None else str(labels.get(config.series, ALL))


def _ordered(axis: str | None, study: StudyConfig, found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """In the order of the declaration, others by number or name."""
    return [(name, found[name]) for name in sorted(found, key=lambda name: study.rank(axis or "", name))]
