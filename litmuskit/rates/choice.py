"""From what is known to the rates to print: the default of every situation, and why it is the default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from litmuskit.errors import InputError, NotIdentifiedError
from litmuskit.rates.adjudicated import estimate_confirmed, estimate_double_sampled, estimate_inflation
from litmuskit.rates.bounds import add_counts, bound_worst_case, estimate_pattern_mixture
from litmuskit.rates.clusters import measure_share
from litmuskit.rates.controls import (
    Pair,
    estimate_from_controls,
    estimate_from_controls_bayes,
    estimate_inflation_from_controls,
)
from litmuskit.rates.counts import read_counts, require_nested
from litmuskit.rates.rate import Rate, RateTable, state_rate

# (rate, why it stands there, its part): the last one that may lead does.
Row: TypeAlias = tuple[Rate, str, str]
LEAD, BESIDE, SENSITIVITY = "headline", "beside", "sensitivity"


def estimate_rates(
    *,
    flagged: Any,
    episodes: Any,
    quarantined: Any = None,
    escalated: Any = None,
    not_assessable: Any = None,
    assessed: Any = None,
    exposed: Any = None,
    adjudicated: Any = None,
    true: Any = None,
    unflagged_adjudicated: int | None = None,
    missed: int | None = None,
    caught: Pair | None = None,
    cleared: Pair | None = None,
    transport: str | None = None,
    level: float = 0.95,
    label: str | None = None,
) -> RateTable:
    """Every rate the counts allow, each with its reason; the strongest evidence makes the headline.

    Parameters
    ----------
    flagged, episodes : int
        x of N; or columns of counts, one entry per cluster, and the others down to ``true`` likewise.
    quarantined, escalated, not_assessable : int
        What an audit took from the flagged; with all three absent nothing was audited and nothing is attributable.
    assessed, exposed : int
        Episodes judged to their end; episodes that received the payload. Rates over them stand beside, never mixed with N.
    adjudicated, true : int
        A random sample of the flagged was read; so many are violations.
    unflagged_adjudicated, missed : int
        A random sample of the unflagged was read too; so many are violations.
    caught, cleared, transport
        Control runs, as in `estimate_from_controls`.
    level : float in (0, 1)
    label : str
        Stands before each row, for tables of several arms.

    Examples
    --------
    >>> estimate_rates(flagged=120, episodes=1000, adjudicated=40, true=37).headline
    Rate(confirmed 0.1110 [0.0889, 0.1320] at 95 %, MOVER-log of Wilson; n=1000, x=120, m=40, t=37)
    """
    if label is not None and not isinstance(label, str):
        raise InputError("not a label", where="label", expected="text", found=label)
    read = {"adjudicated": adjudicated, "true": true}
    doubled = {"unflagged_adjudicated": unflagged_adjudicated, "missed": missed}
    controls = {"caught": caught, "cleared": cleared, "transport": transport}
    taken = {"quarantined": quarantined, "escalated": escalated, "not_assessable": not_assessable}
    over, audited = {"assessed": assessed, "exposed": exposed}, any(v is not None for v in taken.values())
    for group in (read, doubled, controls, {"adjudicated": adjudicated, **doubled} if missed is not None else read):
        if 0 < sum(v is None for v in group.values()) < len(group):
            raise InputError("one without the other", where=", ".join(group), expected="all of them or none", found=group)
    if not audited and any(v is not None for v in over.values()):
        raise InputError("nothing was audited", where="assessed, exposed", expected="at least quarantined beside them")
    reported = measure_share(level, flagged=flagged, episodes=episodes).restate(estimand="reported")
    if unflagged_adjudicated is not None and missed is not None:
        rest = {"unflagged_adjudicated": unflagged_adjudicated, "unflagged": (reported.n or 0) - (reported.x or 0)}
        missed, unflagged_adjudicated, _ = require_nested(missed=missed, **rest)
    rows: list[Row] = [(reported, "what the harness says: not a violation rate", BESIDE)]
    if audited:
        rows += _list_audited(flagged, episodes, {k: 0 if v is None else v for k, v in taken.items()}, over, level)
    if transport is not None:
        rows += _list_controlled(flagged, episodes, controls | {"level": level})
    if adjudicated is not None:
        rows += _list_adjudicated(flagged, episodes, true, adjudicated, unflagged_adjudicated, missed, level)
    leader = max((i for i, row in enumerate(rows) if row[2] == LEAD), default=0)
    parts = [BESIDE if part == LEAD and i != leader else part for i, (_, _, part) in enumerate(rows)]
    rates = (rate.restate(why=why, role=part, label=label) for (rate, why, _), part in zip(rows, parts, strict=True))
    return RateTable(rates=tuple(rates), caption="rates, the strongest evidence as headline")


def _list_audited(flagged: Any, episodes: Any, taken: dict[str, Any], over: dict[str, Any], level: float) -> Iterator[Row]:
    flagged, lost = read_counts("flagged", flagged), add_counts(flagged=flagged, **taken)
    q, a, u = (int(np.sum(v)) for v in taken.values())
    if np.any((counted := flagged - (lost - flagged)) < 0):
        raise InputError("a part exceeds its whole", where=" + ".join(taken), expected="at most flagged", found=q + a + u)
    counts = {"x": int(np.sum(flagged)), "c": int(np.sum(counted)), "q": q, "a": a, "u": u}
    rate = measure_share(level, counted=counted, episodes=episodes)
    yield rate.restate(estimand="attributable", **counts), "counted over all N", LEAD
    for name, estimand in (("assessed", "assessable"), ("exposed", "exposed only")):
        if (base := over[name]) is not None:
            parts = {"counted": counted, name: read_counts(name, base), "episodes": read_counts("episodes", episodes)}
            few = len({np.shape(v) for v in parts.values()}) == 1 and bool(np.ndim(base)) and np.count_nonzero(parts[name]) < 2
            rate = measure_share(level, **{key: int(np.sum(v)) for key, v in parts.items()} if few else parts)
            why = "counted over its own episodes, not N"
            yield rate.restate(estimand=estimand, **counts), f"{why}; too few clusters hold any" if few else why, BESIDE
    # With nothing counted, or nothing judged false, the log odds have nothing to shift.
    for shift in (0.0, -2.0, 2.0)[: 3 if a else 1] if counts["c"] and q + u else ():
        unjudged = np.asarray(taken["quarantined"]) + taken["not_assessable"]
        mixed = estimate_pattern_mixture(counted, taken["escalated"], unjudged, episodes, log_odds_shift=shift, level=level)
        yield mixed.restate(**counts), "the unjudged taken for as often true as the judged, up to the shift", SENSITIVITY
    bounds = bound_worst_case(counted, episodes=episodes, level=level, **taken) if q + a + u else None
    if a + u and bounds:
        narrow = bound_worst_case(counted, taken["quarantined"], episodes, level=level)
        narrow = narrow.restate(lower=max(narrow.lower, bounds.lower), upper=min(narrow.upper, bounds.upper))  # a part of them
        why = "escalated and not-assessable flags assumed to be no violations"
        yield narrow.restate(estimand="artifact-excluded", **counts), why, SENSITIVITY
    if bounds:
        yield bounds, "some flagged records could not be judged", LEAD


def _list_controlled(flagged: Any, episodes: Any, controls: dict[str, Any]) -> Iterator[Row]:
    x, n = int(np.sum(flagged)), int(np.sum(episodes))
    why = "control runs measured the errors of the flags"
    part = LEAD if str(controls["transport"]) == "same-agent" else SENSITIVITY
    for estimate, says in (
        (estimate_from_controls, (f"{why}; clusters are ignored" if np.ndim(episodes) else why, part)),
        (estimate_from_controls_bayes, ("the same as a joint posterior", SENSITIVITY)),
        (estimate_inflation_from_controls, ("reported over corrected", SENSITIVITY)),
    ):
        try:
            yield estimate(x, n, **controls), *says
        except NotIdentifiedError as error:
            none = state_rate("violations", "not identified", (None, 0, 1), controls["level"], str(error), n=n, x=x)
            yield none, "control runs contradict the run", SENSITIVITY
            if estimate is estimate_from_controls:
                break


def _list_adjudicated(
    flagged: Any, episodes: Any, true: Any, adjudicated: Any, unflagged: int | None, missed: int | None, level: float
) -> Iterator[Row]:
    guaranteed = estimate_confirmed(flagged, episodes, true, adjudicated, level=level, exact=True)
    x, n, t, m = (int(np.sum(v)) for v in (flagged, episodes, true, adjudicated))
    yield guaranteed, "the choice that holds its level at every rate", BESIDE
    yield estimate_inflation(t, m, level=level).restate(n=n), "reported over confirmed, one N throughout", BESIDE
    yield estimate_confirmed(flagged, episodes, true, adjudicated, level=level), "a random sample of the flagged was read", LEAD
    if unflagged is not None and missed is not None:
        rate = estimate_double_sampled(t, m - t, missed, unflagged - missed, flagged=x, episodes=n, level=level)
        why = "random samples of the flagged and of the unflagged were read"
        why = f"{why}; clusters are ignored" if np.ndim(episodes) else why
        yield rate, why, LEAD if unflagged else SENSITIVITY  # with none of the unflagged read, the prior alone speaks of them
