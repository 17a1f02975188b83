"""What a study is: axes that are varied, stages that are run for them, and what is read off the results."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from seqbert import config as config_tree
from seqbert.errors import ConfigError, nearest

Tree = dict[str, Any]

SEED = "seed"
"""The axis that every stage has beside its own."""

PLACEHOLDER = re.compile(r"\{([\w.]+)\}")
"""What stands for a file, for init, for a run of another stage, or for the seed."""

FROM = "from"
"""The key of a section that is laid over what a placeholder stands for: ``{from: "{data.tags}", train_size: 100}``."""


@dataclasses.dataclass
class FileConfig:
    """Data by a name: ``"{data.NAME}"`` in a stage."""

    path: str
    """Where it lies inside the folder that --data.folder names."""
    otherwise: str | None = None
    """What is taken without a folder: "sample", or a path; null: the folder has to be given."""
    read: dict[str, Any] | None = None
    """For labelled data: keys of a finetune's data section that say how what lies at path is read, train among them;
    ``"{data.NAME}"`` then stands for the whole section."""

    def __post_init__(self) -> None:
        if self.read is not None and "train" not in self.read:
            raise ConfigError("read has no train: it names the file inside path.")


@dataclasses.dataclass
class StudyDataConfig:
    """What the runs read."""

    folder: str | None = None
    """The folder of the files below; null: each file's "otherwise"."""
    files: dict[str, FileConfig] = dataclasses.field(default_factory=dict)
    """Files and folders by name."""


@dataclasses.dataclass
class StageConfig:
    """One kind of job, done for each combination of the values of its axes and for each seed."""

    run: Literal["pretrain", "finetune", "measure"]
    """What is done: a training run, or a function that measures."""
    config: str | None = None
    """The run's config: a shipped one or a path, also beside the study's file; measure has none."""
    function: str | None = None
    """The measuring function; see seqbert.studies.measures."""
    axes: list[str] = dataclasses.field(default_factory=list)
    """The axes it knows; runs are shared by what differs in other axes alone."""
    seeds: list[int] | None = None
    """Its seeds; null: the study's. With a single one, later stages of every seed use that."""
    set: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What is laid over its config, or the function's arguments."""

    def __post_init__(self) -> None:
        if self.run == "measure" and (self.function is None or self.config is not None):
            raise ConfigError("run is measure, which takes a function and no config.")
        if self.run != "measure" and (self.config is None or self.function is not None):
            raise ConfigError(f"run is {self.run}, which takes a config and no function.")
        if self.seeds is not None and not self.seeds:
            raise ConfigError("seeds is empty; it names at least one, or is null.")


@dataclasses.dataclass
class TableConfig:
    """A table: in each cell mean and standard deviation over the seeds."""

    title: str
    """Its heading."""
    stage: str
    """The stage whose results it shows."""
    metric: str
    """The number in its cells: test.accuracy, validation.masked_lm_loss, seconds, tokens, steps, or what a function
    gives."""
    rows: list[str]
    """Axes, or labels of a measuring function, whose values are its rows."""
    columns: list[str] = dataclasses.field(default_factory=list)
    """The same for its columns; none: one column."""
    where: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Only results with these values: one, or a list."""
    against: dict[str, str] | None = None
    """What each cell is compared with: another value of some axes. Adds difference and 95 % interval over the seeds."""


@dataclasses.dataclass
class PictureConfig:
    """A picture of a stage's results."""

    title: str
    """Its heading."""
    kind: Literal["bars", "boxes", "lines", "curves"]
    """bars and boxes: a group for each value of x; lines: over numbers; curves: over the steps of training."""
    stage: str
    """The stage whose results it shows."""
    metric: str
    """What is drawn upwards; for curves a key of metrics.jsonl, such as loss."""
    x: str
    """An axis, a label, or another metric, such as parameters; for curves step or tokens."""
    series: str | None = None
    """The axis or label of which each value has a colour."""
    where: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Only results with these values: one, or a list."""
    x_label: str | None = None
    """Name and unit of what is drawn to the right; null: x."""
    y_label: str | None = None
    """Name and unit of what is drawn upwards; null: metric."""
    log_x: bool = False
    """Whether x is drawn on a logarithmic scale."""


@dataclasses.dataclass
class ClaimConfig:
    """Something that was said of two arms, to be judged by the difference between them."""

    text: str
    """What was claimed."""
    stage: str
    """The stage whose results decide."""
    metric: str
    """The number that is compared."""
    better: dict[str, Any]
    """The values of the arm that is said to be better; several results of a seed are averaged."""
    worse: dict[str, Any]
    """Those of the other arm."""
    source: str = ""
    """Who said it, and where: paper and table."""
    where: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Only results with these values: one, or a list."""
    lower_is_better: bool | None = None
    """Whether the smaller number is better; null: where the metric's name speaks of a loss or an error."""
    equal_within: float | None = None
    """The claim is that the arms are equal: held if the interval of the difference lies within so much to each side."""
    compare: Literal["values", "deviations"] = "values"
    """What is compared: the numbers; or how far each seed's number lies from its arm's median, of which less is better:
    which arm's runs are more alike (Brown and Forsythe 1974)."""


