"""Pictures of what was measured, as PNG files; drawn without a display and without state between calls."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150

_NUMBERED = 25  # classes up to which each cell says its numbers
_WIDE = 12  # classes up to which there is room for counts in full and for shares
_NAMED = 120  # classes up to which their names can be read
_LARGEST_SIDE = 14.0  # inches
_LONGEST_NAME = 24
_BLUE, _ORANGE, _GREY = "#2f6db3", "#d9702b", "#8a8a8a"


def confusion_matrix(matrix: np.ndarray, names: Sequence[str], path: Path) -> None:
    """Draws how many records of each true class were given each class.

    A cell's colour is its share of its row, so that rare classes are seen as well as frequent ones. Up to 25
    classes each cell also says its count, up to 12 its share too. Of long names the middle is left out; of more than
    120 classes only the numbers are given.

    Args:
        matrix: Counts ``[true classes, predicted classes]``, of one class at least.
        names: The classes.
        path: The PNG file to write.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    counts = np.asarray(matrix)
    classes, totals = len(names), counts.sum(axis=1, keepdims=True)
    if counts.shape != (classes, classes) or not classes:
        raise ValueError(f"a confusion matrix of {classes} classes is square, not {counts.shape}")
    shares = counts / np.maximum(totals, 1)
    cell = 0.8 if classes <= _WIDE else 0.55 if classes <= _NUMBERED else min(0.2, _LARGEST_SIDE / classes)
    labels = [_shortened(name) for name in names] if classes <= _NAMED else []
    longest = max(map(len, labels), default=4)
    margin = 0.085 * longest
    side = max(classes * cell, 1.8)
    figure = new_figure(side + margin + 1.9, side + margin + 1.1)
    axes = figure.add_subplot()
    # Errors that spread over many classes have small shares, which a linear scale would not show.
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(1 if classes <= _NUMBERED else 0.5, 0, 1))
    if labels:
        size = 9 if classes <= _NUMBERED else 32 * cell
        upright = classes <= 6 and longest <= 10
        axes.set_xticks(range(classes), labels, fontsize=size, rotation=0 if upright else 90, parse_math=False)
        axes.set_yticks(range(classes), labels, fontsize=size, parse_math=False)
    axes.set_xlabel("predicted" if labels else "predicted class, by its number from 0")
    axes.set_ylabel("true" if labels else "true class, by its number from 0")
    right = int(np.trace(counts))
    axes.set_title(f"{right:,} of {int(counts.sum()):,} right", fontsize=10)
    if labels:
        axes.set_xticks(np.arange(classes + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(classes + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1 if classes <= _NUMBERED else 0.4)
        axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    if classes <= _NUMBERED:
        _write_cells(axes, counts, shares, wide=classes <= _WIDE)
    bar = figure.colorbar(image, ax=axes, fraction=0.045, pad=0.03, format=PercentFormatter(1.0, decimals=0))
    bar.set_label("share of the true class", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    save(figure, path)


def learning_curve(rows: Iterable[Mapping[str, Any]], path: Path, metric: str | None = None) -> None:
    """Draws the training loss and a validation metric over the steps of a run.

    Args:
        rows: The records of ``metrics.jsonl``: ``step`` and ``loss``, or ``step`` and the metrics under keys that
            begin with ``validation``, each a number or, with its interval, a mapping that has a ``value``.
        path: The PNG file to write.
        metric: The validation metric; None: the first that has a value.
    """
    losses: list[tuple[int, float]] = []
    validations: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if _is_number(row.get("loss")):
            losses.append((row["step"], row["loss"]))
        for key, name, value in _validated(row):
            metric = metric or name
            if name == metric:
                validations.setdefault(key, []).append((row["step"], value))
    figure = new_figure(7, 3.8)
    axes = figure.add_subplot()
    axes.set_xlabel("step")
    axes.set_ylabel("training loss", color=_BLUE)
    axes.tick_params(axis="y", colors=_BLUE)
    axes.spines[["top", "right"]].set_visible(False)
    if losses:
        steps, values = np.array(losses, np.float64).T
        axes.plot(steps, values, color=_BLUE, linewidth=1, alpha=0.35)
        axes.plot(steps, _smoothed(values), color=_BLUE, linewidth=1.8)
        axes.set_ylim(0, 1.05 * max(values.max(), 1e-9))
    if validations:
        beside = axes.twinx()
        beside.spines[["top", "left"]].set_visible(False)
        beside.tick_params(axis="y", colors=_ORANGE)
        beside.set_ylabel(f"validation {_words(metric or '')}", color=_ORANGE)
        for number, (name, points) in enumerate(sorted(validations.items())):
            steps, values = np.array(points).T
            style = ("-", "--", ":", "-.")[number % 4]
            beside.plot(steps, values, style, color=_ORANGE, marker="o", markersize=4, linewidth=1.4, label=name)
        if len(validations) > 1:
            beside.legend(frameon=False, fontsize=8)
    if not losses and not validations:
        _say_empty(axes, "nothing was logged")
    save(figure, path)


def seeds(values: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draws each metric's value in every run that differs by its seed only, with median, mean and deviation.

    Each metric has a scale of its own.

    Args:
        values: The metrics by name, one number a run; what is not finite is left out.
        path: The PNG file to write.
    """
    from matplotlib.ticker import MaxNLocator

    metrics = {name: np.array([value for value in runs if _is_number(value)]) for name, runs in values.items()}
    metrics = {name: runs for name, runs in metrics.items() if len(runs)}
    figure = new_figure(6.5, 0.5 + 0.75 * max(len(metrics), 1))
    if not metrics:
        _say_empty(figure.add_subplot(), "no run has a value")
    for number, (name, runs) in enumerate(metrics.items(), 1):
        axes = figure.add_subplot(len(metrics), 1, number)
        axes.plot(runs, np.zeros(len(runs)), "o", color=_BLUE, alpha=0.5, markersize=8, markeredgewidth=0)
        axes.plot([np.median(runs)] * 2, [-0.6, 0.6], color=_ORANGE, linewidth=2)
        axes.set_ylim(-1, 1)
        axes.set_yticks([0], [_words(name)], parse_math=False)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.annotate(_mean_and_deviation(runs), (1.02, 0.5), xycoords="axes fraction", va="center", fontsize=9)
        if number == 1:
            axes.set_title("a dot a seed; line: median; at right: mean ± standard deviation", fontsize=9, color=_GREY)
    save(figure, path)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes a figure in the format that the path's ending names; the same numbers give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # Names in a script that the font lacks are drawn as boxes; results in text hold them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        changing = "Date" if path.suffix == ".svg" else "Software"  # the day, or the library's version
        figure.savefig(path, dpi=DPI, bbox_inches="tight", metadata={changing: None})


def _validated(row: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """What was validated, the metric, and its value, for each that has one in a record of ``metrics.jsonl``."""
    for key, measured in row.items():
        if key.startswith("validation") and isinstance(measured, Mapping):
            for name, given in measured.items():
                value = given.get("value") if isinstance(given, Mapping) else given
                if _is_number(value):
                    yield key.removeprefix("validation").lstrip("_"), name, value


def _write_cells(axes: Axes, counts: np.ndarray, shares: np.ndarray, wide: bool) -> None:
    """Writes what each cell counts; where cells are ``wide`` enough in full and with its share."""
    for (row, column), count in np.ndenumerate(counts):
        if not count:
            continue
        share = shares[row, column]
        shade = "white" if share > 0.55 else "#222222"
        shown = f"{count:,}" if wide or count < 10_000 else f"{count / 1000:,.0f}k"
        axes.annotate(shown, (column, row), ha="center", va="bottom" if wide else "center", color=shade, fontsize=8)
        if wide:
            below = axes.annotate(f"{share:.1%}", (column, row), (0, -2), textcoords="offset points", color=shade)
            below.set(ha="center", va="top", fontsize=6.5, alpha=0.8)


def _say_empty(axes: Axes, what: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, what, transform=axes.transAxes, ha="center", va="center", color=_GREY)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Mean over the neighbouring tenth of the values, shorter at the ends, ``[values]``."""
    reach = len(values) // 20
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low, high = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    means: np.ndarray = (sums[high] - sums[low]) / (high - low)
    return means


def _shortened(name: str) -> str:
    """A name without its middle where it is long: names of one scheme often differ at their ends only."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"


def _mean_and_deviation(runs: np.ndarray) -> str:
    """Mean and sample deviation with three digits of the largest run.

    >>> _mean_and_deviation(np.array([0.91, 0.92])), _mean_and_deviation(np.array([0.5]))
    ('0.915 ± 0.007', '0.500')
    """
    largest = float(np.abs(runs).max())
    digits = max(0, 2 - math.floor(math.log10(largest))) if largest else 1
    deviation = f" ± {runs.std(ddof=1):.{digits}f}" if len(runs) > 1 else ""
    return f"{runs.mean():.{digits}f}{deviation}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
