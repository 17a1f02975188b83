"""Writes what an evaluation found: metrics, predictions, and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqbert.analysis import plots
from seqbert.data.whole import write_json, write_text
from seqbert.tasks import Prediction, Source, Task
from seqbert.tasks.metrics import Scores, confusion, is_span_scheme, span_report


def scores_tree(scores: Scores) -> dict[str, dict[str, Any]]:
    """Metrics as plain data: the value, its 95 % interval, and a note where there is one."""
    tree = {}
    for name, metric in scores.items():
        row: dict[str, Any] = {"value": _rounded(metric.value)}
        if metric.low is not None:
            row |= {"low": _rounded(metric.low), "high": _rounded(metric.high)}
        if metric.note:
            row["note"] = metric.note
        tree[name] = row
    return tree


def write_evaluation(
    folder: Path | None, task: Task[Any], source: Source, scores: Scores, predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Writes ``metrics.json``, ``predictions.jsonl``, and for classes ``confusion.json`` and ``confusion.png``.

    Args:
        folder: Where they go; None: nowhere, for another process writes them.
        task: The task.
        source: The records.
        scores: Their metrics.
        predictions: One a record.

    Returns:
        What ``metrics.json`` holds.
    """
    summary: dict[str, Any] = {"records": len(source.records), "metrics": scores_tree(scores)}
    tags = _tags(task, source, predictions)
    if tags is not None and is_span_scheme(task.label_names or []):
        summary["spans"] = span_report(*tags)
    if folder is None:
        return summary
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "metrics.json", summary)
    lines = [
        json.dumps(prediction_row(prediction, example.label), ensure_ascii=False)
        for prediction, example in zip(predictions, source.records.examples, strict=True)
    ]
    write_text(folder / "predictions.jsonl", "".join(f"{line}\n" for line in lines))
    matrix = _confusion(task, source, predictions, tags)
    if matrix is not None and task.label_names is not None:
        write_json(folder / "confusion.json", {"labels": task.label_names, "rows_are_true": matrix.tolist()})
        plots.confusion_matrix(matrix, task.label_names, folder / "confusion.png")
    return summary


def prediction_row(prediction: Prediction, label: Any = None) -> dict[str, Any]:
    """A prediction as plain data, with the true label where it is known."""
    row: dict[str, Any] = {"id": prediction.id, "prediction": prediction.value}
    if label is not None:
        row["label"] = label
    return row | prediction.details


def _tags(
    task: Task[Any], source: Source, predictions: Sequence[Prediction]
) -> tuple[list[list[str]], list[list[str]]] | None:
    if task.config.name != "tagging":
        return None
    return [example.label for example in source.records.examples], [prediction.value for prediction in predictions]


def _confusion(task: Task[Any], source: Source, predictions: Sequence[Prediction], tags: Any) -> np.ndarray | None:
    """True against predicted labels, ``[labels, labels]``; None where a record has no single one."""
    if task.label_names is None or getattr(task.config, "multilabel", False):
        return None
    number: Mapping[str, int] = {label: place for place, label in enumerate(task.label_names)}
    if tags is None:
        pairs = [
            (example.label, prediction.value)
            for example, prediction in zip(source.records.examples, predictions, strict=True)
        ]
    else:
        pairs = [pair for gold, found in zip(*tags, strict=True) for pair in zip(gold, found, strict=True)]
    gold, found = (np.array([number[pair[side]] for pair in pairs], np.int64) for side in (0, 1))
    return confusion(gold, found, len(number))


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
