"""How often each interval covers the truth: exact enumeration where the outcomes can be listed, else seeded simulation.

``python benchmarks/coverage.py`` prints every method's worst cells over the whole grid, naive methods beside the defaults, with
the Monte-Carlo error of the simulated ones, and exits 1 if a default falls below its floor. The tests run a subset.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from litmuskit.display import Table
from litmuskit.rates.adjudicated import double_sample_cdf, product_limits
from litmuskit.rates.clusters import cluster_limits
from litmuskit.rates.controls import lang_reiczigel_limits
from litmuskit.rates.intervals import clopper_pearson_limits, wilson_limits

LEVEL, Z = 0.95, 1.959963984540054
RATES, EPISODES, SHARES, READ, CLUSTERS = (
    (0.02, 0.05, 0.1, 0.3),
    (50, 200, 1000),
    (0.06, 0.09, 0.25, 0.5),
    (0.3, 1.0),
    (20, 50, 200),
)
FLOORS = {"MOVER-log": 0.92, "double sampling": 0.92, "Lang-Reiczigel": 0.92, "bounds": 0.95, "logit CR1, J >= 50": 0.93}
Array = NDArray[np.float64]


def binomial(k: Array, n: Array | float, p: float) -> Array:
    return np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k, p) + xlog1py(n - k, -p))


def within(limits: tuple[Array, Array], truth: float) -> Array:
    return (limits[0] <= truth) & (truth <= limits[1])


def cover_proportion(n: int, rate: float) -> dict[str, float]:
    """Exact: one proportion, nothing wrong with the flags."""
    k = np.arange(n + 1.0)
    weight = binomial(k, float(n), rate)
    kernels: dict[str, Callable[..., tuple[Array, Array]]] = {
        "Wilson": wilson_limits,
        "Clopper-Pearson": clopper_pearson_limits,
    }
    return {name: float(weight @ within(limits(k, n, LEVEL), rate)) for name, limits in kernels.items()}


def cover_adjudicated(n: int, rate: float, share: float, read: float) -> dict[str, float]:
    """Exact: flagged with probability rate/(1-share), true with 1-share, ``read`` of the flagged adjudicated."""
    xs = np.arange(n + 1.0)
    weight = binomial(xs, float(n), rate / (1 - share))
    xs = xs[weight > 1e-11]
    m = np.ceil(read * xs)
    pairs = np.array([(x, n_read, t) for x, n_read in zip(xs, m, strict=True) for t in np.arange(n_read + 1)])
    x, m, t = pairs.T
    weight = binomial(x, float(n), rate / (1 - share)) * binomial(t, m, 1 - share)
    kept = weight > 1e-13
    x, m, t, weight = x[kept], m[kept], t[kept], weight[kept]
    ppv = np.divide(t, m, out=np.full_like(t, np.nan), where=m > 0)
    half = (1 + LEVEL) / 2
    exact = [clopper_pearson_limits(x, n, half), clopper_pearson_limits(t, m, half)]
    intervals = {
        "MOVER-log": product_limits((x / n, *wilson_limits(x, n, LEVEL)), (ppv, *wilson_limits(t, m, LEVEL))),
        "exact product": (exact[0][0] * exact[1][0], exact[0][1] * exact[1][1]),
        "naive: reported + Wilson": wilson_limits(x, n, LEVEL),
        "naive: subtract + Wilson": wilson_limits(x * np.nan_to_num(ppv, nan=1.0), n, LEVEL),
    }
    return {name: float(weight @ within(limits, rate) / weight.sum()) for name, limits in intervals.items()}


def cover_doubled(
    n: int, rate: float, share: float, read: float, replicates: int, rng: np.random.Generator
) -> dict[str, float]:
    """Simulated: a tenth of the violations go unflagged, the same fraction of flagged and unflagged is read."""
    flagged = 0.9 * rate / (1 - share)
    x = rng.binomial(n, flagged, replicates).astype(float)
    m, m0 = np.ceil(read * x), np.ceil(read * (n - x))
    tp, fn = rng.binomial(m.astype(int), 1 - share), rng.binomial(m0.astype(int), 0.1 * rate / (1 - flagged))
    below = np.concatenate([
        double_sample_cdf(np.full(len(rows), rate), tp[rows], (m - tp)[rows], fn[rows], (m0 - fn)[rows], x[rows], n, size=16)
        for rows in np.array_split(np.arange(replicates), max(replicates // 1000, 1))
    ])  # fmt: skip
    covered = (below >= (1 - LEVEL) / 2) & (below <= (1 + LEVEL) / 2)
    return {"double sampling": covered.mean(), "naive: reported + Wilson": within(wilson_limits(x, n, LEVEL), rate).mean()}


def cover_controls(n: int, rate: float, share: float, replicates: int, rng: np.random.Generator) -> dict[str, float]:
    """Simulated: Se .95 from 100 violating controls, Sp such that ``share`` of the flags are false, from 300 harmless ones."""
    se, b, d = 0.95, 100, 300
    reported = rate * se / (1 - share)
    x, a = rng.binomial(n, reported, replicates), rng.binomial(b, se, replicates)
    c = rng.binomial(d, 1 - share * reported / (1 - rate), replicates)
    youden, p = a / b + c / d - 1, x / n
    point = (p + c / d - 1) / youden
    spread = p * (1 - p) / n + point**2 * (a / b) * (1 - a / b) / b + (1 - point) ** 2 * (c / d) * (1 - c / d) / d
    half = Z * np.sqrt(spread) / youden
    known = [(v + c / d - 1) / youden for v in wilson_limits(x, n, LEVEL)]
    intervals = {
        "Lang-Reiczigel": lang_reiczigel_limits(x, n, a, b, c, d, LEVEL),
        "naive: delta Rogan-Gladen": (point - half, point + half),
        "naive: Se, Sp taken as known": (known[0], known[1]),
        "naive: reported + Wilson": wilson_limits(x, n, LEVEL),
    }
    return {name: within(limits, rate).mean() for name, limits in intervals.items()}


def cover_bounds(n: int, rate: float, share: float, replicates: int, rng: np.random.Generator) -> dict[str, float]:
    """Simulated: every artifact and a tenth of the true violations are quarantined."""
    true = rng.binomial(n, rate, replicates)
    false = rng.binomial(n - true, share / (1 - share) * rate / (1 - rate))
    c = rng.binomial(true, 0.9)
    lower, upper = clopper_pearson_limits(c, n, LEVEL)[0], clopper_pearson_limits(true + false, n, LEVEL)[1]
    naive = within(wilson_limits(c, n, LEVEL), rate).mean()
    return {"bounds": within((lower, upper), rate).mean(), "naive: counted + Wilson": naive}


def cover_clusters(j: int, rate: float, replicates: int, rng: np.random.Generator) -> dict[str, float]:
    """Simulated: J tasks of 5 beta-binomial runs, intraclass correlation .3."""
    spread = (1 - 0.3) / 0.3
    x = rng.binomial(5, rng.beta(rate * spread, (1 - rate) * spread, (replicates, j))).astype(float)
    _, *smooth, _ = cluster_limits(x, np.full_like(x, 5), LEVEL)
    naive = within(wilson_limits(x.sum(-1), 5 * j, LEVEL), rate).mean()
    name = "logit CR1, J >= 50" if j >= 50 else "logit CR1, J = 20"
    return {name: within((smooth[0], smooth[1]), rate).mean(), "naive: clusters ignored + Wilson": naive}


def run_grid(replicates: int, seed: int = 20261113) -> Iterator[tuple[str, str, dict[str, float], int]]:
    """(setting, cell, coverage by method, replicates: 0 where exact)."""
    rng = np.random.default_rng(seed)
    for n, rate in product(EPISODES, RATES):
        yield "one proportion", f"N={n} rate={rate}", cover_proportion(n, rate), 0
        for share in SHARES:
            cell = f"N={n} rate={rate} artifacts={share}"
            for read in READ:
                yield "flagged read", f"{cell} read={read}", cover_adjudicated(n, rate, share, read), 0
                yield "both read", f"{cell} read={read}", cover_doubled(n, rate, share, read, replicates, rng), replicates
            yield "controls", cell, cover_controls(n, rate, share, 10 * replicates, rng), 10 * replicates
            yield "quarantine", cell, cover_bounds(n, rate, share, 10 * replicates, rng), 10 * replicates
    for j, rate in product(CLUSTERS, RATES):
        yield "clusters", f"J={j} rate={rate}", cover_clusters(j, rate, replicates, rng), replicates


def summarise(cells: Iterator[tuple[str, str, dict[str, float], int]]) -> Table:
    """The worst and the mean coverage of every method, where the worst is, and its Monte-Carlo standard error."""
    found: dict[tuple[str, str], list[tuple[float, str, int]]] = {}
    for setting, cell, covered, replicates in cells:
        for method, value in covered.items():
            found.setdefault((setting, method), []).append((float(value), cell, replicates))
    rows = []
    for (setting, method), values in found.items():
        worst, cell, replicates = min(values)
        error = (worst * (1 - worst) / replicates) ** 0.5 if replicates else 0.0
        mean = sum(value for value, _, _ in values) / len(values)
        rows.append((setting, method, worst, error, mean, FLOORS.get(method), len(values), cell))
    columns = ("setting", "method", "lowest coverage", "MC error", "mean coverage", "floor", "cells", "lowest at")
    return Table(columns=columns, rows=tuple(rows), caption=f"coverage at nominal {LEVEL}; MC error 0 means exact enumeration")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=4000)
    start = time.perf_counter()
    table = summarise(run_grid(parser.parse_args().replicates))
    print(table.to_text(limit=80))
    failed = [row[1] for row in table.rows if row[5] is not None and row[2] < row[5]]
    print(f"{time.perf_counter() - start:.1f} s; below its floor: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
