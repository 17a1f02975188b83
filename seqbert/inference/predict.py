"""``seqbert predict`` and ``seqbert evaluate`` for fine-tuned runs: labels, numbers, tags, answers and choices."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from seqbert import config as config_tree
from seqbert.data.table import TableOptions
from seqbert.data.whole import written_beside
from seqbert.domain import Example, Report
from seqbert.errors import ConfigError, DataError
from seqbert.tasks import Prediction
from seqbert.training.device import Device, RunConfig
from seqbert.training.evaluation_folder import prediction_row, scores_tree, write_evaluation
from seqbert.training.finetune_config import LabelledOptions
from seqbert.training.finetune_data import read_tables, with_known_labels
from seqbert.training.finetuned import Finetuned
from seqbert.training.parallel import join

BATCH = 4096
"""Records that are read, predicted and written at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class PredictResult:
    """What a run says of records.

    Attributes:
        predictions: A prediction a record, in order.
        skipped: How many records could not be read, by reason.
    """

    predictions: list[Prediction]
    skipped: dict[str, int]


def evaluate(
    run: str | Path | Finetuned,
    data: str | Sequence[str],
    *,
    options: Sequence[str] = (),
    output: str | Path | None = None,
    average: Sequence[str] | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> dict[str, Any]:
    """Metrics of a fine-tuned run on labelled records; under torchrun each process runs a part of them.

    Args:
        run: A run's folder, or a model that is loaded already.
        data: Files, folders or globs; "sample" for the plugin's own table.
        options: What is different about these files: ``["--columns.label", "gold"]``.
        output: A folder for metrics, predictions and the confusion matrix; None: none are written.
        average: Augmentations of the domain over all of whose variants outputs are averaged; None: those of the run.
        device: Where to compute, as ``run.device`` in a config.
        precision: Of matrix products, as ``run.precision``.

    Returns:
        The number of records, what was read and skipped, and each metric with its 95 % interval.

    Raises:
        DataError: The files cannot be read, or a label is none that the model knows.
        ConfigError: The domain has no such augmentation.
    """
    with _trained(run, device, precision) as trained:
        return _evaluate(trained.averaging(average), data, options, output)


def _evaluate(
    trained: Finetuned, data: str | Sequence[str], options: Sequence[str], output: str | Path | None
) -> dict[str, Any]:
    settings = _options(trained, LabelledOptions, options)
    examples, report = _read(trained, data, settings, labelled=True)
    notes: list[str] = []
    examples, left_out = with_known_labels(examples, "evaluated", trained.task, settings.unseen_labels, notes.append)
    if not examples:
        raise DataError(f"No record in {data} has a label that the model knows.")
    scores, predictions, source = trained.evaluate(examples)
    found: dict[str, Any] = {"records": len(examples), "metrics": scores_tree(scores)}
    if output is not None and trained.world.leads:
        found = write_evaluation(Path(output), trained.task, source, scores, predictions)
    read = report.to_dict() | ({"unseen_labels": left_out} if left_out else {})
    return {"metric": trained.task.metric, **found, "read": read}


def predict(
    run: str | Path | Finetuned,
    data: str | Sequence[str],
    output: str | Path | None = None,
    *,
    options: Sequence[str] = (),
    average: Sequence[str] | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> PredictResult:
    """What a fine-tuned run says of records, which need no labels; under torchrun each process runs a part of them.

    Args:
        run: A run's folder, or a model that is loaded already.
        data: Files, folders or globs; "sample" for the plugin's own table.
        output: Where to write the predictions, in the form that the ending says: ``.tsv`` (index and prediction, as
            GLUE wants them; for tagging word and tag), ``.csv`` (with probabilities), ``.json`` (for questions the
            answers as SQuAD's script reads them, with ``NAME.nbest.json`` and ``NAME.null_odds.json`` beside it),
            ``.jsonl`` or ``.parquet`` (everything).
        options: What is different about these files: ``["--columns.sequence", "text"]``.
        average: As in :func:`evaluate`.
        device: Where to compute, as ``run.device`` in a config.
        precision: Of matrix products, as ``run.precision``.

    Raises:
        DataError: The files cannot be read, or two records have one id where the form has each id once.
        ConfigError: ``output`` has an ending that says no form, or the domain has no such augmentation.
    """
    target = None if output is None else Path(output)
    write = None if target is None else _writer(target)
    if target is not None and not target.absolute().parent.is_dir():
        raise ConfigError(f'There is no folder "{target.absolute().parent}" to write "{target.name}" to.')
    with _trained(run, device, precision) as loaded:
        trained = loaded.averaging(average)
        examples, report = _read(trained, data, _options(trained, TableOptions, options), labelled=False)
        predictions: list[Prediction] = []
        for low in range(0, len(examples), BATCH):
            predictions += trained.predict(trained.source(examples[low : low + BATCH]))
    if target is not None and write is not None and trained.world.leads:
        with written_beside(target) as draft:
            write(draft, trained, examples, predictions)
    return PredictResult(predictions, dict(report.skips))


@contextmanager
def _trained(run: str | Path | Finetuned, device: str, precision: str) -> Iterator[Finetuned]:
    if isinstance(run, Finetuned):
        yield run
        return
    place = config_tree.load(RunConfig, {"device": device, "precision": precision})
    with join() as world:
        yield Finetuned.of_run(run, Device.of(place, world, trains=False), world)


Options = TypeVar("Options", bound=TableOptions)


def _options(trained: Finetuned, schema: type[Options], given: Sequence[str]) -> Options:
    """How files are read: as in training, but for what is given."""
    data = trained.config.data
    base = schema(**{field.name: getattr(data, field.name) for field in dataclasses.fields(schema)})
    return config_tree.load(schema, None, list(given), base=base)


def _read(
    trained: Finetuned, data: str | Sequence[str], settings: TableOptions, labelled: bool
) -> tuple[list[Example], Report]:
    """The records of files, without labels where none are asked for.

    Raises:
        DataError: There are none.
    """
    report = Report()
    kept = trained.config.data.format
    try:
        examples = read_tables(data, settings, trained.task, trained.domain, report, labelled)
    except DataError as error:
        if kept == "auto" or settings.format != kept:
            raise
        raise DataError(
            f"{error} The run was trained on files of the format {kept}; --format says it where these differ."
        ) from error
    if not labelled:
        examples = [dataclasses.replace(example, label=None) for example in examples]
    if not examples:
        raise DataError(f"There are no records in {data} that can be used.")
    return examples, report


def option_keys(labelled: bool) -> str:
    """The keys that say how files are read, as ``--help`` shows them."""
    return config_tree.render_help(LabelledOptions if labelled else TableOptions)


Writer = Callable[[Path, Finetuned, list[Example], list[Prediction]], None]


def _writer(target: Path) -> Writer:
    writers: dict[str, Writer] = {
        ".tsv": _write_tsv,
        ".csv": _write_csv,
        ".json": _write_json,
        ".jsonl": _write_jsonl,
        ".parquet": _write_parquet,
    }
    if target.suffix.lower() not in writers:
        raise ConfigError(f'The ending of "{target}" says no form to write: it is one of {", ".join(writers)}.')
    return writers[target.suffix.lower()]


def _write_tsv(path: Path, trained: Finetuned, examples: list[Example], predictions: list[Prediction]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        if trained.task.config.name == "tagging":
            for example, prediction in zip(examples, predictions, strict=True):
                words = trained.domain.words_of(example)
                for (start, end), tag in zip(words.tolist(), prediction.value, strict=True):
                    file.write(f"{example.sequences[0][start:end]}\t{tag}\n")
                file.write("\n")
            return
        file.write("index\tprediction\n")
        for prediction in predictions:
            file.write(f"{prediction.id}\t{_in_cell(prediction.value)}\n")


def _write_csv(path: Path, trained: Finetuned, examples: list[Example], predictions: list[Prediction]) -> None:
    import csv

    names = trained.task.label_names if trained.task.config.name == "classification" else None
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "prediction", *(names or [])])
        for prediction in predictions:
            chances = prediction.details["probabilities"].values() if names else []
            table.writerow([prediction.id, _in_cell(prediction.value), *chances])


def _write_json(path: Path, trained: Finetuned, examples: list[Example], predictions: list[Prediction]) -> None:
    repeated = [name for name, count in Counter(prediction.id for prediction in predictions).items() if count > 1]
    if repeated:
        raise DataError(
            f'{len(repeated):,} ids stand for several records, such as "{repeated[0]}", and .json has each once: '
            "name the column with ids that differ (--columns.id), or write .jsonl."
        )
    name = path.name.removeprefix(".").removesuffix(".json.writing")
    contents: dict[Path, Any] = {path: {prediction.id: prediction.value for prediction in predictions}}
    if trained.task.config.name == "span":
        for suffix, key in (("nbest", "n_best"), ("null_odds", "null_odds")):
            contents[path.with_name(f"{name}.{suffix}.json")] = {p.id: p.details[key] for p in predictions}
    for place, content in contents.items():
        place.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _write_jsonl(path: Path, trained: Finetuned, examples: list[Example], predictions: list[Prediction]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(prediction_row(one), ensure_ascii=False) + "\n" for one in predictions)


def _write_parquet(path: Path, trained: Finetuned, examples: list[Example], predictions: list[Prediction]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {key: json.dumps(value) if isinstance(value, dict) else value for key, value in prediction_row(one).items()}
        for one in predictions
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def _in_cell(value: Any) -> str:
    """A value on one line, without tabs."""
    text = "|".join(map(str, value)) if isinstance(value, list) else str(value)
    return " ".join(text.split()) if any(blank in text for blank in "\t\n\r") else text
