"""Episodes of one task resemble each other: the task, not the episode, is the unit that repeats."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, stdtrit

from litmuskit.rates.counts import read_column, require_clusters, require_flag, require_level, require_nested
from litmuskit.rates.intervals import Array, clopper_pearson_limits, estimate_proportion
from litmuskit.rates.rate import Rate, state_rate


class FewClustersWarning(UserWarning):
    """The spread between clusters is estimated from too few of them to hold the stated level."""


def cluster_limits(x: ArrayLike, n: ArrayLike, level: float, *, exact: bool = False) -> tuple[Array, Array, Array, Array]:
    """Estimate, limits and design effect (NaN where no cluster differs) over the last axis; every ``n`` is positive."""
    x, n = np.asarray(x, float), np.asarray(n, float)
    j, total, tail = x.shape[-1], n.sum(-1), (1 + level) / 2
    p = x.sum(-1) / total
    variance, simple = j / (j - 1) * ((x - p[..., None] * n) ** 2).sum(-1) / total**2, p * (1 - p) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(variance > 1e-9 * simple, variance / simple, np.nan)
        if exact:
            size = total / effect * (stdtrit(total - 1, tail) / stdtrit(j - 1, tail)) ** 2
            lower, upper = clopper_pearson_limits(p * size, size, level)
        else:
            half = stdtrit(j - 1, tail) * np.sqrt(variance) / (p * (1 - p))
            lower, upper = expit(logit(p) - half), expit(logit(p) + half)
    still, sparse = np.isnan(effect), clopper_pearson_limits(p * j, j, level)
    return p, np.where(still, sparse[0], lower), np.where(still, sparse[1], upper), effect


def estimate_clustered(k: ArrayLike, n: ArrayLike, *, level: float = 0.95, exact: bool = False) -> Rate:
    """One proportion over tasks run several times: CR1 variance on the logit scale with t(J-1).

    (Liang and Zeger 1986, Biometrika 73:13; ``exact`` is Korn and Graubard 1998, Survey Methodology 24:193.)
    Where no cluster differs from the others (no event at all, for one), the exact limits of J trials stand in.

    Parameters
    ----------
    k, n : sequence of int, 0 <= k <= n
        Events and trials per cluster; clusters without trials are left out.
    level : float in (0, 1)
    exact : bool
        Clopper-Pearson at the effective sample size.

    Raises
    ------
    NotIdentifiedError
        Fewer than 2 clusters. Fewer than 20, or fewer than 5 with events, give a `FewClustersWarning`.

    Examples
    --------
    >>> estimate_clustered([0, 1, 0, 3] * 10, [5, 5, 5, 5] * 10)
    Rate(proportion 0.2000 [0.1321, 0.2910] at 95 %, logit CR1 with t(J-1); n=200, x=40, clusters=40, design_effect=1.9231)
    """
    level, exact, (x, n) = require_level(level), require_flag("exact", exact), require_clusters(k=k, n=n)
    *limits, effect = (float(v) for v in cluster_limits(x, n, level, exact=exact))
    j, hit, still = len(n), int((x > 0).sum()), np.isnan(effect)
    few = [f"only {j} clusters"] * (j < 20) + [f"only {hit} cluster{'s' * (hit != 1)} with events"] * (hit < 5)
    for text in few:
        warnings.warn(f"{text}: the interval may not hold its level", FewClustersWarning, stacklevel=2)
    method = "Clopper-Pearson with n = J" if still else "Korn-Graubard" if exact else "logit CR1 with t(J-1)"
    counts = {"n": int(n.sum()), "x": int(x.sum()), "clusters": j, "design_effect": None if still else effect}
    cite = "Korn and Graubard 1998" if exact else "Liang and Zeger 1986"
    return state_rate("proportion", method, limits, level, "clusters independent", *few, references=(cite,), **counts)


def measure_share(level: float, *, exact: bool = False, **counts: Any) -> Rate:
    """The first named count in the second, each at most the next: `estimate_clustered` for columns, else a proportion."""
    if any(read_column(count).ndim for count in counts.values()):
        k, n = require_clusters(**counts)[:2]
        if n.any():
            return estimate_clustered(k, n, level=level, exact=exact)
        counts = {"k": 0, "n": 0}
    return estimate_proportion(*require_nested(**counts)[:2], level=level, exact=exact)
