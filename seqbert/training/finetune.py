"""``seqbert finetune``: from a table of labelled records to a model, its metrics and its predictions."""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from seqbert import config as config_tree
from seqbert import registry
from seqbert.data.augmenting import chosen_augmentations, in_turn
from seqbert.data.cache import cache_folder
from seqbert.data.fetching import STANDARD_INPUT, in_files
from seqbert.data.whole import replace_folder, write_json, write_text
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models import hub
from seqbert.models.adaptation import add_lora, freeze, reinitialise_top
from seqbert.models.hub_tokenizer import load_tokenizer
from seqbert.models.model import Model
from seqbert.tasks import PooledTask, Sequencing, Source, build_task
from seqbert.training.checkpoint import Checkpoints
from seqbert.training.device import Device
from seqbert.training.evaluation import Metrics, averaged_outputs
from seqbert.training.evaluation_folder import write_evaluation
from seqbert.training.finetune_config import FinetuneConfig, load_finetune_config
from seqbert.training.finetune_data import TEST, TRAIN, VALIDATION, fingerprint, part_report, read_labelled
from seqbert.training.finetuned import Finetuned
from seqbert.training.initialise import Initial, build_model, encoder_config, find_initial
from seqbert.training.loader import ENDLESS, load_steps
from seqbert.training.logging import Console, MetricsLog, read_metrics
from seqbert.training.loop import Loop, LoopSettings
from seqbert.training.optimizers import build_optimizer
from seqbert.training.parallel import World, job_name, join
from seqbert.training.preparation import check_keeps, read_tokenizer
from seqbert.training.resuming import Resuming, as_restarted, manner_of
from seqbert.training.run_folder import MODEL_STEP, RunFolder, note_step
from seqbert.training.self_test import warning_about
from seqbert.training.signals import StopSignals

WORST = sys.float_info.max
"""Stands for a metric that is undefined when the best checkpoint is looked for."""

PROBLEM_TYPES = {"regression": "regression", "classification": "single_label_classification"}


@dataclasses.dataclass(frozen=True, slots=True)
class FinetuneResult:
    """Where a run lies and what it reached.

    Attributes:
        folder: The run's folder.
        metric: The metric that the best checkpoint was chosen by.
        metrics: By part ("validation", "test"), each metric as plain data: value, low, high, note. Of the best seed.
        seeds: For each seed, the value of every metric by part; one entry where a single seed was run.
        summary: For several seeds, by part and metric: median, mean and standard deviation.
        best_seed: The seed whose model is the run's.
        best_step: The step whose weights are in ``model``.
        notes: What the user was told about data and weights.
    """

    folder: Path
    metric: str
    metrics: dict[str, dict[str, Any]]
    seeds: dict[int, dict[str, dict[str, float | None]]]
    summary: dict[str, dict[str, dict[str, float]]]
    best_seed: int
    best_step: int | None
    notes: list[str]


def finetune(
    config: str | Path | Mapping[str, Any] | FinetuneConfig,
    overrides: list[str] | None = None,
    *,
    resume: str | None = None,
    overwrite: bool = False,
    allow_changes: bool = False,
) -> FinetuneResult:
    """Trains an encoder and a head on labelled records; under torchrun every process takes a share of each step.

    Ctrl-C and SIGTERM let it finish the step, save a checkpoint, and end.

    Args:
        config: A path, the name of a shipped config, a mapping, or a :class:`FinetuneConfig`.
        overrides: As on the command line: ``["--training.epochs", "5"]``.
        resume: "auto" goes on from the newest intact checkpoint of the output folder, or starts afresh where
            there is none; a path names a checkpoint.
        overwrite: Replace a run that the output folder holds.
        allow_changes: Resume even though the config or the records are others: another batch size, other labels.

    Raises:
        SeqbertError: whatever the user can mend: a key, a file, a label, a folder that holds another run.
        Stopped: at Ctrl-C or SIGTERM.
    """
    settings = load_finetune_config(config, overrides)
    with StopSignals() as signals, join(signals) as world, Console(world.leads) as console:
        resume, overwrite = as_restarted(RunFolder(Path(settings.output)), world, resume, overwrite)
        if STANDARD_INPUT in settings.data.train:
            told = json.dumps(in_files(settings.data.train, cache_folder())) if world.leads else ""
            data = dataclasses.replace(settings.data, train=json.loads(world.tell(told)))
            settings = dataclasses.replace(settings, data=data)
        return _Runs(settings, console, world, resume, overwrite, allow_changes).carry_out()


