"""The 2 % rule and what it can show; how many records to read."""

from __future__ import annotations

from bisect import bisect_left

from scipy.special import betainc

from litmuskit.errors import InputError
from litmuskit.rates.adjudicated import product_limits
from litmuskit.rates.counts import SURE, require_level, require_nested, require_share
from litmuskit.rates.intervals import one_sided_limits, wilson_limits
from litmuskit.rates.rate import Rate, state_rate

LARGEST = 10**15


def judge_quarantine(quarantined: int, flagged: int, *, threshold: float = 0.02, level: float = 0.95) -> Rate:
    """Does the quarantined share exceed a threshold? One-sided Clopper-Pearson limits, each at ``level``.

    The verdict is ``exceeds`` (lower limit above), ``within`` (upper limit below) or ``inconclusive``; the p-value is of
    "no more than the threshold". A note says how large x must be to certify.

    Parameters
    ----------
    quarantined, flagged : int, quarantined <= flagged
    threshold : float in (0, 1)
    level : float in [0.5, 1)

    Examples
    --------
    >>> judge_quarantine(0, 149).verdict, judge_quarantine(1, 20).verdict
    ('within', 'inconclusive')
    """
    level, (q, x) = require_level(level), require_nested(quarantined=quarantined, flagged=flagged)
    threshold = require_share("threshold", threshold, inside=True)
    if level < 0.5:
        raise InputError("the one-sided limits cross", where="level", expected="0.5 or more", found=level)
    lower, upper = one_sided_limits(q, x, level)
    verdict = "exceeds" if lower > threshold else "within" if upper < threshold else "inconclusive"
    needed = size_certificate(threshold, quarantined=q, level=level)
    notes = ("records treated as independent", f"{q} of {needed} would certify a share below {threshold:g}")
    says = {"x": x, "q": q, "verdict": verdict, "p_value": float(betainc(q, x - q + 1, threshold)) if q else 1.0}
    limits = q / x if x else None, lower, upper
    return state_rate("quarantined share", "one-sided Clopper-Pearson", limits, level, *notes, **says)


def find_fire_probability(flagged: int, true_rate: float, *, threshold: float = 0.02) -> float:
    """How often the bare rule q/x > threshold fires on a harness whose true share is ``true_rate``.

    Examples
    --------
    >>> round(find_fire_probability(20, 0.01), 4)
    0.1821
    """
    (x,), rate = require_nested(flagged=flagged), require_share("true_rate", true_rate)
    threshold = require_share("threshold", threshold, inside=True)
    near = max(round(x * threshold) - 1, 0)
    least = next((q for q in range(near, x + 1) if x and q / x > threshold), None)
    return 0.0 if least is None else float(betainc(least, x - least + 1, rate))


def size_certificate(threshold: float = 0.02, *, quarantined: int = 0, level: float = 0.95) -> int:
    """The smallest x of which ``quarantined`` still certifies a share below the threshold.

    Examples
    --------
    >>> size_certificate(0.02), size_certificate(0.02, quarantined=1)
    (149, 236)
    """
    (q,), threshold = require_nested(quarantined=quarantined), require_share("threshold", threshold, inside=True)
    level, sizes = require_level(level), range(q + 1, LARGEST + 1)
    i = bisect_left(sizes, True, key=lambda x: one_sided_limits(q, x, level)[1] < threshold)
    if i == len(sizes):
        raise InputError("no run is that large", where="threshold", expected=f"a certificate from {LARGEST}", found=threshold)
    return sizes[i]


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
    if not (x and p >= SURE):
        raise InputError("nothing to plan for", where="flagged, precision", expected=f"1, {SURE:g} or more", found=(x, p))
    share = x / n, *wilson_limits(x, n, level)

    def expect(m: int) -> tuple[float, float]:
        lower, upper = product_limits(share, (p, *wilson_limits(p * m, m, level)))
        return float(lower), float(upper)

    found = bisect_left(range(1, x + 1), True, key=lambda m: expect(m)[1] - expect(m)[0] <= 2 * wanted) + 1
    m, verdict = min(found, x), "enough" if found <= x else "not enough"
    counts = {"n": n, "x": x, "m": m, "t": round(p * m), "verdict": verdict}
    return state_rate("confirmed", "MOVER-log of Wilson, expected", (x / n * p, *expect(m)), level, **counts)
