"""Pictures of studies: groups as bars or boxes, and lines, each written as PNG and as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqbert.analysis.plots import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#8C6D00")
"""Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008), the yellow one darkened for a
white ground."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

STYLES = ("-", "--", "-.", ":")

Groups = Mapping[str, Mapping[str, Sequence[float]]]
"""Group, series, and one value a seed."""


def bars(path: Path, groups: Groups, *, title: str, x_label: str, y_label: str) -> None:
    """Draws the mean of each group and series as a bar, the standard deviation over the seeds, and each seed's value.

    Args:
        path: The pictures to write, without an ending: ``.png`` and ``.svg`` are added.
        groups: Group, series, and one value a seed; a group may lack a series.
        title: Heading.
        x_label: Name of the groups.
        y_label: Name and unit of the values.
    """
    figure, axes = _grouped(groups, title, x_label, y_label)
    for spot in _spots(groups):
        mean = spot.values.mean()
        axes.bar(spot.x, mean, 0.9 * spot.width, color=spot.colour, alpha=0.55, label=spot.label)
        if len(spot.values) > 1:
            axes.errorbar(spot.x, mean, spot.values.std(ddof=1), color="black", capsize=3, linewidth=1)
        axes.plot(np.full(len(spot.values), spot.x), spot.values, spot.marker, color=spot.colour, markersize=4)
    _note(axes, groups, "bar: mean; whisker: standard deviation; points: seeds")
    _close_in(axes, [value for group in groups.values() for values in group.values() for value in values])
    _finish(figure, axes, _series_of(groups), path)


def boxes(path: Path, groups: Groups, *, title: str, x_label: str, y_label: str) -> None:
    """Draws median, quartiles and range of each group and series as a box, and each seed's value.

    The arguments are those of :func:`bars`.
    """
    figure, axes = _grouped(groups, title, x_label, y_label)
    for spot in _spots(groups):
        axes.boxplot(
            spot.values,
            positions=[spot.x],
            widths=0.7 * spot.width,
            patch_artist=True,
            manage_ticks=False,
            showfliers=False,
            boxprops={"facecolor": spot.colour, "alpha": 0.35, "edgecolor": spot.colour},
            medianprops={"color": "black", "linewidth": 1.6},
            whiskerprops={"color": spot.colour},
            capprops={"color": spot.colour},
        )
        places = spot.x + np.linspace(-0.18, 0.18, len(spot.values)) * spot.width
        look: dict[str, Any] = {"color": spot.colour, "markersize": 4, "alpha": 0.8, "label": spot.label}
        axes.plot(places, spot.values, spot.marker, **look)
    _note(axes, groups, "box: quartiles; line: median; whiskers: within 1.5 of its height; points: seeds")
    _finish(figure, axes, _series_of(groups), path)


def lines(
    path: Path,
    series: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
) -> None:
    """Draws the mean of each series over x as a line, and its standard deviation over the seeds as a band.

    Args:
        path: The pictures to write, without an ending: ``.png`` and ``.svg`` are added.
        series: Series, x, and one value a seed.
        title: Heading.
        x_label: Name and unit of x.
        y_label: Name and unit of the values.
        log_x: Whether x is on a logarithmic scale.
    """
    figure, axes = _empty(7.0, 4.4, title, x_label, y_label)
    bands = False
    for number, (name, points) in enumerate(series.items()):
        xs = sorted(points)
        means = np.array([np.mean(points[x]) for x in xs])
        spreads = np.array([np.std(points[x], ddof=1) if len(points[x]) > 1 else 0.0 for x in xs])
        colour, few = COLOURS[number % len(COLOURS)], len(xs) <= 40
        marker = MARKERS[number % len(MARKERS)] if few else None
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        axes.plot(xs, means, style, color=colour, marker=marker, markersize=4, linewidth=1.6, label=name)
        if spreads.any():
            bands = True
            axes.fill_between(xs, means - spreads, means + spreads, color=colour, alpha=0.18, linewidth=0)
    if log_x:
        axes.set_xscale("log")
    if bands:
        _say(axes, "line: mean; band: standard deviation over the seeds")
    _finish(figure, axes, list(series), path)