class _Runs:
    """The runs of all seeds over the same records."""

    def __init__(
        self,
        config: FinetuneConfig,
        console: Console,
        world: World,
        resume: str | None,
        overwrite: bool,
        allow_changes: bool,
    ) -> None:
        self.config, self.console, self.world = config, console, world
        self.notes: list[str] = []
        self.device = Device.of(config.run, world)
        self.folder = RunFolder(Path(config.output))
        self.resuming = Resuming(self.folder, resume, allow_changes, self.note, world, overwrite)
        self.resuming.check(config)
        if resume not in (None, "auto") and config.training.seeds > 1:
            raise ConfigError("A run of several seeds is resumed as a whole: --resume auto.")
        assert config.domain.name is not None
        self.name = config.domain.name
        self.domain = registry.load(self.name)(config.domain.options)
        self.initial: Initial | None = None if config.init is None else find_initial(config.init, [self.name])
        self.encoder = encoder_config(config.model, self.initial)
        if config.training.max_length > self.encoder.max_position_embeddings:
            raise ConfigError(
                f"training.max_length is {config.training.max_length}, and the encoder has positions for "
                f"{self.encoder.max_position_embeddings} tokens: lower the one, or raise "
                "model.max_position_embeddings where the weights are new."
            )
        self.task = build_task(config.task, self.encoder.causal)
        if isinstance(self.task, PooledTask) and self.task.reads_last:
            self.note(
                "The encoder is causal, so that the task's head reads the last token of a sequence; classes of "
                "transformers would read the first one."
            )

    def carry_out(self) -> FinetuneResult:
        with self.resuming.place():
            return self._carry_out()

    def _carry_out(self) -> FinetuneResult:
        config, training = self.config, self.config.training
        if self.world.leads and (told := warning_about(self.device.torch)) is not None:
            self.note(told)
        self.console.say(f"Reading the records of {config.data.train}")
        self.data = read_labelled(config.data, self.task, self.domain, self.note, config.domain.strict)
        self.task.check_metric()
        self.tokenizer_json = self._tokenizer()
        self.domain.use(Tokenizer.from_str(self.tokenizer_json))
        long = "error" if config.data.long == "cut" and config.domain.strict else config.data.long
        how = Sequencing(training.max_length, long, config.data.stride, config.seed, training.batch_size)
        self.augment, self.average = (
            in_turn(chosen_augmentations(self.domain, names, f"domain.{key}"))
            for key, names in (("augment", config.domain.augment), ("average", config.domain.average))
        )
        self.sources = {part: self.task.source(rows, self.domain, how) for part, rows in self.data.parts.items()}
        self._say_start()
        seeds = range(config.seed, config.seed + training.seeds)
        several = len(seeds) > 1
        folders = [RunFolder(self.folder.path / "seeds" / str(seed)) if several else self.folder for seed in seeds]
        run: _Run | None = _Run(self, seeds[0], folders[0])  # whatever is wrong shows before the folder is touched
        self.world.wait()
        if self.world.leads:
            self.folder.begin(self.resuming.resume is not None, job_name())
            self._write_inputs()
        done = {}
        for number, (seed, folder) in enumerate(zip(seeds, folders, strict=True)):
            if several:
                self.console.say(f"Seed {seed} ({number + 1} of {len(seeds)})")
            run = run or _Run(self, seed, folder)
            done[seed] = run.carry_out()
            run = None  # before the model of the next seed is made
        return self._result(done)

    def _tokenizer(self) -> str:
        """The tokenizer of the run, as JSON: a given one, that of init, or a new one over the training records."""
        part = self.config.domain
        kept = None if self.initial is None or part.vocabulary != "keep" else self.initial.tokenizer(self.name)
        if part.tokenizer is not None:
            given = read_tokenizer(Path(part.tokenizer), "domain.tokenizer")
            check_keeps(kept, given, "domain")
            return given
        if kept is not None:
            return kept
        texts = (
            self.domain.canonical(text) if self.task.shape == "question" and place else text
            for example in self.data.train
            for place, text in enumerate(example.sequences)
        )
        return str(self.domain.tokenizer(texts, part.vocab_size).to_str())

    def _write_inputs(self) -> None:
        path = self.folder.tokenizer(self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.tokenizer_json)
        write_text(self.folder.config, config_tree.dump(self.config))
        write_json(
            self.folder.path / "data.json",
            {
                part: self.data.reports.get(part, {})
                | {"used": part_report(source, self.task, self.domain)}
                | ({"shared_with_train": self.data.shared[part]} if part in self.data.shared else {})
                for part, source in self.sources.items()
            },
        )

    def mapped(self, seed: int) -> dict[str, int]:
        """The seed of the map from the domain's tokens to words of init, if that is asked for."""
        part = self.config.domain
        if part.vocabulary != "map":
            return {}
        return {self.name: seed if part.map_seed is None else part.map_seed}

    def _say_start(self) -> None:
        for part, source in self.sources.items():
            report = self.data.reports.get(part, {})
            skipped = report.get("records", {}).get("skipped", 0)
            line = f"{part}: {len(source.records):,} records"
            if skipped:
                reasons = ", ".join(f"{reason} ({count:,})" for reason, count in report["skipped"].items())
                line += f", {skipped:,} skipped: {reasons}"
            if source.inputs.windowed:
                line += f"; {source.inputs.windowed:,} are longer than a sequence and lie in several windows"
            if source.inputs.cut:
                line += f"; {source.inputs.cut:,} were cut, by {source.inputs.cut_tokens:,} tokens in all"
            self.note(line)
        if VALIDATION not in self.sources:
            self.note("There are no validation records: the newest weights are kept.")

    def _result(self, done: dict[int, _Outcome]) -> FinetuneResult:
        metric = self.task.metric
        part = VALIDATION if VALIDATION in self.sources else None
        ranked = sorted(done, key=lambda seed: (done[seed].rank, seed))
        best = ranked[0]
        if len(done) > 1 and self.world.leads:
            self._adopt(best)
        values = {
            seed: {
                part: {name: row["value"] for name, row in summary["metrics"].items()}
                for part, summary in outcome.metrics.items()
            }
            for seed, outcome in done.items()
        }
        summary = _summary(values) if len(done) > 1 else {}
        if summary and self.world.leads:
            self._draw_seeds(values)
        outcome = done[best]
        metrics = {part: tree["metrics"] for part, tree in outcome.metrics.items()}
        result = FinetuneResult(self.folder.path, metric, metrics, values, summary, best, outcome.best_step, self.notes)
        if not self.world.leads:
            return result
        write_json(
            self.folder.path / "result.json",
            {
                "metric": metric,
                "chosen_on": part,
                "best_seed": best,
                "best_step": outcome.best_step,
                "metrics": metrics,
                "seeds": {str(seed): parts for seed, parts in values.items()},
                "summary": summary,
                "steps": {str(seed): one.steps for seed, one in done.items()},
                "seconds": {str(seed): round(one.seconds, 1) for seed, one in done.items()},
                "notes": self.notes,
            },
        )
        return result

    def _adopt(self, seed: int) -> None:
        """Makes the best seed's model, labels and evaluation those of the run."""
        chosen = RunFolder(self.folder.path / "seeds" / str(seed))
        for name in ("model", "evaluation"):

            def fill(draft: Path, name: str = name) -> None:
                shutil.copytree(chosen.path / name, draft, dirs_exist_ok=True)

            if (chosen.path / name).is_dir():
                replace_folder(self.folder.path / name, fill)
        write_text(self.folder.task, chosen.task.read_text(encoding="utf-8"))

    def _draw_seeds(self, values: dict[int, dict[str, dict[str, float | None]]]) -> None:
        from seqbert.analysis import plots

        metric = self.task.metric
        by_part = {
            f"{part} {metric}": [value for row in values.values() if (value := row[part][metric]) is not None]
            for part in next(iter(values.values()))
        }
        self.folder.evaluation.mkdir(exist_ok=True)
        plots.seeds(by_part, self.folder.evaluation / "seeds.png")

    def note(self, message: str) -> None:
        self.notes.append(message)
        self.console.say(message)


