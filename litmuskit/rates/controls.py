"""The flags are a diagnostic test whose errors are known, or were measured on control runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from scipy.special import betainc, ndtri

from litmuskit.errors import InputError, NotIdentifiedError
from litmuskit.rates.counts import require_choice, require_flag, require_level, require_nested, require_number, require_share
from litmuskit.rates.intervals import Array, Limits, beta_nodes, clopper_pearson_limits, find_quantiles, wilson_limits
from litmuskit.rates.rate import Rate, RateTable, state_rate

Pair: TypeAlias = tuple[int, int]

TRANSPORT = {
    "same-agent": "controls are runs of the same agent: its errors carry over",
    "stub": "controls are scripted stubs, which repair differently: a sensitivity analysis",
}


def require_informative(se: float, sp: float) -> None:
    """Se + Sp > 1; otherwise a flag says nothing, or the reverse."""
    if se + sp <= 1:
        raise NotIdentifiedError("flags say nothing", where="Se + Sp", expected="more than 1", found=se + sp, carrying=(se, sp))


def require_controls(caught: Pair, cleared: Pair, transport: str) -> tuple[int, ...]:
    """Counts of the controls; raises where they say nothing, or nobody says why they should hold for the run."""
    require_choice("transport", transport, TRANSPORT, "no transport assumption")
    counts: tuple[int, ...] = ()
    pairs: dict[str, Any] = {"caught": caught, "cleared": cleared}
    for name, pair in pairs.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError("not a pair", where=name, expected="(labelled rightly, all of them)", found=pair)
        counts += require_nested(**{name: pair[0], f"controls of {name}": pair[1]})
    if 0 in counts[1::2]:
        raise NotIdentifiedError("no controls", where="caught, cleared", expected="at least one run of each", found=counts)
    require_informative(counts[0] / counts[1], counts[2] / counts[3])
    return counts


def place_limits(estimate: Any, lower: Any, upper: Any) -> tuple[list[float], str]:
    """Clip to [0, 1] *after* the interval stands, and say the raw limits; one wholly outside is a finding, not a rate."""
    raw = float(lower), float(upper)
    if raw[1] <= 0 or raw[0] >= 1:
        remedy = "check the controls, or use estimate_from_controls_bayes"
        raise NotIdentifiedError("controls inconsistent with run", found=raw, remedy=remedy, carrying=raw)
    return [min(max(float(v), 0.0), 1.0) for v in (estimate, *raw)], f"raw limits {raw[0]:.4f}, {raw[1]:.4f}"


def estimate_known_accuracy(
    flagged: int, episodes: int, *, sensitivity: float, specificity: float, level: float = 0.95, exact: bool = False
) -> Rate:
    """Errors known exactly: (x/N + Sp - 1)/(Se + Sp - 1), its limits alike (Rogan and Gladen 1978, Am J Epidemiol 107:71).

    Parameters
    ----------
    flagged, episodes : int, flagged <= episodes
    sensitivity, specificity : float in [0, 1], sum above 1
    level : float in (0, 1)
    exact : bool
        Transform Clopper-Pearson instead of Wilson limits.

    Raises
    ------
    NotIdentifiedError
        Se + Sp <= 1, or a raw interval wholly outside [0, 1].

    Examples
    --------
    >>> estimate_known_accuracy(40, 500, sensitivity=0.95, specificity=0.97)
    Rate(violations 0.0543 [0.0318, 0.0838] at 95 %, Rogan-Gladen of Wilson; n=500, x=40)
    """
    level, (x, n) = require_level(level), require_nested(flagged=flagged, episodes=episodes)
    se, sp = require_share("sensitivity", sensitivity), require_share("specificity", specificity)
    exact = require_flag("exact", exact)
    require_informative(se, sp)
    if n == 0:
        return state_rate("violations", "Rogan-Gladen", (None, 0, 1), level, "no episodes", n=0, x=0)
    ends = (clopper_pearson_limits if exact else wilson_limits)(x, n, level)
    limits, raw = place_limits(*((v + sp - 1) / (se + sp - 1) for v in (np.float64(x / n), *ends)))
    method, cite = f"Rogan-Gladen of {'Clopper-Pearson' if exact else 'Wilson'}", ("Rogan and Gladen 1978",)
    return state_rate("violations", method, limits, level, f"Se {se:g}, Sp {sp:g} known", raw, references=cite, n=n, x=x)


def tabulate_accuracy(
    flagged: int, episodes: int, *, sensitivity: Iterable[float], specificity: Iterable[float], level: float = 0.95
) -> RateTable:
    """`estimate_known_accuracy` over a grid of Se and Sp; where the rate is not identified the row says why and claims nothing.

    Examples
    --------
    >>> tabulate_accuracy(40, 500, sensitivity=[0.9], specificity=[0.97, 0.9]).rates[0]
    Rate(violations 0.0575 [0.0337, 0.0886] at 95 %, Rogan-Gladen of Wilson; n=500, x=40)
    """
    rows, grid, (x, n) = [], [], require_nested(flagged=flagged, episodes=episodes)
    for name, values in {"sensitivity": sensitivity, "specificity": specificity}.items():
        try:
            grid.append([require_share(name, value) for value in values])
        except TypeError:
            raise InputError("not a list of numbers", where=name, expected="numbers in [0, 1]", found=values) from None
    for se, sp in product(*grid):
        try:
            rate = estimate_known_accuracy(x, n, sensitivity=se, specificity=sp, level=level)
        except NotIdentifiedError as error:
            rate = state_rate("violations", "not identified", (None, 0, 1), level, str(error), n=n, x=x)
        rows.append(rate.restate(label=f"Se {se:g}, Sp {sp:g}"))
    return RateTable(rates=tuple(rows), caption="corrected rate by sensitivity and specificity")


def lang_reiczigel_limits(x: Any, n: Any, a: Any, b: Any, c: Any, d: Any, level: float) -> Limits:
    """Raw limits, elementwise, of x/n corrected by a of b caught and c of d cleared.

    Lang and Reiczigel 2014, eq. 16-17, with (1-P)^2 in eq. 4, where the paper prints (1+P)^2.
    """
    z = ndtri((1 + level) / 2)
    x, n, a, b, c, d = (np.asarray(v, float) for v in (x, n, a, b, c, d))
    ap, se, sp = (x + z * z / 2) / (n + z * z), (a + 1) / (b + 2), (c + 1) / (d + 2)
    youden, of_se, of_sp = se + sp - 1, se * (1 - se) / (b + 2), sp * (1 - sp) / (d + 2)
    p = (ap + sp - 1) / youden
    middle = p + 2 * z * z * (p * of_se - (1 - p) * of_sp)
    half = z * np.sqrt(ap * (1 - ap) / (n + z * z) + p**2 * of_se + (1 - p) ** 2 * of_sp) / youden
    return middle - half, middle + half


def estimate_from_controls(
    flagged: float, episodes: int, *, caught: Pair, cleared: Pair, transport: str, level: float = 0.95
) -> Rate:
    """P(truly a violation), flags corrected by control runs (Lang and Reiczigel 2014, Prev Vet Med 113:13, eq. 16-17).

    Parameters
    ----------
    flagged : float, 0 <= flagged <= episodes
        A real number here alone, as published prevalences are.
    episodes : int, above 0
    caught, cleared : (int, int)
        Flagged among violating controls; not flagged among harmless ones.
    transport : "same-agent" or "stub"
        Why the controls' errors should be the run's; said in the result.
    level : float in (0, 1)

    Raises
    ------
    NotIdentifiedError
        No episodes, Se + Sp <= 1, or a raw interval wholly outside [0, 1]: ``carrying`` has the raw limits.

    Examples
    --------
    >>> estimate_from_controls(90, 1000, caught=(285, 300), cleared=(980, 1000), transport="same-agent")
    Rate(violations 0.0753 [0.0549, 0.0975] at 95 %, Lang-Reiczigel; n=1000, x=90)
    """
    level, (n,), x = require_level(level), require_nested(episodes=episodes), require_number("flagged", flagged)
    if not 0 <= x <= n:
        raise InputError("a part exceeds its whole", where="flagged", expected=f"0 to episodes = {n}", found=x)
    a, b, c, d = require_controls(caught, cleared, transport)
    require_informative((a + 1) / (b + 2), (c + 1) / (d + 2))
    if n == 0:
        raise NotIdentifiedError("no episodes", where="episodes", expected="at least one", found=0)
    point = (x / n + c / d - 1) / (a / b + c / d - 1)
    (point, lower, upper), raw = place_limits(point, *lang_reiczigel_limits(x, n, a, b, c, d, level))
    limits = point, min(lower, point), max(upper, point)
    widened = () if lower <= point <= upper else ("widened to hold the estimate, which pseudo-observations had passed by",)
    notes, counts = (TRANSPORT[transport], f"Se {a}/{b}, Sp {c}/{d}", raw, *widened), {"n": n, "x": int(x) if x % 1 == 0 else x}
    return state_rate("violations", "Lang-Reiczigel", limits, level, *notes, references=("Lang and Reiczigel 2014",), **counts)


def estimate_from_controls_bayes(
    flagged: int, episodes: int, *, caught: Pair, cleared: Pair, transport: str, prior: float = 0.5, level: float = 0.95
) -> Rate:
    """The fallback: joint posterior of rate, Se and Sp, its median and equal tails (Gelman and Carpenter 2020, JRSS C 69:1269).

    Parameters
    ----------
    flagged, episodes, caught, cleared, transport, level
        As in `estimate_from_controls`, ``flagged`` whole.
    prior : float in [0.001, 1000]
        Se and Sp have Beta(prior, prior); the rate is uniform. With no episodes there is no estimate, and [0, 1].

    Examples
    --------
    >>> estimate_from_controls_bayes(30, 200, caught=(95, 100), cleared=(190, 200), transport="same-agent")
    Rate(violations 0.1125 [0.0501, 0.1783] at 95 %, joint posterior; n=200, x=30)
    """
    level, (x, n) = require_level(level), require_nested(flagged=flagged, episodes=episodes)
    a, b, c, d = require_controls(caught, cleared, transport)
    if not 1e-3 <= (prior := require_number("prior", prior)) <= 1e3:
        raise InputError("not a prior", where="prior", expected="0.001 to 1000", found=prior)
    size = 64 if n <= 1000 * min(b, d) else 200  # a long run is a sharp step between the nodes of few controls
    (se, weight), (sp, _) = beta_nodes(a + prior, b - a + prior, size), beta_nodes(c + prior, d - c + prior, size)
    se, false = se[:, None], 1 - sp[None, :]
    floor = betainc(x + 1, n - x + 1, false)
    notes = (TRANSPORT[transport], f"Se {a}/{b}, Sp {c}/{d}", f"prior Beta({prior:g}, {prior:g})")
    counts = {"n": n, "x": x, "references": ("Gelman and Carpenter 2020",)}
    if n == 0:
        return state_rate("violations", "joint posterior", (None, 0, 1), level, *notes, **counts)

    def mass(theta: Array) -> Array:
        reached = betainc(x + 1, n - x + 1, false + theta[:, None, None] * (se - false))
        return np.asarray(np.einsum("kij,i,j->k", (reached - floor) / (se - false), weight, weight))

    total = mass(np.ones(1))
    if not total > 1e-9:
        raise NotIdentifiedError("controls inconsistent with run", where="flagged", found=f"{x} of {n}")
    lower, middle, upper = find_quantiles(lambda theta: mass(theta) / total, level)
    return state_rate("violations", "joint posterior", (middle, lower, upper), level, *notes, **counts)


def estimate_inflation_from_controls(
    flagged: int, episodes: int, *, caught: Pair, cleared: Pair, transport: str, level: float = 0.95
) -> Rate:
    """Reported over Rogan-Gladen rate, by Fieller (1954, JRSS B 16:175): unbounded where the corrected rate may be 0.

    Parameters
    ----------
    flagged, episodes, caught, cleared, transport, level
        As in `estimate_from_controls`, refused where that is. Faultless controls get the variance of (k+1)/(n+2), never none.

    Examples
    --------
    >>> estimate_inflation_from_controls(90, 1000, caught=(285, 300), cleared=(980, 1000), transport="same-agent")
    Rate(inflation 1.1957 [1.0657, 1.3986] at 95 %, Fieller; n=1000, x=90)
    """
    level, (x, n) = require_level(level), require_nested(flagged=flagged, episodes=episodes)
    a, b, c, d = require_controls(caught, cleared, transport)
    corrected = estimate_from_controls(x, n, caught=caught, cleared=cleared, transport=transport, level=level).estimate or 0.0

    def spread(k: int, m: int) -> float:
        p = k / m if 0 < k < m else (k + 1) / (m + 2)
        return p * (1 - p) / m

    limits: tuple[Any, Any, Any] = (None, 0, np.inf)
    if x:
        youden, z2, phi, of_phi = a / b + c / d - 1, ndtri((1 + level) / 2) ** 2, x / n, spread(x, n)
        theta, slope = (phi + c / d - 1) / youden, (1 - c / d) / youden
        of_errors = (theta**2 * spread(a, b) + (1 - theta) ** 2 * spread(c, d)) / youden**2
        # The ratios r with (phi - r theta)^2 <= z^2 Var(phi - r theta): between, or outside, the roots of a quadratic.
        square, linear = theta**2 - z2 * (of_phi / youden**2 + of_errors), phi * theta - z2 * of_phi / youden
        root = np.sqrt(max(z2 * (of_phi * slope**2 + phi**2 * of_errors - z2 * of_phi * of_errors), 0.0))
        low, high = sorted(((linear - root) / square, (linear + root) / square))
        # The rate is at most 1 also where its raw estimate is not, which may lie past the limits.
        point = phi / corrected if corrected else np.inf
        lower = low if square > 0 and theta > 0 else high if square < 0 and low <= 0 else 0
        limits = (point, min(max(lower, 0), point), max(high, point) if square > 0 and theta > 0 else np.inf)
    note, counts = TRANSPORT[transport], {"n": n, "x": x, "references": ("Fieller 1954",)}
    return state_rate("inflation", "Fieller", limits, level, note, **counts)
