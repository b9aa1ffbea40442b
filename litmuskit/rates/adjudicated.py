"""A person read a random sample: what the records read say about all of them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammaln, logsumexp

from litmuskit.rates.clusters import measure_share
from litmuskit.rates.counts import read_column, require_flag, require_level, require_nested
from litmuskit.rates.intervals import Array, Limits, beta_nodes, clopper_pearson_limits, find_quantiles
from litmuskit.rates.rate import Rate, state_rate


def product_limits(p: tuple[ArrayLike, ...], r: tuple[ArrayLike, ...]) -> Limits:
    """MOVER on the log scale for a product of two shares, each (estimate, lower, upper), elementwise.

    The upper limit never exceeds that of the first. Zero has no logarithm: there, and where an estimate is unknown, the
    product of the limits stands in (the formula's own limit at 0 covers .85 at nominal .95). Zou and Donner 2008, Stat Med
    27:1693; Donner and Zou 2012, Stat Methods Med Res 21:347.
    """
    (p0, pl, pu), (r0, rl, ru) = ([np.asarray(v, float) for v in share] for share in (p, r))
    with np.errstate(divide="ignore", invalid="ignore"):
        down, up = np.hypot(np.log(p0 / pl), np.log(r0 / rl)), np.hypot(np.log(pu / p0), np.log(ru / r0))
        both, known = p0 * r0, p0 * r0 > 0
        return np.where(known, both * np.exp(-down), pl * rl), np.where(known, np.minimum(both * np.exp(up), pu), pu * ru)


def estimate_confirmed(
    flagged: Any, episodes: Any, true: Any, adjudicated: Any, *, level: float = 0.95, exact: bool = False
) -> Rate:
    """P(flagged and truly a violation) from a random sample of the flagged: (x/N)(t/m), by `product_limits`.

    Parameters
    ----------
    flagged, episodes, true, adjudicated : int, true <= adjudicated <= flagged <= episodes
        x, N, t, m, or columns of them, one entry per cluster; with ``m = 0`` no estimate, and [0, upper limit of x/N].
    level : float in (0, 1)
    exact : bool
        Guaranteed: the product of exact limits at half the error each, instead of MOVER on the log scale.

    Examples
    --------
    >>> estimate_confirmed(120, 1000, true=37, adjudicated=40)
    Rate(confirmed 0.1110 [0.0889, 0.1320] at 95 %, MOVER-log of Wilson; n=1000, x=120, m=40, t=37)
    """
    exact, level = require_flag("exact", exact), require_level(level)
    part = (1 + level) / 2 if exact else level
    whole: dict[str, Any] = {"flagged": flagged, "episodes": episodes}
    share = measure_share(part, exact=exact, **whole)
    same = read_column(flagged).shape == read_column(adjudicated).shape
    purity = measure_share(part, exact=exact, true=true, adjudicated=adjudicated, **whole if same else {})
    t, m, x, n = require_nested(true=purity.x, adjudicated=purity.n, flagged=share.x, episodes=share.n)
    ends = [(np.nan if r.estimate is None else r.estimate, r.lower, r.upper) for r in (share, purity)]
    lower, upper = (share.lower * purity.lower, share.upper * purity.upper) if exact else product_limits(*ends)
    counts = {"n": n, "x": x, "m": m, "t": t, "clusters": share.clusters, "design_effect": share.design_effect}
    limits, method = (ends[0][0] * ends[1][0], lower, upper), f"{'product' if exact else 'MOVER-log'} of {share.method}"
    note, cite = "the records read are a random sample of the flagged", ("Zou and Donner 2008", "Donner and Zou 2012")
    return state_rate("confirmed", method, limits, level, note, references=() if exact else cite, **counts)


def double_sample_cdf(theta: ArrayLike, tp: Any, fp: Any, fn: Any, tn: Any, x: Any, n: Any, *, size: int = 48) -> Array:
    """Posterior P(rate <= theta), elementwise: flagged share, precision and missed share are independent Jeffreys Betas.

    The flagged and the unflagged change places where the unflagged spread the rate more: whichever does is integrated exactly.
    """
    tp, fp, fn, tn, x, n = (np.asarray(v, float) for v in (tp, fp, fn, tn, x, n))
    of_flagged, of_unflagged = (
        (part + 0.5) * np.sqrt((k + 0.5) * (j + 0.5) / (k + j + 2)) / (k + j + 1)
        for part, k, j in ((x, tp, fp), (n - x, fn, tn))
    )
    swap = of_unflagged > of_flagged
    x, tp, fp, fn, tn = (np.where(swap, b, a) for a, b in ((x, n - x), (tp, fn), (fp, tn), (fn, tp), (tn, fp)))
    (share, weight), (missed, _) = beta_nodes(x + 0.5, n - x + 0.5, size), beta_nodes(fn + 0.5, tn + 0.5, size)
    rest = np.asarray(theta, float)[..., None, None] - (1 - share)[..., :, None] * missed[..., None, :]
    a, b = (v[..., None, None] + 0.5 for v in (tp, fp))
    below = betainc(a, b, np.clip(rest / np.maximum(share, 1e-300)[..., :, None], 0, 1))
    return np.asarray(np.einsum("...ij,i,j->...", below, weight, weight))


def estimate_double_sampled(tp: int, fp: int, fn: int, tn: int, *, flagged: int, episodes: int, level: float = 0.95) -> Rate:
    """P(truly a violation), missed ones included, from random samples of the flagged and of the unflagged.

    The design is Tenenbein's (1970, JASA 65:1350); three independent Jeffreys posteriors, their median the estimate.

    Parameters
    ----------
    tp, fp, fn, tn : int
        True and false among the flagged records read; true (missed) and false among the unflagged records read.
    flagged, episodes : int
        x of N, the records read included. With none read there is no estimate, and [0, 1].
    level : float in (0, 1)

    Examples
    --------
    >>> estimate_double_sampled(18, 2, 3, 77, flagged=92, episodes=428)
    Rate(violations 0.2231 [0.1701, 0.2821] at 95 %, double sampling, Jeffreys; n=428, x=92, m=100, t=21)
    """
    cells = {"tp": tp, "fp": fp, "fn": fn, "tn": tn}
    tp, fp, fn, tn = (require_nested(**{name: count})[0] for name, count in cells.items())
    _, x, n = require_nested(**{"tp + fp": tp + fp, "flagged": flagged, "episodes": episodes})
    require_nested(**{"fn + tn": fn + tn, "unflagged": n - x})
    level = require_level(level)
    limits: Any = (None, 0, 1)
    if m := tp + fp + fn + tn:
        lower, middle, upper = find_quantiles(lambda theta: double_sample_cdf(theta, tp, fp, fn, tn, x, n), level)
        limits = (middle, lower, upper)
    counts = {"n": n, "x": x, "m": m, "t": tp + fn, "references": ("Tenenbein 1970",)}
    unread = {"flagged": tp + fp == 0 < x, "unflagged": fn + tn == 0 < n - x}
    notes = ["both samples random", "episodes independent"]
    notes += [f"none of the {name} was read: the prior alone speaks of them" for name, so in unread.items() if so and m]
    return state_rate("violations", "double sampling, Jeffreys", limits, level, *notes, **counts)


def count_confirmed(flagged: int, true: int, adjudicated: int, *, level: float = 0.95) -> Rate:
    """How many of *this run's* flagged records are true violations: the hypergeometric tails inverted exactly.

    Parameters
    ----------
    flagged, true, adjudicated : int, true <= adjudicated <= flagged
        x, t, m; the m read are drawn at random without replacement.
    level : float in (0, 1)

    Examples
    --------
    >>> count_confirmed(120, true=37, adjudicated=40)
    Rate(true among flagged 111.0000 [99.0000, 117.0000] at 95 %, hypergeometric; x=120, m=40, t=37)
    """
    level, (t, m, x) = require_level(level), require_nested(true=true, adjudicated=adjudicated, flagged=flagged)

    def choose(n: int, k: Any) -> Any:
        return gammaln(n + 1) - gammaln(k + 1.0) - gammaln(n - k + 1.0)

    def plausible(total: int, low: int, high: int) -> bool:
        """P(low <= seen <= high) above the tail, summed where it is not negligible (Hoeffding: e-31 beyond)."""
        middle, reach = m * total / max(x, 1), 6 * np.sqrt(m) + 1
        k = np.arange(max(low, m - x + total, int(middle - reach)), min(high, total, int(middle + reach)) + 1)
        ways = choose(total, k) + choose(x - total, m - k) - choose(x, m)
        return bool(len(k) and np.exp(logsumexp(ways)) > (1 - level) / 2)

    possible = range(t, x - m + t + 1)
    lower = t + bisect_left(possible, True, key=lambda total: plausible(total, t, m))
    upper = t + bisect_left(possible, True, key=lambda total: not plausible(total, 0, t)) - 1
    if m:  # at a low level the tails may pass by the estimate, or leave one count
        lower, upper = min(lower, x * t // m), max(upper, -(-x * t // m))
    if lower == upper and m < x:
        lower, upper = max(lower - 1, possible[0]), min(upper + 1, possible[-1])
    limits = (x * t / m if m else None, lower, upper)
    return state_rate("true among flagged", "hypergeometric", limits, level, "of this run only", x=x, m=m, t=t)


def estimate_inflation(true: int, adjudicated: int, *, level: float = 0.95) -> Rate:
    """Reported over confirmed, from a random sample of the flagged: m/t, within the inverse Clopper-Pearson limits of t/m.

    Parameters
    ----------
    true, adjudicated : int, true <= adjudicated
        t of m; with ``t = 0`` the estimate and the upper limit are infinite, with ``m = 0`` there is no estimate.
    level : float in (0, 1)

    Examples
    --------
    >>> estimate_inflation(37, 40)
    Rate(inflation 1.0811 [1.0160, 1.2561] at 95 %, 1/Clopper-Pearson; m=40, t=37)
    """
    level, (t, m) = require_level(level), require_nested(true=true, adjudicated=adjudicated)
    lower, upper = clopper_pearson_limits(t, m, level)
    limits = (m / t if t else np.inf if m else None, 1 / upper, 1 / lower if lower else np.inf)
    return state_rate("inflation", "1/Clopper-Pearson", limits, level, "missed violations left out", m=m, t=t)
