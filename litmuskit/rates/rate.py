"""`Rate`: one estimate with everything a reader needs to distrust it; `RateTable`: several, one of them the headline."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from litmuskit.display import Table, Tabular
from litmuskit.draw import draw_forest
from litmuskit.errors import NotIdentifiedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTS = ("n", "x", "c", "q", "a", "u", "m", "t", "clusters", "design_effect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Tabular):
    """One estimate, in the unit of its estimand.

    ``n`` episodes, ``x`` flagged = ``c`` counted + ``q`` quarantined + ``a`` escalated + ``u`` not assessable; ``m``
    adjudicated, ``t`` of them true. A count that does not apply is None; so is an estimate the counts do not give. The
    limits never coincide, unless every record was read and nothing is left to estimate.

    Examples
    --------
    >>> Rate(estimand="reported", method="Wilson", estimate=0.12, lower=0.1, upper=0.15, level=0.95, n=1000, x=120)
    Rate(reported 0.1200 [0.1000, 0.1500] at 95 %, Wilson; n=1000, x=120)
    """

    estimand: str
    method: str
    estimate: float | None
    lower: float
    upper: float
    level: float
    n: int | None = None
    x: int | None = None
    c: int | None = None
    q: int | None = None
    a: int | None = None
    u: int | None = None
    m: int | None = None
    t: int | None = None
    clusters: int | None = None
    design_effect: float | None = None
    p_value: float | None = None
    verdict: str | None = None
    label: str | None = None
    role: str | None = None
    why: str = ""
    notes: tuple[str, ...] = ()
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        census = self.m is not None and self.m == self.x
        if not (self.lower < self.upper or (census and self.lower == self.upper)):
            raise NotIdentifiedError("no interval", where=self.estimand, carrying=(self.lower, self.upper))

    def __repr__(self) -> str:
        counts = ", ".join(f"{k}={_word(getattr(self, k))}" for k in COUNTS if getattr(self, k) is not None)
        limits = f"{_word(self.estimate)} [{_word(self.lower)}, {_word(self.upper)}] at {100 * self.level:g} %"
        return f"Rate({self.estimand} {limits}, {self.method}{'; ' if counts else ''}{counts})"

    def restate(self, **fields: Any) -> Rate:
        """The same rate with other words or counts."""
        return replace(self, **fields)

    def to_table(self) -> Table:
        """Every field that applies, one a row."""
        shown = ((f.name, _cell(getattr(self, f.name))) for f in fields(self))
        return Table(columns=("field", "value"), rows=tuple(r for r in shown if r[1] not in {None, ""}), caption=self.estimand)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The interval as a forest of one row."""
        return RateTable(rates=(self,)).plot(ax)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable(Tabular):
    """Rates side by side, each with its estimand, its method, its counts and the reason it stands there."""

    rates: tuple[Rate, ...]
    caption: str = "rates"

    def __repr__(self) -> str:
        return f"RateTable({self.caption!r}, {len(self.rates)} rates, headline {self.headline!r})"

    @property
    def headline(self) -> Rate | None:
        """The rate to publish, where one is marked."""
        return next((rate for rate in self.rates if rate.role == "headline"), None)

    def to_table(self) -> Table:
        """One rate a row; ``label``, ``p_value`` and the like appear where a rate has one, the counts always."""
        first = ("label", "role", "estimand", "estimate", "lower", "upper", "level", "verdict", "p_value")
        columns = (*(k for k in first if any(getattr(r, k) is not None for r in self.rates)), *COUNTS, "method", "why", "notes")
        rows = tuple(tuple(_cell(getattr(r, k)) for k in columns) for r in self.rates)
        return Table(columns=columns, rows=rows, caption=self.caption)

    def to_json(self) -> list[dict[str, Any]]:
        """One object per rate, every count named; an unbounded limit is null."""
        first = "label", "role", "estimand", "method", "estimate", "lower", "upper", "level"
        names = *first, *COUNTS, "p_value", "verdict", "why"
        rows = ({name: getattr(rate, name) for name in names} | {"notes": list(rate.notes)} for rate in self.rates)
        return [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows]

    def _repr_html_(self) -> str:
        whole = self.to_table()
        said = [i for i in range(len(whole.columns)) if any(row[i] not in {None, ""} for row in whole.rows)]
        rows = tuple(tuple(row[i] for i in said) for row in whole.rows)
        return Table(columns=tuple(whole.columns[i] for i in said), rows=rows, caption=whole.caption)._repr_html_()

    def plot(self, ax: Axes | None = None) -> Axes:
        """A forest: one interval a row, drawn from the limits the table prints."""
        names = [" ".join(part for part in (r.label, r.estimand) if part) for r in self.rates]
        names = [f"{name}, {r.method}" if names.count(name) > 1 else name for name, r in zip(names, self.rates, strict=True)]
        middles = [math.nan if r.estimate is None else r.estimate for r in self.rates]
        levels, sizes = {r.level for r in self.rates}, {r.n for r in self.rates}
        limits, unit = ([r.lower for r in self.rates], [r.upper for r in self.rates]), "in the unit of each estimand"
        if len(sizes) == 1 and None not in sizes:
            unit += f", n = {sizes.pop():,}"
        else:
            names = [name if r.n is None else f"{name}, n = {r.n:,}" for name, r in zip(names, self.rates, strict=True)]
        return draw_forest(names, middles, *limits, ax=ax, level=max(levels), quantity="estimate", unit=unit)


def state_rate(estimand: str, method: str, limits: Any, level: float, /, *notes: str, **fields: Any) -> Rate:
    """A `Rate` from (estimate, lower, upper); an estimate of None or NaN is unknown."""
    estimate, lower, upper = limits
    known = None if estimate is None or math.isnan(estimate) else float(estimate)
    fields |= {"estimate": known, "lower": float(lower), "upper": float(upper), "notes": notes}
    return Rate(estimand=estimand, method=method, level=level, **fields)


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return "; ".join(value)
    return "unbounded" if isinstance(value, float) and math.isinf(value) else value


def _word(value: float | None) -> str:
    return "none" if value is None else str(value) if isinstance(value, int) else f"{value:.4f}"
