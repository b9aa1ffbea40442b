"""Limits of one binomial proportion: kernels over arrays, and the two ways to report one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from litmuskit.rates.counts import require_choice, require_flag, require_level, require_nested
from litmuskit.rates.rate import Rate, state_rate

Array: TypeAlias = NDArray[np.float64]
Limits: TypeAlias = tuple[Array, Array]


def wilson_limits(k: ArrayLike, n: ArrayLike, level: float) -> Limits:
    """Score limits, elementwise; [0, 1] where ``n`` is 0 (Wilson 1927)."""
    z2 = ndtri((1 + level) / 2) ** 2
    k, n = np.asarray(k, float), np.asarray(n, float)
    centre, half = (k + z2 / 2) / (n + z2), np.sqrt(z2 * (k * (n - k) / np.maximum(n, 1e-300) + z2 / 4)) / (n + z2)
    return np.where(k <= 0, 0.0, centre - half), np.where(k >= n, 1.0, centre + half)


def clopper_pearson_limits(k: ArrayLike, n: ArrayLike, level: float) -> Limits:
    """Exact limits, elementwise; ``k`` and ``n`` may be real, as effective counts are (Clopper and Pearson 1934)."""
    k, n, tail = np.asarray(k, float), np.asarray(n, float), (1 - level) / 2
    lower = np.where(k > 0, betaincinv(k, n - k + 1, tail), 0.0)
    return lower, np.where(k < n, betaincinv(k + 1, n - k, 1 - tail), 1.0)


def one_sided_limits(k: int, n: int, level: float) -> tuple[float, float]:
    """Exact "at least" and "at most", each at ``level``; both hold k/n, which below level 1/2 they would pass by."""
    lower, upper = (float(v) for v in clopper_pearson_limits(k, n, 2 * level - 1))
    return (min(lower, k / n), max(upper, k / n)) if n else (0.0, 1.0)


def jeffreys_limits(k: ArrayLike, n: ArrayLike, level: float) -> Limits:
    """Beta(1/2, 1/2) posterior quantiles, elementwise; 0 at no event and 1 at all (Brown, Cai and DasGupta 2001)."""
    k, n, tail = np.asarray(k, float), np.asarray(n, float), (1 - level) / 2
    lower, upper = betaincinv(k + 0.5, n - k + 0.5, tail), betaincinv(k + 0.5, n - k + 0.5, 1 - tail)
    return np.where(k <= 0, 0.0, lower), np.where(k >= n, 1.0, upper)


def beta_nodes(a: ArrayLike, b: ArrayLike, size: int) -> Limits:
    """Nodes of Beta(a, b) on a new last axis, and their weights: Gauss-Legendre in the arc sine of the probability."""
    points, weights = np.polynomial.legendre.leggauss(size)
    angle = np.pi * (np.asarray(points, np.float64) + 1) / 4
    nodes = betaincinv(np.asarray(a, float)[..., None], np.asarray(b, float)[..., None], np.sin(angle) ** 2)
    return np.asarray(nodes, np.float64), np.asarray(weights * np.sin(2 * angle) * np.pi / 4, np.float64)


def find_quantiles(rising: Callable[[Array], Array], level: float) -> Array:
    """Lower, middle and upper quantile of a distribution function on [0, 1], by bisection."""
    targets = np.array([(1 - level) / 2, 0.5, (1 + level) / 2])
    low, high = np.zeros(3), np.ones(3)
    for _ in range(44):
        middle = (low + high) / 2
        below = rising(middle) < targets
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def estimate_proportion(k: int, n: int, *, level: float = 0.95, exact: bool = False) -> Rate:
    """One proportion of independent episodes: Wilson's limits (1927, JASA 22:209).

    Parameters
    ----------
    k, n : int, 0 <= k <= n
        Events among trials; with ``n = 0`` nothing is known: no estimate, [0, 1].
    level : float in (0, 1)
    exact : bool
        Clopper and Pearson's limits instead (1934, Biometrika 26:404): they hold the level at every rate.

    Examples
    --------
    >>> estimate_proportion(81, 263)
    Rate(proportion 0.3080 [0.2553, 0.3662] at 95 %, Wilson; n=263, x=81)
    """
    level, exact, (k, n) = require_level(level), require_flag("exact", exact), require_nested(k=k, n=n)
    limits = (clopper_pearson_limits if exact else wilson_limits)(k, n, level)
    note = "holds its level at every rate" if exact else "covers less than its level at some rates (.91 at n = 50)"
    method, cite = ("Clopper-Pearson", "Clopper and Pearson 1934") if exact else ("Wilson", "Wilson 1927")
    return state_rate("proportion", method, (k / n if n else None, *limits), level, note, references=(cite,), n=n, x=k)


def bound_proportion(k: int, n: int, *, side: str = "upper", level: float = 0.95) -> Rate:
    """An "at most" (``side="upper"``) or "at least" (``"lower"``) claim: the one-sided Clopper-Pearson limit.

    Parameters
    ----------
    k, n : int, 0 <= k <= n
    side : "upper" or "lower"
    level : float in (0, 1)
        Of the one-sided claim.

    Examples
    --------
    >>> bound_proportion(0, 50)
    Rate(proportion 0.0000 [0.0000, 0.0582] at 95 %, one-sided Clopper-Pearson; n=50, x=0)
    """
    level, (k, n) = require_level(level), require_nested(k=k, n=n)
    side, (lower, upper) = require_choice("side", side, ("upper", "lower"), "unknown side"), one_sided_limits(k, n, level)
    limits, cite = (k / n if n else None, *((0, upper) if side == "upper" else (lower, 1))), ("Clopper and Pearson 1934",)
    return state_rate("proportion", "one-sided Clopper-Pearson", limits, level, references=cite, n=n, x=k)
