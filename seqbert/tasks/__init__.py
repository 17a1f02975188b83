"""Fine-tuning: what is predicted from labelled records."""

from __future__ import annotations

from typing import Any, TypeAlias

from seqbert.tasks.choice import Choice, ChoiceConfig
from seqbert.tasks.classification import Classification, ClassificationConfig
from seqbert.tasks.regression import Regression, RegressionConfig
from seqbert.tasks.span import SpanAnswering, SpanConfig
from seqbert.tasks.tagging import Tagging, TaggingConfig
from seqbert.tasks.task import PooledTask, Prediction, Sequencing, Source, Task

TaskConfig: TypeAlias = ClassificationConfig | RegressionConfig | TaggingConfig | SpanConfig | ChoiceConfig

TASKS: dict[str, type[Task[Any]]] = {
    "classification": Classification,
    "regression": Regression,
    "tagging": Tagging,
    "span": SpanAnswering,
    "choice": Choice,
}
"""The tasks by name."""


def build_task(config: TaskConfig, causal: bool = False) -> Task[Any]:
    """The task that a config section describes, on an encoder that is causal or sees both sides."""
    task = TASKS[config.name](config)
    if isinstance(task, PooledTask):
        task.reads_last = causal
    return task


__all__ = ["TASKS", "PooledTask", "Prediction", "Sequencing", "Source", "Task", "TaskConfig", "build_task"]
