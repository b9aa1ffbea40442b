"""What can be said of a rate when some flagged records cannot be judged: bounds first, assumptions after."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from scipy.special import expit, logit

from litmuskit.errors import InputError
from litmuskit.rates.adjudicated import product_limits
from litmuskit.rates.clusters import measure_share
from litmuskit.rates.counts import read_counts, require_level, require_nested, require_number, require_share
from litmuskit.rates.differences import compare_rates
from litmuskit.rates.intervals import bound_proportion, estimate_proportion, wilson_limits
from litmuskit.rates.rate import Rate


def add_counts(**columns: Any) -> Any:
    """The sum of counts, or of columns of them, each checked; a single count beside columns is 0 or refused."""
    read = [read_counts(name, column) for name, column in columns.items()]
    if len({np.shape(column) for column in read if np.ndim(column) or column}) > 1:
        raise InputError("columns and single counts mixed", where=", ".join(columns), expected="one count per cluster in each")
    return sum(read)


def bound_worst_case(
    counted: Any, quarantined: Any, episodes: Any, *, escalated: Any = 0, not_assessable: Any = 0, level: float = 0.95
) -> Rate:
    """Nothing assumed about the unjudged: lower limit of c/N to upper limit of (c+q+a+u)/N (Horowitz and Manski 1995).

    Clopper-Pearson limits, Korn-Graubard's for columns. The data identify a set, [c/N, (c+q+a+u)/N], and no estimate.

    Parameters
    ----------
    counted, quarantined, episodes, escalated, not_assessable : int, or columns of them, one entry per cluster
        c, q, N, a, u.
    level : float in (0, 1)

    Examples
    --------
    >>> bound_worst_case(100, 20, 1000)
    Rate(worst case none [0.0821, 0.1418] at 95 %, bounds of Clopper-Pearson; n=1000, x=120, c=100, q=20, a=0, u=0)
    """
    parts = {"counted": counted, "quarantined": quarantined, "escalated": escalated, "not_assessable": not_assessable}
    low = measure_share(level, exact=True, counted=counted, episodes=episodes)
    high = measure_share(level, exact=True, **{" + ".join(parts): add_counts(**parts), "episodes": episodes})
    split = dict(zip("cqau", (int(np.sum(column)) for column in parts.values()), strict=True))
    note, method = "every unjudged record may be true or false", f"bounds of {high.method}"
    says = {"estimand": "worst case", "method": method, "notes": (note,), "references": ("Horowitz and Manski 1995",)}
    return high.restate(estimate=None, lower=low.lower, **says, **split)


def estimate_pattern_mixture(
    counted: Any, escalated: Any, quarantined: Any, episodes: Any, *, log_odds_shift: float = 0.0, level: float = 0.95
) -> Rate:
    """(c + q expit(logit(c/(c+a)) + shift))/N: the quarantined are true as often as the judged, or as the shift says.

    Parameters
    ----------
    counted, escalated, quarantined, episodes : int, or columns of them, one entry per cluster
        c, a (judged false), q, N. With ``q = x`` nothing was judged: no estimate, and [0, upper limit of x/N].
    log_odds_shift : float
        0 is missing at random: (x/N)(c/(c+a)).

    Examples
    --------
    >>> estimate_pattern_mixture(30, 4, 6, 200, log_odds_shift=-2.0)
    Rate(pattern mixture 0.1651 [0.1154, 0.2200] at 95 %, MOVER-log, shift -2; n=200, x=40, c=30, q=6, a=4)
    """
    shift = require_number("log_odds_shift", log_odds_shift)
    parts = {"counted": counted, "escalated": escalated, "quarantined": quarantined}
    share = measure_share(level, **{" + ".join(parts): add_counts(**parts), "episodes": episodes})
    c, a, q = (int(np.sum(column)) for column in parts.values())
    true: tuple[Any, ...] = (np.nan if q else 1.0, 0.0, 1.0)
    if c + a:
        judged = (c / (c + a), *wilson_limits(c, c + a, level))
        true = tuple(((c + a) * p + q * expit(logit(p) + shift)) / (c + a + q) for p in judged)
    p = np.nan if share.estimate is None else share.estimate
    lower, upper = (float(v) for v in product_limits((p, share.lower, share.upper), true))
    estimate = None if np.isnan(p * true[0]) else float(p * true[0])
    note, method = "the unjudged are true as often as the judged, up to the shift", f"MOVER-log, shift {shift:g}"
    says = {"estimand": "pattern mixture", "method": method, "notes": (note,), "c": c, "q": q, "a": a}
    return share.restate(estimate=estimate, lower=lower, upper=upper, **says)


def find_tipping_point(
    counted: int, quarantined: int, episodes: int, *, claim: float | Rate, level: float = 0.95
) -> int | None:
    """How many quarantined records must be true to reverse a claim: None if even all of them do not.

    Parameters
    ----------
    counted, quarantined, episodes : int
    claim : float in (0, 1), or Rate
        "The rate is below this" (one-sided Clopper-Pearson limit), or "below that arm's" (`compare_rates`).
    level : float in (0, 1)

    Examples
    --------
    >>> find_tipping_point(20, 30, 1000, claim=0.05)
    19
    """
    level, (c,), (q,) = require_level(level), require_nested(counted=counted), require_nested(quarantined=quarantined)
    _, n = require_nested(**{"counted + quarantined": c + q, "episodes": episodes})

    def falls(k: int) -> bool:
        if isinstance(claim, Rate):
            arm = estimate_proportion(c + k, n, level=level).restate(estimand=claim.estimand)
            return compare_rates(arm, claim).upper >= 0
        return bound_proportion(c + k, n, level=level).upper >= require_share("claim", claim, inside=True)

    k = bisect_left(range(q + 1), True, key=falls)
    return k if k <= q else None
