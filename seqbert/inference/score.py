"""``seqbert score``: how probable sequences are to a language model, which of two is more so, and what mutations do."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqbert.data.whole import written_beside
from seqbert.domain import Example, Report
from seqbert.errors import ConfigError, DataError
from seqbert.inference.embed import buffers
from seqbert.inference.likelihood import LanguageModel
from seqbert.inference.trained import Trained
from seqbert.inference.variants import ALL, Variant, VariantScorer, parse_variants, variants_of_file
from seqbert.training.evaluation import perplexity

BUFFER_RECORDS, BUFFER_CHARACTERS = 256, 2**16
"""Records, and characters after which no more are added, that are scored together."""

COLUMN = "column:"
"""Before the name of the column that holds each record's mutations."""

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreResult:
    """Scores of records.

    Attributes:
        rows: What is known of each record, or of each mutation, as plain data.
        summary: Of all of them.
        skipped: Records that were left out, by reason.
    """

    rows: list[Row]
    summary: dict[str, Any]
    skipped: dict[str, int]


def score(
    run: str | Path | Trained,
    data: str | Path | Sequence[str] | None = None,
    output: str | Path | None = None,
    *,
    sequence: str | None = None,
    pairs: bool = False,
    mutations: str | None = None,
    positions: bool = False,
    unit: str = "token",
    domain: str | None = None,
    max_length: int | None = None,
    options: Sequence[str] = (),
    device: str = "auto",
    precision: str = "auto",
) -> ScoreResult:
    """Scores sequences by a language model.

    The score of a sequence is its pseudo-log-likelihood: the sum of the log-probabilities of its tokens, each masked in
    turn (Salazar et al. 2020, equation 2), or with a causal model its log-likelihood. Of a sequence that is longer than
    ``max_length``, each token is seen in the middle of a window.

    Args:
        run: A run's folder with a language-model head, or a model that is loaded already.
        data: Files, folders or globs: tables, or whatever the domain reads.
        output: Where to write the rows: ``.jsonl``, ``.csv`` or ``.parquet``.
        sequence: One sequence, in place of ``data``.
        pairs: Compare the two sequences of each record; the first should be the more probable one.
        mutations: Score substitutions in place of sequences, by the masked marginals of Meier et al. 2021 (equation 1):
            ``A42G,L7P`` (``A42G:L7P`` where they occur together) or a file of such, for one sequence;
            ``column:NAME``, a column that holds those of each record; ``all``, or ``all:LETTERS``, for every single
            one. Positions are counted from 1.
        positions: Add the log-probability of each token.
        unit: ``token``; or ``unit``, or the name of the domain's masking unit, to mask all tokens of one at once.
        domain: The domain, where the run has several.
        max_length: Most tokens of a sequence, special tokens included; None: as in the run's training.
        options: What is particular about the files: ``["--columns.sequence", "seq"]``.
        device: cpu, cuda, mps, or auto. Not read where ``run`` is loaded already.
        precision: fp32, bf16, or auto: bf16 on a GPU that has it. Not read where ``run`` is loaded already.

    Returns:
        The rows, in the order of the input, and a summary.

    Raises:
        ConfigError: if arguments cannot be used, or not together.
        CheckpointError: if there is no model, or it is no language model.
        DataError: if a file cannot be read, or a mutation does not fit its sequence.
    """
    target = None if output is None else Path(output)
    write = None if target is None else _writer(target, positions)
    if (data is None) == (sequence is None):
        raise ConfigError("Give either files (--input) or one sequence (--sequence).")
    if pairs and (sequence is not None or mutations is not None):
        raise ConfigError("--pairs compares the two sequences of each record of a table: give --input alone with it.")
    if positions and (pairs or mutations is not None):
        raise ConfigError("--positions is for the scores of sequences, not for pairs or mutations.")
    if mutations is not None and unit != "token":
        raise ConfigError("--unit is for the scores of sequences: substitutions are masked as they are named.")
    if mutations is not None and mutations.startswith(COLUMN):
        options = [*options, "--columns.group", mutations.removeprefix(COLUMN)]
    trained = Trained.on(run, domain, device, precision)
    scorer = _Scorer(LanguageModel(trained, trained.window(max_length)), _by_unit(unit, trained), positions)
    report = Report()
    if sequence is not None:
        examples = iter([_typed(sequence, trained)])
    else:
        assert data is not None
        examples = trained.examples(data, options, report)
    if mutations is not None:
        rows = list(_mutation_rows(VariantScorer(scorer.model), examples, mutations))
        summary: dict[str, Any] = {"kind": "masked marginals", "mutations": len(rows)}
    elif pairs:
        rows = list(_pair_rows(scorer, examples, report))
        correct = [row["correct"] for row in rows]
        summary = {"kind": scorer.kind, "pairs": len(rows), "accuracy": float(np.mean(correct)) if rows else None}
    else:
        rows = list(_sequence_rows(scorer, examples))
        summary = _summary(scorer, rows)
    if target is not None and write is not None:
        with written_beside(target) as draft:
            write(draft, rows)
    return ScoreResult(rows, summary, dict(report.skips))


