"""From a declaration to jobs: one for each stage, combination of values, and seed, each with a config of its own."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqbert import config as config_tree
from seqbert.errors import ConfigError, SeqbertError, nearest
from seqbert.studies.declaration import FROM, PLACEHOLDER, SEED, FileConfig, StageConfig, StudyConfig, Tree, lay

DATA, INIT = "data.", "init"

_HELD_OUT = 0.2
"""Share of a table that is validated on where the study has one in place of its files: a sample is small."""

RUNS = "runs"
"""Where in the study's folder the jobs' folders lie."""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One run, or one call of a measuring function.

    Attributes:
        stage: Name of its stage.
        run: "pretrain", "finetune" or "measure".
        function: The measuring function.
        values: The value of each of its stage's axes.
        seed: Its seed.
        folder: Where it writes.
        settings: The resolved config as plain data, or the function's arguments.
        needs: Folders of the jobs that must be done before it.
    """

    stage: str
    run: str
    function: str | None
    values: Mapping[str, str]
    seed: int
    folder: Path
    settings: Tree
    needs: tuple[Path, ...]

    @property
    def name(self) -> str:
        """What the user calls it: ``finetune, mixture 80-10-10, seed 0``."""
        return ", ".join([self.stage, *(f"{axis} {value}" for axis, value in self.values.items()), f"seed {self.seed}"])


def plan_jobs(study: StudyConfig, beside: Path | None = None) -> list[Job]:
    """All jobs of a study, each behind those it needs; every config is checked.

    Args:
        study: The declaration.
        beside: The folder of the study's own file, where configs are looked for too.

    Raises:
        SeqbertError: A config cannot be used, data is missing, or two values would share a folder; the message names
            the stage and the values.
    """
    _check_data(study)
    return list(_Planner(study, beside).jobs())


def _check_data(study: StudyConfig) -> None:
    folder = study.data.folder
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f'data.folder is "{folder}", and there is no such folder.')
    for name, file in study.data.files.items():
        if folder is None and file.otherwise is None:
            raise ConfigError(
                f'This study reads "{file.path}" ({name}): name the folder that it lies in with --data.folder.'
            )
        if folder is not None and not list(Path(folder).glob(file.path)):
            raise ConfigError(f'data.folder is "{folder}", and "{file.path}" ({name}) is not in it.')


