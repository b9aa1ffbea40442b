"""Figures are judged by their artists: what stands where, in which words."""

from __future__ import annotations

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from hostile import PAYLOADS
from matplotlib.text import Text

from litmuskit.display import safe_text
from litmuskit.draw import draw_curves, draw_forest, draw_heat, draw_ladder

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True)
def _close_figures():
    with mpl.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


def draw_all(labels: list[str], words: str) -> list[plt.Axes]:
    """Every figure, its rows and series named by the labels, its title and axes by the words."""
    axes = plt.figure().subplots(4)
    zeros, ones = [0.0] * len(labels), [1.0] * len(labels)
    return [
        draw_forest(labels, zeros, zeros, ones, quantity=words, unit=words, title=words, ax=axes[0]),
        draw_ladder(labels, zeros, zeros, ones, [10] * len(labels), 100, title=words, ax=axes[1]),
        draw_curves([0], {name: ([0], [0], [1]) for name in labels}, xlabel=words, ylabel=words, title=words, ax=axes[2]),
        draw_heat([ones], [words], labels, xlabel=words, ylabel=words, unit=words, title=words, ax=axes[3]),
    ]


@pytest.mark.filterwarnings("ignore:Glyph")  # the font lacks a letter: no fault of the figure
def test_hostile_labels_are_text_and_nothing_else():
    """Drawn, so that formatters have had their say; a payload that is mathematics or TeX would not stand there whole."""
    drawn = draw_all(list(PAYLOADS.values()), PAYLOADS["mathjax"])
    drawn[0].figure.draw_without_rendering()
    for axes in drawn:
        shown = axes.findobj(Text)
        for payload in PAYLOADS.values():
            texts = [text for text in shown if safe_text(payload)[:30] in text.get_text()]
            assert texts
            assert not [text for text in texts if text.get_parse_math() or text.get_usetex()]


def test_labels_stay_out_of_tex_when_the_reader_uses_tex():
    with mpl.rc_context({"text.usetex": True}):
        for axes in draw_all([r"\input{/etc/passwd}"], r"\input{/etc/passwd}"):
            named = [text for text in axes.findobj(Text) if "passwd" in text.get_text()]
            assert len(named) >= 3
            assert not [text for text in named if text.get_usetex()]


def read_ticks(axis) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def test_forest_rows_run_from_the_top():
    axes = draw_forest(["first", "second"], [0.1, 0.3], [0.05, 0.2], [0.2, 0.4], level=0.9, reference=0.25)
    axes.figure.canvas.draw()
    assert read_ticks(axes.yaxis) == ["first", "second"]
    assert axes.yaxis.get_inverted()
    points = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert points == [[[0.1, 0.0]], [[0.3, 1.0]]]
    spans = [line.get_xdata().tolist() for line in axes.lines if line.get_linewidth() == 2]
    assert spans == [[0.05, 0.2], [0.2, 0.4]]
    assert [line.get_xdata() for line in axes.lines if line.get_linestyle() == ":"] == [[0.25, 0.25]]
    assert axes.get_xlabel() == "rate (share of episodes), 90% interval"


def test_forest_says_what_has_no_bound_and_what_has_no_answer():
    axes = draw_forest(
        ["bounds only", "unbounded", "none"], [NAN, 2.0, NAN], [0.1, 1.1, NAN], [0.3, INF, NAN], quantity="inflation"
    )
    assert [line.get_marker() for line in axes.lines].count(">") == 1
    assert [text.get_text() for text in axes.texts] == ["not identified"]
    assert axes.texts[0].xy[1] == 2
    axes.figure.canvas.draw()


def test_ladder_shows_rate_interval_and_count():
    axes = draw_ladder(["reported", "calibrated"], [0.2, 0.0], [0.15, 0.0], [0.26, 0.02], [1200, 0], 6000, level=0.8, title="t")
    axes.figure.canvas.draw()
    assert read_ticks(axes.xaxis) == ["reported", "calibrated"]
    assert [bar.get_height() for bar in axes.patches] == [0.2, 0.0]
    assert [text.get_text() for text in axes.texts] == ["1,200", "0"]
    segments = [
        segment.tolist() for bars in axes.containers if hasattr(bars, "lines") for segment in bars.lines[2][0].get_segments()
    ]
    assert segments == [[[0, pytest.approx(0.15)], [0, 0.26]], [[1, 0.0], [1, 0.02]]]
    assert axes.get_ylabel() == "share of N = 6,000 episodes, 80% interval"
    assert axes.get_title() == "t"


def test_ladder_without_any_flag_still_has_an_axis():
    axes = draw_ladder(["reported"], [0.0], [0.0], [0.0], [0], 0)
    assert axes.get_ylim() == (0, 0.01)


def test_curves_differ_by_marker_not_only_by_colour():
    band = ([0.1, 0.2], [0.0, 0.1], [0.2, 0.3])
    axes = draw_curves([0, 1], {"a": band, "b": band}, xlabel="fault rate", ylabel="false share", level=0.9)
    assert len({line.get_marker() for line in axes.lines}) == 2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert len(axes.collections) == 2
    assert axes.get_ylabel() == "false share, 90% band"


def test_heat_writes_every_number():
    axes = draw_heat(
        [[12, 0], [0.5, NAN]], ["true", "false"], ["count", "escalate"], xlabel="decision", ylabel="truth", unit="flags"
    )
    axes.figure.canvas.draw()
    assert [text.get_text() for text in axes.texts] == ["12", "0", "0.5000", "–"]
    assert read_ticks(axes.xaxis) == ["count", "escalate"]
    assert read_ticks(axes.yaxis) == ["true", "false"]
    assert axes.figure.axes[1].get_ylabel() == "flags"
    assert [text.get_color() for text in axes.texts[:2]] == ["black", "white"]


@pytest.mark.parametrize("draw", range(4))
def test_a_given_axes_is_drawn_into(draw):
    axes = plt.figure().subplots()
    calls = [
        lambda: draw_forest(["a"], [0.1], [0.0], [0.2], ax=axes),
        lambda: draw_ladder(["a"], [0.1], [0.0], [0.2], [1], 10, ax=axes),
        lambda: draw_curves([0, 1], {"a": ([0, 1], [0, 1], [0, 1])}, xlabel="x", ylabel="y", ax=axes),
        lambda: draw_heat([[1]], ["a"], ["b"], xlabel="x", ylabel="y", unit="u", ax=axes),
    ]
    assert calls[draw]() is axes
    assert len(plt.get_fignums()) == 1


def test_unequal_columns_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        draw_forest(["a"], [0.1, 0.2], [0.0], [0.2])
