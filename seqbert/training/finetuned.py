"""A fine-tuned model: its weights, its domain, its task, and what it says of records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import nn

from seqbert import config as config_tree
from seqbert.data.augmenting import chosen_augmentations, in_turn
from seqbert.domain import Augmentation, Domain, Example
from seqbert.errors import CheckpointError
from seqbert.models.hub_tokenizer import read_json
from seqbert.models.model import Model
from seqbert.tasks import Prediction, Sequencing, Source, Task, build_task
from seqbert.tasks.metrics import Scores
from seqbert.training.device import Device
from seqbert.training.evaluation import averaged_outputs
from seqbert.training.finetune_config import FinetuneConfig
from seqbert.training.parallel import ALONE, World
from seqbert.training.run_folder import RunFolder
from seqbert.training.trained_model import load_model

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
        world: The processes that share the records.
        average: The augmentation over whose variants outputs are averaged, if any.
    """

    model: Model
    domain: Domain
    task: Task[Any]
    config: FinetuneConfig
    device: Device
    world: World = ALONE
    average: Augmentation | None = None

    @classmethod
    def of_run(cls, run: str | Path, device: Device | None = None, world: World = ALONE) -> Finetuned:
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
        config = config_tree.load(FinetuneConfig, folder.config)
        device = device or Device.of(config.run, world)
        loaded = load_model(run, None, device)
        task = build_task(config.task, loaded.model.config.causal)
        _restore(task, folder.task)
        _check_labels(loaded.labels, task, folder)
        name = loaded.domain.name
        if task.head not in loaded.model.heads_of(name):
            raise CheckpointError(f'The model "{loaded.found.folder}" has no head for the task {config.task.name}.')
        task.adopt(cast("Mapping[str, nn.Module]", loaded.model.heads[name]))
        average = in_turn(chosen_augmentations(loaded.domain, config.domain.average, "domain.average"))
        return cls(loaded.model, loaded.domain, task, config, device, world, average)

    def averaging(self, names: Sequence[str] | None) -> Finetuned:
        """The same model, asked over all variants of these augmentations; None: those of the run.

        Raises:
            ConfigError: The domain has none of that name.
        """
        if names is None:
            return self
        return dataclasses.replace(self, average=in_turn(chosen_augmentations(self.domain, names, "--average")))

    def source(self, examples: Sequence[Example]) -> Source:
        """Records as the model takes them."""
        data, training = self.config.data, self.config.training
        how = Sequencing(training.max_length, data.long, data.stride)
        return self.task.source(examples, self.domain, how)

    def predict(self, source: Source) -> list[Prediction]:
        """What the model says of each record."""
        outputs, _ = averaged_outputs(self.model, self.task, source, self.device, self.world, self.average)
        return self.task.predict(source, outputs)

    def evaluate(
        self, examples: Sequence[Example], resamples: int = RESAMPLES
    ) -> tuple[Scores, list[Prediction], Source]:
        """Metrics of labelled records, whose labels the model knows, with intervals; and what they rest on."""
        source = self.source(examples)
        predictions = self.predict(source)
        return self.task.scores(source, predictions, resamples), predictions, source


def _restore(task: Task[Any], path: Path) -> None:
    """Gives the task what its run kept of it."""
    try:
        task.restore(read_json(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is not what a run keeps of its task: it was damaged or changed. Bring the old file back."
        ) from error


def _check_labels(labels: Sequence[str], task: Task[Any], folder: RunFolder) -> None:
    """The labels of task.json and of the model's config.json are the same, in the same order."""
    names = task.label_names
    if names is not None and labels and list(labels) != names:
        raise CheckpointError(
            f'The labels of "{folder.task}" are {", ".join(names)}, and those of the model are '
            f"{', '.join(labels)}: one of the files was changed. Bring the old one back."
        )
