"""The tables of a study, and the verdicts about its claims."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from seqbert.studies.declaration import ClaimConfig, StudyConfig, TableConfig
from seqbert.studies.results import Number, chosen
from seqbert.studies.statistics import Difference, Verdict, deviations, judge, paired_difference, spread

LOWER_IS_BETTER = re.compile("loss|perplexity|bits|error|seconds|mse|mae")
"""Names of metrics of which the smaller is the better."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """What a table says of one arm.

    Attributes:
        mean: Over the seeds; None: there is no result.
        sd: Standard deviation over the seeds; None with fewer than two.
        n: Number of seeds.
        difference: To the arm that the table compares with.
    """

    mean: float | None
    sd: float | None
    n: int
    difference: Difference | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A finished table.

    Attributes:
        title: Its heading.
        metric: What its numbers are.
        stage: The stage they are of.
        rows: The row labels' names.
        columns: A heading a column.
        entries: For each row the values of its labels, and its cells.
        against: What the cells are compared with.
    """

    title: str
    metric: str
    stage: str
    rows: list[str]
    columns: list[str]
    entries: list[tuple[list[str], list[Cell]]]
    against: dict[str, str] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """A claim, and what this study says about it."""

    text: str
    source: str
    metric: str
    better: dict[str, Any]
    worse: dict[str, Any]
    where: dict[str, Any]
    equal_within: float | None
    compare: str
    difference: Difference | None
    verdict: Verdict


def build_tables(study: StudyConfig, numbers: Sequence[Number]) -> list[Table]:
    """All tables of a study; rows and columns stand in the order of the declaration."""
    return [_table(config, study, numbers) for config in study.tables]


def _table(config: TableConfig, study: StudyConfig, numbers: Sequence[Number]) -> Table:
    about = chosen(numbers, config)
    rows, columns = (_values(labels, study, about) for labels in (config.rows, config.columns))
    entries = []
    for row in rows:
        cells = []
        for column in columns:
            own = dict(zip(config.rows, row, strict=True)) | dict(zip(config.columns, column, strict=True))
            by_seed = seed_means(about, own)
            difference = None
            other = own | (config.against or {})
            if config.against and other != own:
                difference = paired_difference(by_seed, seed_means(about, other))
            mean, sd = spread(list(by_seed.values())) if by_seed else (None, None)
            cells.append(Cell(mean, sd, len(by_seed), difference))
        entries.append((list(row), cells))
    headings = [", ".join(column) if column else config.metric for column in columns]
    return Table(config.title, config.metric, config.stage, config.rows, headings, entries, config.against)


def _values(labels: Sequence[str], study: StudyConfig, numbers: Sequence[Number]) -> list[tuple[str, ...]]:
    """The combinations of labels that occur, axes in the order of the declaration, others sorted by number or name."""
    found = {tuple(str(one.labels.get(label, "")) for label in labels) for one in numbers}

    def order(values: tuple[str, ...]) -> list[tuple[int, float, str]]:
        return [study.rank(label, value) for label, value in zip(labels, values, strict=True)]

    return sorted(found, key=order) or [()] * (not labels)


def seed_means(numbers: Sequence[Number], where: Mapping[str, Any]) -> dict[int, float]:
    """For each seed the mean of the numbers that fit."""
    by_seed: dict[int, list[float]] = {}
    for one in numbers:
        if one.fits(where):
            by_seed.setdefault(one.seed, []).append(one.value)
    return {seed: statistics.fmean(values) for seed, values in sorted(by_seed.items())}


def judge_claims(study: StudyConfig, numbers: Sequence[Number]) -> list[Judged]:
    """What the study says about each of its claims."""
    return [_judged(claim, numbers) for claim in study.claims]


def _judged(claim: ClaimConfig, numbers: Sequence[Number]) -> Judged:
    about = _in_both(chosen(numbers, claim), claim)
    better, worse = seed_means(about, claim.better), seed_means(about, claim.worse)
    lower = claim.lower_is_better
    if claim.compare == "deviations":
        better, worse = deviations(worse), deviations(better)
    elif lower if lower is not None else LOWER_IS_BETTER.search(claim.metric):
        better, worse = worse, better
    difference = paired_difference(better, worse)
    return Judged(
        claim.text,
        claim.source,
        claim.metric,
        claim.better,
        claim.worse,
        claim.where,
        claim.equal_within,
        claim.compare,
        difference,
        judge(difference, claim.equal_within),
    )


def _in_both(numbers: Sequence[Number], claim: ClaimConfig) -> list[Number]:
    """The numbers of what both arms have: a task that one of them lacks, as after a failed job, counts for neither."""
    arms = claim.better.keys() | claim.worse.keys()

    def rest(one: Number) -> tuple[Any, ...]:
        return one.seed, *sorted((label, str(value)) for label, value in one.labels.items() if label not in arms)

    better, worse = ({rest(one) for one in numbers if one.fits(arm)} for arm in (claim.better, claim.worse))
    return [one for one in numbers if rest(one) in better & worse]


def as_markdown(tables: Sequence[Table], claims: Sequence[Judged]) -> str:
    """The tables and verdicts as Markdown."""
    parts = [*map(_table_lines, tables)]
    if claims:
        parts.append(_claim_lines(claims))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _table_lines(table: Table) -> list[str]:
    seeds = sorted({cell.n for _, cells in table.entries for cell in cells if cell.n})
    over = f" over {' or '.join(map(str, seeds))} seeds" if seeds else ""
    lines = [f"**{table.title}** (`{table.metric}`; mean ± standard deviation{over})", ""]
    if table.against:
        named = ", ".join(f"{axis} {value}" for axis, value in table.against.items())
        lines[0] += f"; in brackets the difference to {named} with its 95 % interval"
    lines.append("| " + " | ".join([*table.rows, *table.columns]) + " |")
    lines.append("|" + "---|" * (len(table.rows) + len(table.columns)))
    for labels, cells in table.entries:
        lines.append("| " + " | ".join([*map(_escaped, labels), *map(cell_text, cells)]) + " |")
    return lines


def cell_text(cell: Cell) -> str:
    """A cell in words: ``0.812 ± 0.004 (+0.010, 0.002 to 0.018)``."""
    if cell.mean is None:
        return "-"
    text = number_text(cell.mean)
    if cell.sd is not None:
        text += f" ± {number_text(cell.sd)}"
    return f"{text} ({difference_text(cell.difference)})" if cell.difference is not None else text


def difference_text(difference: Difference) -> str:
    """A difference in words: ``+0.010, 0.002 to 0.018``."""
    sign = "+" if difference.mean >= 0 else ""
    text = f"{sign}{number_text(difference.mean)}"
    if difference.low is None or difference.high is None:
        return text
    return f"{text}, {number_text(difference.low)} to {number_text(difference.high)}"


def number_text(value: float) -> str:
    """A number with as many digits as can be read.

    >>> number_text(0.81234), number_text(1234567.0), number_text(31.456)
    ('0.812', '1,234,567', '31.46')
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def _claim_lines(claims: Sequence[Judged]) -> list[str]:
    lines = ["| claim | source | difference, 95 % interval | seeds | verdict |", "|---|---|---|---|---|"]
    for claim in claims:
        told = "-" if claim.difference is None else difference_text(claim.difference)
        n = 0 if claim.difference is None else claim.difference.n
        lines.append(f"| {_escaped(claim.text)} | {_escaped(claim.source)} | {told} | {n} | {claim.verdict} |")
    return lines


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
