"""The 2 % rule and what it can show; how many records to read."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from scipy.special import bdtr, betainc

from litmuskit.errors import InputError
from litmuskit.rates.adjudicated import product_limits
from litmuskit.rates.counts import require_level, require_nested, require_share
from litmuskit.rates.intervals import clopper_pearson_limits, wilson_limits
from litmuskit.rates.rate import Rate, state_rate


def judge_quarantine(quarantined: int, flagged: int, *, threshold: float = 0.02, level: float = 0.95) -> Rate:
    """Does the quarantined share exceed a threshold? One-sided Clopper-Pearson limits, each at ``level``.

    The verdict is ``exceeds`` (lower limit above), ``within`` (upper limit below) or ``inconclusive``; the p-value is of
    "no more than the threshold". A note says how large x must be to certify.

    Parameters
    ----------
    quarantined, flagged : int, quarantined <= flagged
    threshold, level : float in (0, 1)

    Examples
    --------
    >>> judge_quarantine(0, 149).verdict, judge_quarantine(1, 20).verdict
    ('within', 'inconclusive')
    """
    level, (q, x) = require_level(level), require_nested(quarantined=quarantined, flagged=flagged)
    threshold = require_share("threshold", threshold, inside=True)
    lower, upper = clopper_pearson_limits(q, x, 2 * level - 1)
    verdict = "exceeds" if lower > threshold else "within" if upper < threshold else "inconclusive"
    needed = size_certificate(threshold, quarantined=q, level=level)
    notes = ("records treated as independent", f"{q} of {needed} would certify a share below {threshold:g}")
    says = {"x": x, "q": q, "verdict": verdict, "p_value": float(betainc(q, x - q + 1, threshold)) if q else 1.0}
    return state_rate(
        "quarantined share", "one-sided Clopper-Pearson", (q / x if x else None, lower, upper), level, *notes, **says
    )


def find_fire_probability(flagged: int, true_rate: float, *, threshold: float = 0.02) -> float:
    """How often the bare rule q/x > threshold fires on a harness whose true share is ``true_rate``.

    Examples
    --------
    >>> round(find_fire_probability(20, 0.01), 4)
    0.1821
    """
    (x,), rate = require_nested(flagged=flagged), require_share("true_rate", true_rate)
    most = np.floor(x * require_share("threshold", threshold, inside=True) + 1e-9)
    return float(1 - bdtr(most, x, rate)) if most < x else 0.0


def size_certificate(threshold: float = 0.02, *, quarantined: int = 0, level: float = 0.95) -> int:
    """The smallest x of which ``quarantined`` still certifies a share below the threshold.

    Examples
    --------
    >>> size_certificate(0.02), size_certificate(0.02, quarantined=1)
    (149, 236)
    """
    (q,), threshold = require_nested(quarantined=quarantined), require_share("threshold", threshold, inside=True)
    one_sided = 2 * require_level(level) - 1
    sizes = range(q + 1, 10**12)
    return sizes[bisect_left(sizes, True, key=lambda x: bool(clopper_pearson_limits(q, x, one_sided)[1] < threshold))]


def plan_sample(flagged: int, episodes: int, *, precision: float, half_width: float, level: float = 0.95) -> Rate:
    """How many flagged records to read: the smallest m whose expected interval for (x/N)(t/m) is narrow enough.

    Parameters
    ----------
    flagged, episodes : int, 1 <= flagged <= episodes
    precision : float in (0, 1]
        The share of the flagged expected to be true.
    half_width : float in (0, 1)
    level : float in (0, 1)

    Returns
    -------
    Rate
        ``m`` to read, ``t`` expected, the interval to expect; the verdict is ``enough`` or, if even all do not, ``not enough``.

    Examples
    --------
    >>> plan_sample(120, 1000, precision=0.9, half_width=0.025)
    Rate(confirmed 0.1080 [0.0797, 0.1296] at 95 %, MOVER-log of Wilson, expected; n=1000, x=120, m=20, t=18)
    """
    level, (x, n) = require_level(level), require_nested(flagged=flagged, episodes=episodes)
    p, wanted = require_share("precision", precision), require_share("half_width", half_width, inside=True)
    if not (x and p):
        raise InputError("nothing to plan for", where="flagged, precision", expected="above 0", found=(x, p))
    share, sizes = (x / n, *wilson_limits(x, n, level)), np.arange(1, x + 1)
    lower, upper = product_limits(share, (np.full(x, p), *wilson_limits(p * sizes, sizes, level)))
    enough = np.flatnonzero(upper - lower <= 2 * wanted)
    i, verdict = (int(enough[0]), "enough") if len(enough) else (x - 1, "not enough")
    counts = {"n": n, "x": x, "m": i + 1, "t": round(p * (i + 1)), "verdict": verdict}
    return state_rate("confirmed", "MOVER-log of Wilson, expected", (x / n * p, lower[i], upper[i]), level, **counts)