class _Planner:
    """Works out the jobs stage by stage, since a stage may name the folders of those before it."""

    def __init__(self, study: StudyConfig, beside: Path | None) -> None:
        self.study, self.beside = study, beside
        self.folders: dict[str, dict[tuple[str, ...], dict[int, Path]]] = {}

    def jobs(self) -> Iterator[Job]:
        for name, stage in self.study.stages.items():
            found = self.folders[name] = {}
            taken: dict[str, str] = {}
            for values in self._combinations(name, stage):
                seeds = found[tuple(values.values())] = {}
                for seed in stage.seeds or self.study.seeds:
                    job = self._job(name, stage, values, seed)
                    label = "-".join(values.values())
                    if taken.setdefault(str(job.folder), label) != label:
                        raise ConfigError(
                            f'stages.{name}: the values "{taken[str(job.folder)]}" and "{label}" would share the '
                            f'folder "{job.folder}": rename one.'
                        )
                    seeds[seed] = job.folder
                    yield job

    def _combinations(self, name: str, stage: StageConfig) -> Iterator[dict[str, str]]:
        axes = [self.study.axes[axis] for axis in stage.axes]
        for values in itertools.product(*axes):
            chosen = dict(zip(stage.axes, values, strict=True))
            if all(self.study.axes[axis][value].get(name, {}) is not None for axis, value in chosen.items()):
                yield chosen

    def _job(self, name: str, stage: StageConfig, values: dict[str, str], seed: int) -> Job:
        path = Path(self.study.output) / RUNS / name
        if values:
            path /= "-".join(_file_name(value) for value in values.values())
        path /= f"seed-{seed}"
        pieces = [stage.set, *(self.study.axes[axis][value].get(name, {}) for axis, value in values.items())]
        place = ", ".join([f"stages.{name}", *(f"{axis} {value}" for axis, value in values.items())])
        needs: list[Path] = []
        try:
            changes: Tree = {}
            for piece in pieces:
                changes = lay(changes, self._filled(piece, values, seed, needs))
            settings = changes if stage.run == "measure" else self._config(stage, changes, path, seed)
        except SeqbertError as error:
            raise type(error)(f"{place}: {error}") from error
        return Job(name, stage.run, stage.function, values, seed, path, settings, tuple(dict.fromkeys(needs)))

    def _config(self, stage: StageConfig, changes: Tree, path: Path, seed: int) -> Tree:
        if stage.run == "pretrain":
            from seqbert.training.pretrain_config import PretrainConfig as Schema
        else:
            from seqbert.training.finetune_config import FinetuneConfig as Schema  # type: ignore[assignment]
        named = str(changes.pop("config", stage.config))
        own = None if self.beside is None else self.beside / named
        source = own if own is not None and own.is_file() else named
        base = config_tree.to_dict(config_tree.load(Schema, source))
        tree = lay(base, changes) | {"output": str(path), SEED: seed}
        if "domains" in tree:
            tree["domains"] = {name: part for name, part in tree["domains"].items() if part is not None}
        return config_tree.to_dict(config_tree.load(Schema, tree))

    def _filled(self, tree: Any, values: Mapping[str, str], seed: int, needs: list[Path]) -> Any:
        """The tree with each placeholder replaced by what it stands for."""
        if isinstance(tree, Mapping):
            filled = {key: self._filled(item, values, seed, needs) for key, item in tree.items()}
            below = filled.pop(FROM, {})
            if not isinstance(below, Mapping):
                raise ConfigError(f'"{FROM}" stands before the name of a section, and "{tree[FROM]}" is {below!r}.')
            return lay(below, filled)
        if isinstance(tree, list):
            return [self._filled(item, values, seed, needs) for item in tree]
        if not isinstance(tree, str):
            return tree
        whole = PLACEHOLDER.fullmatch(tree)
        if whole:
            return self._meaning(whole[1], values, seed, needs)
        return PLACEHOLDER.sub(lambda match: str(self._meaning(match[1], values, seed, needs)), tree)

    def _meaning(self, name: str, values: Mapping[str, str], seed: int, needs: list[Path]) -> Any:
        if name == SEED:
            return seed
        if name == INIT:
            if self.study.init is None:
                raise ConfigError("this study begins from given weights: name them with --init.")
            return self.study.init
        if name.startswith(DATA) and name.removeprefix(DATA) in self.study.data.files:
            file = self.study.data.files[name.removeprefix(DATA)]
            return self._data(file)
        if name in values:
            return values[name]
        if name in self.study.stages and name not in self.folders:
            raise ConfigError(f'"{{{name}}}" is a stage that stands behind this one: move it up.')
        if name not in self.folders:
            known = [SEED, INIT, *(DATA + file for file in self.study.data.files), *values, *self.folders]
            raise ConfigError(f'"{{{name}}}" stands for nothing.{nearest(name, known)} There are: {", ".join(known)}.')
        needed = self.study.stages[name].axes
        if missing := [axis for axis in needed if axis not in values]:
            raise ConfigError(
                f'"{{{name}}}" is one run for each value of {", ".join(missing)}, which are no axes here.'
            )
        seeds = self.folders[name].get(tuple(values[axis] for axis in needed))
        if seeds is None:
            return None  # left out for these values
        if len(seeds) > 1 and seed not in seeds:
            raise ConfigError(f'"{{{name}}}" was not run for seed {seed}, but for {", ".join(map(str, seeds))}.')
        run = seeds[seed] if seed in seeds else next(iter(seeds.values()))
        needs.append(run)
        return str(run)

    def _data(self, file: FileConfig) -> Any:
        folder = self.study.data.folder
        where = file.otherwise if folder is None else str(Path(folder) / file.path)
        if file.read is None:
            return where
        if folder is None:  # one table, of which a share is held out in place of the files that the run's config names
            return {"train": where, "validation": _HELD_OUT, "test": None}
        return {"folder": where} | file.read


def _file_name(value: str) -> str:
    """A value as part of a path.

    >>> _file_name("15 % masked"), _file_name("+ BiLSTM")
    ('15_masked', '+_BiLSTM')
    """
    return re.sub(r"[^\w.+=-]+", "_", value).strip("_.") or "_"