def heat_maps(path: Path, panels: Mapping[str, np.ndarray], labels: Sequence[str], *, title: str, unit: str) -> None:
    """Draws square matrices beside each other on one scale; up to twelve rows each cell says its number.

    Args:
        path: The pictures to write, without an ending: ``.png`` and ``.svg`` are added.
        panels: Each panel's heading, and its matrix ``[n, n]``.
        labels: Of the rows; columns have their numbers.
        title: Heading.
        unit: What the colours stand for.
    """
    count = len(labels)
    side = min(6.0, max(2.2, 0.42 * count))
    figure = new_figure(len(panels) * side + 4.2, side + 1.4)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    low = min(0.0, *(float(matrix.min()) for matrix in panels.values()))
    size = 9 if count <= 20 else 6
    for number, (axes, (heading, matrix)) in enumerate(zip(grid, panels.items(), strict=True)):
        image = axes.imshow(matrix, cmap="cividis", vmin=low, vmax=1.0)
        axes.set_title(heading, fontsize=10, parse_math=False)
        axes.set_xticks(range(count), map(str, range(1, count + 1)), fontsize=size)
        rows = [f"{label}  {row}" for row, label in enumerate(labels, 1)] if number == 0 else [""] * count
        axes.set_yticks(range(count), rows, fontsize=size, parse_math=False)
        axes.set_xlabel("place")
        axes.spines[:].set_visible(False)
        if count <= 12:
            for (row, column), value in np.ndenumerate(matrix):
                ink = "black" if value > (1 + low) / 2 else "white"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
    figure.suptitle(textwrap.fill(title, 80), fontsize=11, parse_math=False)
    figure.colorbar(image, ax=list(grid), label=unit, fraction=0.03)
    _write(figure, path)


class _Spot(NamedTuple):
    """Where the values of a series in a group are drawn, and how."""

    x: float
    width: float
    values: np.ndarray
    colour: str
    marker: str
    label: str | None


def _spots(groups: Groups) -> Iterator[_Spot]:
    """Every series of every group that has values; each series is named once, for the legend."""
    names = _series_of(groups)
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        for place, group in enumerate(groups.values()):
            values = np.asarray(group.get(name, ()), float)
            if len(values):
                x = place - 0.4 + (number + 0.5) * width
                yield _Spot(x, width, values, colour, marker, name if place == 0 else None)


def _series_of(groups: Groups) -> list[str]:
    return list(dict.fromkeys(name for group in groups.values() for name in group))


def _grouped(groups: Groups, title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    wide = max(5.0, 1.2 + len(groups) * max(0.75, 0.34 * len(_series_of(groups))))
    figure, axes = _empty(min(wide, 14.0), 4.6, title, x_label, y_label)
    many = len(groups) > 5 or any(len(name) > 14 for name in groups)
    labels = [textwrap.fill(name, 18) for name in groups]
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if many else {}
    axes.set_xticks(range(len(groups)), labels, parse_math=False, fontsize=9, **turned)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    return figure, axes


def _empty(width: float, height: float, title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = new_figure(width, height)
    axes = figure.add_subplot()
    axes.set_title(textwrap.fill(title, int(11 * width)), fontsize=11, loc="left", parse_math=False)
    axes.set_xlabel(x_label, parse_math=False)
    axes.set_ylabel(y_label, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _close_in(axes: Axes, values: Sequence[float]) -> None:
    """Bars begin at 0, unless all values are so far from it that nothing could be told apart; the axis then says so."""
    low, high = min(values), max(values)
    if low > 0 and high - low < 0.25 * high:
        margin = 0.35 * (high - low) or 0.1 * high
        axes.set_ylim(max(0.0, low - margin), high + margin)
        axes.set_ylabel(f"{axes.get_ylabel()} (axis does not begin at 0)", parse_math=False)


def _note(axes: Axes, groups: Groups, text: str) -> None:
    if any(len(values) > 1 for group in groups.values() for values in group.values()):
        _say(axes, text)


def _say(axes: Axes, text: str) -> None:
    axes.annotate(text, (1, 1.005), xycoords="axes fraction", ha="right", va="bottom", fontsize=7, color="#555555")


def _finish(figure: Figure, axes: Axes, names: Sequence[str], path: Path) -> None:
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _write(figure, path)


def _write(figure: Figure, path: Path) -> None:
    for ending in (".png", ".svg"):
        save(figure, path.with_name(path.name + ending))
