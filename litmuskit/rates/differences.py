"""Two arms: the same instances under both, or separate runs; many arms, one error rate."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtr, ndtri

from litmuskit.errors import InputError
from litmuskit.rates.counts import require_level, require_nested
from litmuskit.rates.intervals import Array, wilson_limits
from litmuskit.rates.rate import Rate, RateTable, state_rate


def compare_paired(both: int, first: int, second: int, neither: int, *, level: float = 0.95) -> Rate:
    """First minus second arm over the same instances: Newcombe's method 10 (1998, Stat Med 17:2635), exact McNemar p-value.

    Parameters
    ----------
    both, first, second, neither : int
        Instances violated under both arms, under one only, under neither.
    level : float in (0, 1)

    Examples
    --------
    >>> compare_paired(20, 12, 2, 16)
    Rate(paired difference 0.2000 [0.0562, 0.3292] at 95 %, Newcombe 10; n=50)
    """
    cells = {"both": both, "first": first, "second": second, "neither": neither}
    a, b, c, d = (require_nested(**{name: count})[0] for name, count in cells.items())
    (n,), level = require_nested(**{"both + first + second + neither": a + b + c + d}), require_level(level)
    (l1, u1), (l2, u2) = wilson_limits(a + b, n, level), wilson_limits(a + c, n, level)
    p1, p2 = (a + b) / max(n, 1), (a + c) / max(n, 1)
    margin, excess = float(a + b) * (c + d) * (a + c) * (b + d), a * d - b * c
    phi = (max(excess - n / 2, 0) if excess > 0 else excess) / np.sqrt(margin) if margin else 0.0
    down = np.sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2)
    up = np.sqrt((u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2)
    limits, cite = ((b - c) / n if n else None, p1 - p2 - down, p1 - p2 + up), ("Newcombe 1998", "McNemar 1947")
    says = {"n": n, "p_value": min(1.0, 2 * float(bdtr(min(b, c), b + c, 0.5))), "references": cite}
    return state_rate("paired difference", "Newcombe 10", limits, level, "p: exact McNemar", **says)


def compare_rates(first: Rate, second: Rate) -> Rate:
    """First minus second of two separately estimated rates of one estimand and level: MOVER-D, from each arm's own limits.

    Donner and Zou 2012, Stat Methods Med Res 21:347; with two Wilson intervals it is Newcombe 1998, Stat Med 17:873. An arm
    known only by bounds gives the widest difference and no p-value. The normal p-value takes its error from the limit facing 0.

    Examples
    --------
    >>> from litmuskit.rates import estimate_proportion
    >>> compare_rates(estimate_proportion(56, 70), estimate_proportion(48, 80))
    Rate(difference in proportion 0.2000 [0.0524, 0.3339] at 95 %, MOVER-D)
    """
    for name, arm in {"first": first, "second": second}.items():
        if not isinstance(arm, Rate):
            raise InputError("not an estimated rate", where=name, expected="a Rate", found=arm)
    for name in ("estimand", "level"):
        if (ours := getattr(first, name)) != (theirs := getattr(second, name)):
            raise InputError("the arms do not compare", where=name, expected=ours, found=theirs)
    estimand, level, note = f"difference in {first.estimand}", first.level, f"{first.method} against {second.method}"
    if first.estimate is None or second.estimate is None:
        limits = (None, first.lower - second.upper, first.upper - second.lower)
        return state_rate(estimand, "limits of both arms", limits, level, note)
    gap = first.estimate - second.estimate
    down = np.hypot(first.estimate - first.lower, second.upper - second.estimate)
    up = np.hypot(first.upper - first.estimate, second.estimate - second.lower)
    p_value = float(2 * ndtr(-abs(gap) / (down if gap > 0 else up) * ndtri((1 + level) / 2)))
    cite = ("Donner and Zou 2012",)
    return state_rate(estimand, "MOVER-D", (gap, gap - down, gap + up), level, note, references=cite, p_value=p_value)


def adjust_holm(p_values: ArrayLike) -> Array:
    """Holm's step-down p-values, in the order given (Holm 1979, Scand J Stat 6:65)."""
    p = np.asarray(p_values, float)
    order, adjusted = np.argsort(p, kind="stable"), np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def compare_groups(rates: Mapping[str, Rate]) -> RateTable:
    """Every pair of arms, first minus second, by `compare_rates`; p-values and verdict after Holm, intervals one by one.

    Examples
    --------
    >>> from litmuskit.rates import estimate_proportion
    >>> table = compare_groups({"a": estimate_proportion(300, 1000), "b": estimate_proportion(352, 1000)})
    >>> table.rates[0].verdict, round(table.rates[0].p_value, 3)
    ('lower', 0.013)
    """
    if not isinstance(rates, Mapping):
        raise InputError("not named rates", where="rates", expected="a Rate for each name", found=rates)
    pairs = [compare_rates(rates[a], rates[b]).restate(label=f"{a} - {b}") for a, b in combinations(rates, 2)]
    known = [i for i, rate in enumerate(pairs) if rate.p_value is not None]
    adjusted = dict(zip(known, adjust_holm([pairs[i].p_value or 0.0 for i in known]), strict=True))
    for i, rate in enumerate(pairs):
        shown = adjusted.get(i, 1.0) < 1 - rate.level
        verdict = ("higher" if (rate.estimate or 0) > 0 else "lower") if shown else "not shown to differ"
        p = float(adjusted[i]) if i in adjusted else None
        pairs[i] = rate.restate(p_value=p, verdict=verdict, notes=(*rate.notes, f"Holm over {len(known)}"))
    return RateTable(rates=tuple(pairs), caption="differences between arms")