@dataclasses.dataclass(slots=True)
class _Outcome:
    """What one seed reached: ``metrics`` by part as the files hold them, and what seeds are compared by."""

    metrics: dict[str, dict[str, Any]]
    rank: float
    best_step: int | None
    steps: int
    seconds: float


class _Run:
    """The run of one seed: its model and where it stands, then its training."""

    def __init__(self, runs: _Runs, seed: int, folder: RunFolder) -> None:
        self.runs, self.seed, self.folder, self.world = runs, seed, folder, runs.world
        self.task, self.config = runs.task, runs.config
        self.begun = time.monotonic()
        training = runs.config.training
        self.model = self._model()
        self.optimizer = build_optimizer(
            training.optimizer,
            self.model.named_parameters(),
            training.learning_rate,
            training.layer_decay,
            self.model.config.num_hidden_layers,
        )
        self.source = self._training_source()
        self.resuming = dataclasses.replace(runs.resuming, folder=folder)
        self.progress = self.resuming.restore(
            self.model,
            self.optimizer,
            {runs.name: self.source},
            {runs.name: fingerprint(runs.data.parts, runs.tokenizer_json)},
            manner_of(runs.device, runs.world),
        )

    def carry_out(self) -> _Outcome:
        training, run, progress, source = self.config.training, self.config.run, self.progress, self.source
        steps = None if training.epochs is None else source.batcher.steps(training.epochs)
        self.resuming.check_length(progress, steps, training.minutes)
        self.world.wait()  # until all have read the checkpoint
        if self.world.leads:
            self._begin()
        log = MetricsLog(self.folder.path, progress.step, progress.evaluated == progress.step, self.world.leads)
        try:
            loop = self._loop(log, source, steps)
            remaining = range(progress.step, ENDLESS if steps is None else steps)
            loop.run(load_steps([(self.task, source)], remaining, run.workers, self.world.share))
        finally:
            log.close()
        seconds = time.monotonic() - self.begun
        metrics = self._evaluate()
        if self.world.leads:
            self._draw_curve()
        rank = WORST if progress.best_score is None else progress.best_score
        return _Outcome(metrics, rank, progress.best_step, progress.step, seconds)

    def _begin(self) -> None:
        """Makes the folder; that of one of several seeds is a run like any other."""
        self.folder.begin(resume=True)
        if self.folder is not self.runs.folder:
            training = dataclasses.replace(self.config.training, seeds=1)
            alone = dataclasses.replace(self.config, output=str(self.folder.path), seed=self.seed, training=training)
            write_text(self.folder.config, config_tree.dump(alone))
        for map_seed in self.runs.mapped(self.seed).values():
            assert self.runs.initial is not None
            old = load_tokenizer(self.runs.initial.giver(self.runs.name).folder)
            new = Tokenizer.from_str(self.runs.tokenizer_json)
            words = self.runs.initial.mapped(self.runs.name, new, map_seed)
            named = {str(new.id_to_token(one)): old.id_to_token(other) for one, other in sorted(words.items())}
            write_json(self.folder.vocabulary_map, named)

    def _model(self) -> Model:
        runs, training = self.runs, self.config.training
        heads = {runs.name: {self.task.head: self.task.outputs_size}}
        replaced = {runs.name} if self.config.domain.vocabulary == "replace" else set()
        model, notes = build_model(
            runs.encoder,
            {runs.name: Tokenizer.from_str(runs.tokenizer_json)},
            heads,
            self.seed,
            runs.initial,
            replaced,
            self.config.features,
            {self.task.head},
            mapped=runs.mapped(self.seed),
            parts=self.config.init_parts,
        )
        if self.seed == self.config.seed:
            for note in notes:
                runs.note(note)
        if self._is_random_part_frozen() and self.seed == self.config.seed:
            runs.note(
                "What is not trained (features, lora, freeze) has random weights here, not pretrained ones: set init, "
                "or train it."
            )
        reinitialise_top(model, training.reinitialise, self.seed)
        if training.lora is not None:
            add_lora(model, training.lora, self.seed)
        freeze(model, training.freeze.embeddings, training.freeze.layers)
        if self.seed == self.config.seed:
            trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
            total = sum(weight.numel() for weight in model.parameters())
            share = "" if trained == total else f", {trained:,} of them trained"
            runs.console.say(f"{total:,} parameters{share}, on {runs.device}")
        runs.device.compile_parts(model)
        return runs.device.place(model)

    def _is_random_part_frozen(self) -> bool:
        """Whether weights that no pretraining made are kept from training."""
        config, frozen = self.config, self.config.training.freeze
        features = config.features is not None and config.features.frozen
        whole = features or config.training.lora is not None
        initial = self.runs.initial
        if initial is None:
            return whole or frozen.embeddings or frozen.layers > 0
        if config.init_parts != "all" and (whole or frozen.layers > 0):
            return True
        kept = self.runs.name in initial.checkpoints and config.domain.vocabulary != "replace"
        new_words = config.init_parts == "shape" or not (kept or config.domain.vocabulary == "map")
        return new_words and (whole or frozen.embeddings)

    def _training_source(self) -> Source:
        source = self.runs.sources[TRAIN].augmented(self.runs.augment)
        return dataclasses.replace(source, batcher=dataclasses.replace(source.batcher, seed=self.seed))

    def _loop(self, log: MetricsLog, source: Source, steps: int | None) -> Loop:
        training, run, name, model = self.config.training, self.config.run, self.runs.name, self.model
        held_out = self.runs.sources.get(VALIDATION)
        every = source.batcher.steps_per_epoch if training.evaluate_every == "epoch" else training.evaluate_every

        def validate() -> dict[str, Metrics]:
            if held_out is None:
                return {}
            outputs, loss = averaged_outputs(
                model, self.task, held_out, self.runs.device, self.world, self.runs.average
            )
            predictions = self.task.calibrate(held_out, self.task.predict(held_out, outputs))
            scores = self.task.scores(held_out, predictions)
            return {name: {"loss": loss} | {metric: row.value for metric, row in scores.items()}}

        def score(metrics: dict[str, Metrics]) -> float | None:
            if name not in metrics:
                return None
            rank = self.task.rank(metrics[name])
            return WORST if rank is None else rank

        return Loop(
            model=model,
            learnables={name: self.task},
            shares={name: 1.0},
            optimizer=self.optimizer,
            schedule=training.schedule.factor,
            settings=LoopSettings(
                seed=self.seed,
                steps=steps,
                minutes=training.minutes,
                learning_rate=training.learning_rate,
                clip_norm=training.clip_norm,
                evaluate_every=every,
                log_every=run.log_every,
                checkpoint_every=run.checkpoint_every,
                evaluate_first=training.minutes is not None,  # so that it is known what a validation takes
                patience=training.early_stopping,
            ),
            device=self.runs.device,
            world=self.world,
            checkpoints=Checkpoints(self.folder.checkpoints, run.keep, self.world.leads, self.progress.step),
            validate=validate,
            score=score,
            keep_best=lambda: self._save(model, self.progress.best_step),
            visited=lambda step: {name: source.visited(step)},
            console=self.runs.console,
            log=log,
            progress=self.progress,
            is_saved=not self.resuming.is_changed,
            best=self.resuming.best,
        )

    def _save(self, model: Model, step: int | None) -> None:
        """Writes the model in Hugging Face layout, and the labels and thresholds that go with it."""
        state = self.task.state()
        kind = PROBLEM_TYPES.get(self.config.task.name)
        if state.get("multilabel"):
            kind = "multi_label_classification"
        scale = (state["mean"], state["deviation"]) if "deviation" in state else None

        def fill(draft: Path) -> None:
            hub.save(
                model,
                self.runs.name,
                draft,
                self.runs.folder.tokenizer(self.runs.name),
                self.config.training.max_length,
                labels=self.task.label_names,
                problem_type=kind,
                scale=scale,
            )
            note_step(draft, step)

        try:
            replace_folder(self.folder.path / "model", fill)
            write_json(self.folder.task, state)
        except OSError as error:
            raise CheckpointError(f'The model cannot be written to "{self.folder.path}": {error.strerror}.') from error

    def _evaluate(self) -> dict[str, dict[str, Any]]:
        """Scores the best weights on validation and test records, with intervals, and writes what was found."""
        self.world.wait()  # until the best weights are written
        self.world.sees_alike(self.folder.path / "model" / MODEL_STEP)
        trained = Finetuned.of_run(self.folder.path, self.runs.device, self.world)
        summaries = {}
        for part in (VALIDATION, TEST):
            if part in self.runs.data.parts:
                self.runs.console.say(f"Scoring the best weights on the {part} records")
                scores, predictions, source = trained.evaluate(self.runs.data.parts[part])
                folder = self.folder.evaluation / part if self.world.leads else None
                summaries[part] = write_evaluation(folder, trained.task, source, scores, predictions)
        return summaries

    def _draw_curve(self) -> None:
        from seqbert.analysis import plots

        self.folder.evaluation.mkdir(exist_ok=True)
        path = self.folder.evaluation / "learning_curve.png"
        plots.learning_curve(read_metrics(self.folder.path), path, self.task.metric)


def _summary(values: dict[int, dict[str, dict[str, float | None]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Median, mean and standard deviation over the seeds, by part and metric."""
    first = next(iter(values.values()))
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for part, metrics in first.items():
        for metric in metrics:
            found = [value for seed in values.values() if (value := seed[part][metric]) is not None]
            if found:
                summary.setdefault(part, {})[metric] = {
                    "median": statistics.median(found),
                    "mean": statistics.fmean(found),
                    "standard_deviation": statistics.stdev(found) if len(found) > 1 else 0.0,
                    "seeds": len(found),
                }
    return summary
