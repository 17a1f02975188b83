"""A fine-tuned model: its weights, its domain, its task, and what it says of records."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqbert import config as config_tree
from seqbert import registry
from seqbert.domain import Domain, Example
from seqbert.errors import CheckpointError, DataError
from seqbert.models import hub
from seqbert.models.hub_tokenizer import load_tokenizer
from seqbert.models.model import Model
from seqbert.tasks import Prediction, Sequencing, Source, Task, build_task
from seqbert.tasks.metrics import Scores
from seqbert.tasks.task import listed
from seqbert.training.device import Device
from seqbert.training.evaluation import task_outputs
from seqbert.training.finetune_config import FinetuneConfig
from seqbert.training.run_folder import RunFolder, open_run

RESAMPLES = 1000
"""Resamples that an interval is taken from."""


@dataclasses.dataclass(slots=True)
class Finetuned:
    """A model that was trained for a task.

    Attributes:
        model: The model, in evaluation mode, on its device.
        domain: The plugin, with the run's options and tokenizer.
        task: The task, with the labels of training.
        config: The run's config.
        device: Where it computes.
    """

    model: Model
    domain: Domain
    task: Task[Any]
    config: FinetuneConfig
    device: Device

    @classmethod
    def of_run(cls, run: str | Path, device: Device | None = None) -> Finetuned:
        """Loads the model of a fine-tuned run.

        Raises:
            CheckpointError: There is none, or it is of another task or has other labels than the run.
        """
        folder = RunFolder(Path(run))
        if folder.exists() and not folder.task.is_file():
            raise CheckpointError(
                f'The run "{run}" was not fine-tuned: it has no {folder.task.name}. `seqbert finetune` makes such a '
                f"run, with init: {run}."
            )
        found = open_run(run)
        config = config_tree.load(FinetuneConfig, folder.config)
        plugin = registry.load(found.domain)(config.domain.options)
        plugin.use(load_tokenizer(found.folder))
        task = build_task(config.task)
        task.restore(json.loads(folder.task.read_text(encoding="utf-8")))
        checkpoint = hub.read_checkpoint(found.folder)
        _check_labels(checkpoint, task, folder)
        heads = {task.head: checkpoint.heads[task.head]} if task.head in checkpoint.heads else {}
        if not heads:
            raise CheckpointError(f'The model "{found.folder}" has no head for the task {config.task.name}.')
        model = Model(
            checkpoint.config, {found.domain: checkpoint.vocab_size}, {found.domain: heads}, checkpoint.features
        )
        hub.load_into(model, found.domain, checkpoint)
        device = device or Device.of(config.run)
        return cls(device.place(model).eval(), plugin, task, config, device)

    def source(self, examples: Sequence[Example]) -> Source:
        """Records as the model takes them."""
        data, training = self.config.data, self.config.training
        how = Sequencing(training.max_length, data.long, data.stride)
        return self.task.source(examples, self.domain, how)

    def predict(self, source: Source) -> tuple[list[Prediction], float | None]:
        """What the model says of each record, and the mean loss where labels are known."""
        outputs, loss = task_outputs(self.model, self.task, source, self.device)
        return self.task.predict(source, outputs), loss

    def evaluate(
        self, examples: Sequence[Example], resamples: int = RESAMPLES
    ) -> tuple[Scores, list[Prediction], Source]:
        """Metrics of labelled records with intervals, and the predictions that they rest on.

        Raises:
            DataError: A record has a label that the model does not know.
        """
        unseen = self.task.unseen(examples)
        if unseen:
            strange = next(example for example in examples if self.task.unseen([example]))
            raise DataError(
                f"{sum(unseen.values()):,} labels are none that the model was trained on: "
                f"{listed(list(unseen), unseen)}; the first is in {strange.source or strange.id}. "
                f"It knows: {', '.join(self.task.label_names or [])}."
            )
        source = self.source(examples)
        predictions, _ = self.predict(source)
        return self.task.scores(source, predictions, resamples), predictions, source


def _check_labels(checkpoint: hub.Checkpoint, task: Task[Any], folder: RunFolder) -> None:
    """The labels of task.json and of the model's config.json are the same, in the same order."""
    names = task.label_names
    if names is not None and checkpoint.labels and list(checkpoint.labels) != names:
        raise CheckpointError(
            f'The labels of "{folder.task}" are {", ".join(names)}, and those of the model are '
            f"{', '.join(checkpoint.labels)}: one of the files was changed. Bring the old one back."
        )