class _Scorer:
    """Scores texts."""

    def __init__(self, model: LanguageModel, by_unit: bool, positions: bool) -> None:
        if by_unit and model.causal:
            raise ConfigError("A causal model reads token by token: --unit must be token.")
        if by_unit and model.overlap:
            raise ConfigError(
                "All tokens over a symbol are masked together where tokens overlap: --unit must be token."
            )
        self.model = model
        self.by_unit = by_unit
        self.positions = positions
        self._symbols: dict[int, int] = {}

    @property
    def kind(self) -> str:
        """What the scores are."""
        return "log-likelihood" if self.model.causal else "pseudo-log-likelihood"

    def rows(self, texts: Sequence[str]) -> list[Row]:
        """Score, counts, bits and perplexity of each text; the score is None where no token can be scored."""
        domain = self.model.trained.domain
        encoded = domain.encode(list(texts), offsets=self.positions)
        edges = np.cumsum(encoded.lengths)[:-1]
        sequences = np.split(encoded.ids.astype(np.int64), edges)
        units = None
        if self.by_unit:
            assert encoded.units is not None
            units = np.split(encoded.units, edges)
        found = self.model.log_probabilities(sequences, units)
        rows = [self._row(ids, scores) for ids, scores in zip(sequences, found, strict=True)]
        if self.positions:
            assert encoded.offsets is not None
            spans = np.split(encoded.offsets, edges)
            for row, ids, scores, places in zip(rows, sequences, found, spans, strict=True):
                row["positions"] = self._positions(ids, scores, places)
        return rows

    def _row(self, ids: np.ndarray, scores: np.ndarray) -> Row:
        scored = ~np.isnan(scores)
        total = float(scores[scored].sum()) if scored.any() else None
        symbols = None if self.model.causal and self.model.overlap else self._count(ids[scored])
        return {
            "score": total,
            "tokens": len(ids),
            "scored": int(scored.sum()),
            "symbols": symbols,
        } | _derived(total, int(scored.sum()), symbols)

    def _positions(self, ids: np.ndarray, scores: np.ndarray, places: np.ndarray) -> list[Row]:
        spell = self.model.trained.domain.vocabulary.id_to_token
        return [
            {"start": start, "end": end, "token": spell(number), "log_probability": value}
            for number, value, (start, end) in zip(ids.tolist(), scores.tolist(), places.tolist(), strict=True)
            if not math.isnan(value)
        ]

    def _count(self, ids: np.ndarray) -> int:
        domain = self.model.trained.domain
        for number in np.unique(ids).tolist():
            if number not in self._symbols:
                self._symbols[number] = domain.symbols(domain.vocabulary.id_to_token(number) or "")
        return sum(self._symbols[number] for number in ids.tolist())


def _derived(total: float | None, scored: int, symbols: int | None) -> Row:
    """Bits a symbol, and the exponential of the mean loss of a token (Salazar et al. 2020, equation 4)."""
    return {
        "bits_per_symbol": None if total is None or not symbols else -total / math.log(2) / symbols,
        "perplexity": None if total is None else perplexity(-total / scored),
    }


def _sequence_rows(scorer: _Scorer, examples: Iterator[Example]) -> Iterator[Row]:
    for buffer in buffers(examples, BUFFER_RECORDS, BUFFER_CHARACTERS):
        for example in buffer:
            if len(example.sequences) > 1:
                raise DataError(
                    f"{example.source}: the record has two sequences. Compare them with --pairs, or name the one that "
                    "is meant by --columns.sequence."
                )
        scores = scorer.rows([example.sequences[0] for example in buffer])
        for example, row in zip(buffer, scores, strict=True):
            yield {"id": example.id, "source": example.source} | row