@dataclasses.dataclass
class StudyConfig:
    """``seqbert study``: a grid of runs, and the tables, pictures and verdicts that come of it."""

    title: str
    """What it is called."""
    output: str
    """The study's folder."""
    stages: dict[str, StageConfig]
    """What is done, in order."""
    question: str = ""
    """What it asks."""
    init: str | None = None
    """Weights to begin from, a run or a Hugging Face folder: ``"{init}"`` in a stage."""
    data: StudyDataConfig = dataclasses.field(default_factory=StudyDataConfig)
    """What the runs read."""
    seeds: list[int] = dataclasses.field(default_factory=lambda: [0, 1, 2])
    """Each job is done once for each."""
    axes: dict[str, dict[str, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    """What is varied: axis, value, and what that changes in each stage, its config among it; null leaves it out."""
    tables: list[TableConfig] = dataclasses.field(default_factory=list)
    """What is tabulated."""
    pictures: list[PictureConfig] = dataclasses.field(default_factory=list)
    """What is drawn."""
    claims: list[ClaimConfig] = dataclasses.field(default_factory=list)
    """What is judged."""
    small: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What --small lays over all of this."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ConfigError("stages is empty, and a study has at least one.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds is {self.seeds}; it names at least one, and each once.")
        for axis, values in self.axes.items():
            if axis == SEED:
                raise ConfigError('axes has one called "seed", which every stage has anyway: change seeds.')
            for value, changes in values.items():
                for changed in changes:
                    self._known(changed, self.stages, f'axes.{axis}."{value}"', "stage")
        for name, stage in self.stages.items():
            for axis in stage.axes:
                self._known(axis, self.axes, f"stages.{name}.axes", "axis")
        for kind in ("tables", "pictures", "claims"):
            for number, entry in enumerate(getattr(self, kind)):
                self._check_entry(f"{kind}[{number}]", entry)

    def rank(self, label: str, value: str) -> tuple[int, float, str]:
        """What values are sorted by: those of an axis as they are declared, others by number, then by name."""
        values = list(self.axes.get(label, ()))
        if value in values:
            return 0, values.index(value), value
        try:
            return 1, float(value), value
        except ValueError:
            return 2, 0.0, value

    def _check_entry(self, place: str, entry: TableConfig | PictureConfig | ClaimConfig) -> None:
        self._known(entry.stage, self.stages, f"{place}.stage", "stage")
        choices = [entry.where]
        if isinstance(entry, ClaimConfig):
            choices += [entry.better, entry.worse]
        elif isinstance(entry, TableConfig) and entry.against is not None:
            choices.append(entry.against)
        for choice in choices:
            for axis, wanted in choice.items():
                if axis in self.axes:
                    for value in wanted if isinstance(wanted, list) else [wanted]:
                        self._known(str(value), self.axes[axis], f"{place}: {axis}", "value")
                elif axis != SEED and self.stages[entry.stage].run != "measure":
                    self._known(axis, self.axes, place, "axis")

    @staticmethod
    def _known(name: str, known: Mapping[str, Any], place: str, what: str) -> None:
        if name not in known:
            raise ConfigError(
                f'{place}: there is no {what} "{name}".{nearest(name, known)} There are: {", ".join(known)}.'
            )


def load_study(
    source: str | Path | Mapping[str, Any] | StudyConfig, overrides: Sequence[str] = (), *, small: bool = False
) -> StudyConfig:
    """Reads and checks a study; with ``small`` its small setting is laid over it before the ``overrides``.

    Raises:
        ConfigError: A key or a value cannot be used, or a name stands for nothing.
    """
    if not small:
        return config_tree.load(StudyConfig, source, overrides)
    tree = config_tree.to_dict(config_tree.load(StudyConfig, source))
    if not tree["small"]:
        raise ConfigError("This study has no small setting: leave out --small.")
    changed = lay(tree, tree["small"])
    return config_tree.load(StudyConfig, changed | {"small": {}}, overrides)


def lay(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> Tree:
    """A tree with changes laid over it, section by section.

    A section whose ``name`` changes is another kind of thing: it is replaced as a whole. What is laid over a
    placeholder is laid over what it stands for.

    >>> lay({"optimizer": {"name": "muon", "ns_steps": 3}, "steps": 5}, {"optimizer": {"name": "adamw"}})
    {'optimizer': {'name': 'adamw'}, 'steps': 5}
    >>> lay({"data": "{data.tags}"}, {"data": {"train_size": 100}})
    {'data': {'from': '{data.tags}', 'train_size': 100}}
    """
    merged: Tree = copy.deepcopy(dict(tree))
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, str) and PLACEHOLDER.fullmatch(old) and isinstance(value, Mapping):
            old = {FROM: old}
        mergeable = isinstance(old, Mapping) and isinstance(value, Mapping)
        if mergeable and ("name" not in value or value["name"] == old.get("name", value["name"])):  # type: ignore[union-attr]
            merged[key] = lay(old, value)  # type: ignore[arg-type]
        else:
            merged[key] = copy.deepcopy(value)
    return merged
