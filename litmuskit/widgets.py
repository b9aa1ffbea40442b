"""Views with sliders. What a view shows is a pure function of its settings, so it is tested without a browser, and a reader
without a kernel sees the same table as plain HTML.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]

from litmuskit.display import Table, safe_html
from litmuskit.rates import estimate_inflation, estimate_rates, judge_quarantine

__all__ = ["InflationWhatIf", "tabulate_inflation"]


def tabulate_inflation(episodes: int, flagged: int, read: int, false: int, quarantined: int, *, level: float = 0.95) -> Table:
    """What a reported rate becomes once ``read`` flagged records were read, ``false`` of them no violations.

    Parameters
    ----------
    episodes, flagged, read, false, quarantined : int
        N, x; at most x records read, at most so many false; at most x quarantined by an audit.
    level : float in (0, 1)

    Examples
    --------
    >>> tabulate_inflation(1000, 120, 40, 3, 0).rows[1][:4]
    ('confirmed (headline)', 0.111, 0.0889006..., 0.132028...)
    """
    found = estimate_rates(
        flagged=flagged, episodes=episodes, quarantined=quarantined, adjudicated=read, true=read - false, level=level
    )
    kept = {"reported": 0, "confirmed": 1, "attributable": 2, "worst case": 3}
    rates = sorted((r for r in found.rates if r.estimand in kept and "product" not in r.method), key=lambda r: kept[r.estimand])
    named = ((f"{r.estimand}{' (headline)' if r.role == 'headline' else ''}", r.estimate, r.lower, r.upper) for r in rates)
    factor, rule = estimate_inflation(read - false, read, level=level), judge_quarantine(quarantined, flagged, level=level)
    ends = ("unbounded" if v == float("inf") else v for v in (factor.estimate, factor.lower, factor.upper))
    share = ("quarantined share of the flagged", rule.estimate, rule.lower, rule.upper)
    rows = (*named, ("inflation, reported / confirmed", *ends), share)
    note = f"2 % rule: {rule.verdict}; {rule.notes[1]}. Records treated as independent."
    caption = f"{flagged:,} of {episodes:,} flagged, {read:,} read at random, {false:,} of them no violation"
    return Table(columns=("", "estimate", "lower", "upper"), rows=rows, caption=caption, note=note)


class InflationWhatIf(widgets.VBox):  # type: ignore[misc]
    """How far is a reported rate inflated? Sliders for the records read, the false ones among them, the quarantined ones.

    ``episodes`` and ``flagged`` are the run's N and x; ``read``, ``false`` and ``quarantined`` say where the sliders start,
    ``level`` in (0, 1) is that of the intervals.

    Examples
    --------
    >>> view = InflationWhatIf(episodes=1000, flagged=120, read=40, false=3)
    >>> view.false.value = 20
    >>> view.table.rows[1][1]
    0.06
    """

    def __init__(
        self, *, episodes: int, flagged: int, read: int = 0, false: int = 0, quarantined: int = 0, level: float = 0.95
    ) -> None:
        self.episodes, self.flagged, self.level = episodes, flagged, level
        wide: Any = {"layout": widgets.Layout(width="32em"), "style": {"description_width": "14em"}, "continuous_update": False}
        self.read = widgets.IntSlider(value=read, max=flagged, description="flagged records read", **wide)
        self.false = widgets.IntSlider(value=false, max=read, description="no violation among them", **wide)
        self.quarantined = widgets.IntSlider(value=quarantined, max=flagged, description="quarantined by an audit", **wide)
        self.view = widgets.HTML()
        for slider in (self.read, self.false, self.quarantined):
            slider.observe(self._refresh, names="value")
        self._refresh()
        super().__init__([self.read, self.false, self.quarantined, self.view])

    @property
    def table(self) -> Table:
        """The numbers on show."""
        settings = (self.read.value, self.false.value, self.quarantined.value)
        return tabulate_inflation(self.episodes, self.flagged, *settings, level=self.level)

    def _refresh(self, _: object = None) -> None:
        self.false.max = self.read.value
        self.view.value = self.table._repr_html_()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options) or {}
        hint = f"<p>{safe_html('A still of a live view: run the cell to move its sliders.')}</p>"
        return bundle | {"text/plain": self.table.to_text(), "text/html": self.table._repr_html_() + hint}