def _pair_rows(scorer: _Scorer, examples: Iterator[Example], report: Report) -> Iterator[Row]:
    for buffer in buffers(examples, BUFFER_RECORDS, BUFFER_CHARACTERS):
        for example in buffer:
            if len(example.sequences) != 2:
                raise DataError(
                    f"{example.source}: the record has one sequence, and --pairs compares two: name their columns by "
                    "--columns.sequence (the one that should be more probable) and --columns.pair."
                )
        scores = scorer.rows([text for example in buffer for text in example.sequences])
        for example, first, second in zip(buffer, scores[::2], scores[1::2], strict=True):
            if first["score"] is None or second["score"] is None:
                report.skipped(example.source, "a sequence without a token that can be scored")
                continue
            difference = first["score"] - second["score"]
            yield {
                "id": example.id,
                "source": example.source,
                "first": first["score"],
                "second": second["score"],
                "correct": 0.5 if not difference else float(difference > 0),
            }


def _mutation_rows(scorer: VariantScorer, examples: Iterator[Example], mutations: str) -> Iterator[Row]:
    named: list[Variant] = []
    by_column = mutations.startswith(COLUMN)
    every = mutations == ALL or mutations.startswith(f"{ALL}:")
    if not by_column and not every:
        is_file = os.path.isfile(mutations)  # Path.is_file fails where a long list is no possible name
        named = variants_of_file(Path(mutations)) if is_file else parse_variants(mutations, "--mutations")
    letters = scorer.letters_of(mutations) if every else ""
    for number, example in enumerate(examples):
        text, source = example.sequences[0], example.source
        if len(example.sequences) > 1:
            raise DataError(
                f"{source}: the record has two sequences; name the one that is meant by --columns.sequence."
            )
        if named and number:
            raise DataError(
                f"{source}: this is a second record, and the mutations that are named are those of one sequence. Put "
                "them beside their sequences in a table, and name the column by --mutations column:NAME."
            )
        ids = scorer.encode(text, source)
        variants = scorer.every(text, letters) if every else named
        if by_column:
            cell = example.metadata.get("group", "")
            if not cell:
                raise DataError(f"{source}: the column of the mutations is empty.")
            variants = parse_variants(cell, source)
        variants = [scorer.check(variant, text, source) for variant in variants]
        for variant, value in zip(variants, scorer.scores(ids, variants), strict=True):
            yield {"id": example.id, "source": source, "mutations": ":".join(map(str, variant)), "score": value}


def _summary(scorer: _Scorer, rows: list[Row]) -> dict[str, Any]:
    scored = [row for row in rows if row["score"] is not None]
    total = sum(row["score"] for row in scored) if scored else None
    tokens = sum(row["scored"] for row in scored)
    counts = [row["symbols"] for row in scored]
    symbols = None if None in counts else sum(counts)
    return {
        "kind": scorer.kind,
        "symbol": scorer.model.trained.domain.symbol,
        "records": len(rows),
        "not_scored": len(rows) - len(scored),
        "score": total,
        "scored": tokens,
        "symbols": symbols,
    } | _derived(total, tokens, symbols)


def _typed(sequence: str, trained: Trained) -> Example:
    """What a user typed, as a record."""
    text = trained.domain.canonical(sequence)
    if not text:
        raise DataError("Nothing is left of the sequence in canonical form.")
    return Example("sequence", (text,), source="the sequence")


def _by_unit(unit: str, trained: Trained) -> bool:
    """Whether whole masking units are masked."""
    has = trained.domain.unit
    if unit not in ("token", "unit", has) or (unit != "token" and has == "token"):
        known = "token alone" if has == "token" else f"token and {has}"
        raise ConfigError(f'--unit is "{unit}", and the domain "{trained.domain.name}" has {known}.')
    return unit != "token"


def _writer(target: Path, positions: bool) -> Callable[[Path, list[Row]], None]:
    writers: dict[str, Callable[[Path, list[Row]], None]] = {
        ".jsonl": _write_jsonl,
        ".csv": _write_csv,
        ".parquet": _write_parquet,
    }
    if target.suffix.lower() not in writers:
        raise ConfigError(f'The ending of "{target}" says no form to write: it is one of {", ".join(writers)}.')
    if positions and target.suffix.lower() == ".csv":
        raise ConfigError("Positions do not fit the cells of a CSV file: write .jsonl or .parquet.")
    if not target.absolute().parent.is_dir():
        raise ConfigError(f'There is no folder "{target.absolute().parent}" to write "{target.name}" to.')
    return writers[target.suffix.lower()]


def _write_jsonl(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]) if rows else [])
        table.writeheader()
        table.writerows(rows)


def _write_parquet(path: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)
