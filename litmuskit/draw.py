"""The figures, on plain arrays: a forest, a ladder, curves, a heat map with its numbers.

A series is told apart by its marker as well as by its colour (Okabe and Ito's palette), every axis says its unit, and every
interval its level. Labels may come from a transcript, so each passes `safe_text` and is never read as mathematics or TeX.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from litmuskit.display import format_cell, safe_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text

__all__ = ["draw_curves", "draw_forest", "draw_heat", "draw_ladder"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


def _open_axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def _silence(text: Text) -> Text:
    text.set_parse_math(False)
    text.set_usetex(False)
    return text


def _name_ticks(axis: Any, labels: Sequence[object]) -> None:
    axis.set_ticks(range(len(labels)), labels=[safe_text(label, limit=60) for label in labels])
    for tick in axis.get_major_ticks():
        _silence(tick.label1)
        _silence(tick.label2)


def _label(axes: Axes, x: str, y: str, title: str) -> Axes:
    for text, words in ((axes.xaxis.label, x), (axes.yaxis.label, y), (axes.title, title)):
        _silence(text).set_text(safe_text(words, limit=90))
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_forest(
    labels: Sequence[object],
    estimates: Sequence[float],
    lowers: Sequence[float],
    uppers: Sequence[float],
    *,
    ax: Axes | None = None,
    level: float = 0.95,
    quantity: str = "rate",
    unit: str = "share of episodes",
    reference: float | None = None,
    title: str = "",
) -> Axes:
    """Estimates with their intervals, one row each, the first on top.

    A missing estimate (NaN) shows its interval alone, an unbounded interval an arrow, a row without either says so.
    """
    axes = _open_axes(ax, 7, 1.2 + 0.38 * len(labels))
    finite = [x for x in (*estimates, *lowers, *uppers) if abs(x) < float("inf")]
    far = 1.15 * max(finite, default=1.0)
    for row, (estimate, lower, upper) in enumerate(zip(estimates, lowers, uppers, strict=True)):
        if math.isnan(lower):
            axes.annotate("not identified", (0.5, row), xycoords=("axes fraction", "data"), ha="center", va="center")
        axes.plot([lower, min(upper, far)], [row, row], color=PALETTE[0], linewidth=2, solid_capstyle="butt")
        axes.plot(min(upper, far), row, color=PALETTE[0], marker=">" if upper > far else "|", linestyle="none")
        axes.plot(lower, row, color=PALETTE[0], marker="|", linestyle="none")
        axes.plot(estimate, row, color=PALETTE[0], marker="o", linestyle="none")
    if reference is not None:
        axes.axvline(reference, color=PALETTE[6], linestyle=":", linewidth=1)
    _name_ticks(axes.yaxis, labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    return _label(axes, f"{quantity} ({unit}), {level:.0%} interval", "", title)


def draw_ladder(
    rungs: Sequence[object],
    rates: Sequence[float],
    lowers: Sequence[float],
    uppers: Sequence[float],
    counts: Sequence[int],
    episodes: int,
    *,
    ax: Axes | None = None,
    level: float = 0.95,
    title: str = "",
) -> Axes:
    """The violation rate at every rung of the attestation ladder: a bar, its interval, and the count above it."""
    axes = _open_axes(ax, 1.5 + 1.25 * len(rungs), 3.6)
    for place, (rate, lower, upper, count) in enumerate(zip(rates, lowers, uppers, counts, strict=True)):
        axes.bar(place, rate, color=PALETTE[5], width=0.7)
        axes.errorbar(place, rate, yerr=[[rate - lower], [upper - rate]], color="black", capsize=4, linewidth=1.5)
        axes.annotate(f"{count:,}", (place, upper), xytext=(0, 3), textcoords="offset points", ha="center")
    _name_ticks(axes.xaxis, rungs)
    axes.set_ylim(0, max(1.15 * max(uppers, default=0), 0.01))
    ylabel = f"share of N = {episodes:,} episodes, {level:.0%} interval"
    return _label(axes, "evidence required of a counted violation", ylabel, title)


def draw_curves(
    x: Sequence[float],
    curves: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
    level: float = 0.95,
    title: str = "",
) -> Axes:
    """Curves over one axis, each a name with its estimates, lower and upper limits (drawn as a band)."""
    axes = _open_axes(ax, 7, 4)
    for place, (estimates, lowers, uppers) in enumerate(curves.values()):
        color = PALETTE[place % len(PALETTE)]
        axes.fill_between(x, lowers, uppers, color=color, alpha=0.18, linewidth=0)
        axes.plot(x, estimates, color=color, marker=MARKERS[place % len(MARKERS)], label=f"curve {place}")
    for text, name in zip(axes.legend(frameon=False).get_texts(), curves, strict=True):
        _silence(text).set_text(safe_text(name, limit=60))
    return _label(axes, xlabel, f"{ylabel}, {level:.0%} band", title)


def draw_heat(
    matrix: Sequence[Sequence[float]],
    rows: Sequence[object],
    columns: Sequence[object],
    *,
    xlabel: str,
    ylabel: str,
    unit: str,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """A matrix as shaded cells with the number in each: a surface of rates, or a confusion matrix of counts."""
    axes = _open_axes(ax, 2.4 + 0.95 * len(columns), 1.6 + 0.5 * len(rows))
    values = [[float(cell) for cell in row] for row in matrix]
    finite = [value for row in values for value in row if math.isfinite(value)] or [0.0]
    middle = (min(finite) + max(finite)) / 2
    image = axes.imshow(values, cmap="cividis", aspect="auto")
    for y, row in enumerate(matrix):
        for x, cell in enumerate(row):
            ink = "white" if values[y][x] <= middle else "black"
            axes.text(x, y, format_cell(cell), ha="center", va="center", color=ink)
    _name_ticks(axes.xaxis, columns)
    _name_ticks(axes.yaxis, rows)
    _silence(axes.figure.colorbar(image, ax=axes).ax.yaxis.label).set_text(safe_text(unit))
    return _label(axes, xlabel, ylabel, title)
