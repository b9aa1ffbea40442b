"""Laws that hold whatever the counts."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from litmuskit import rates
from litmuskit.errors import NotIdentifiedError

LEVELS = st.floats(0.5, 0.999)


@st.composite
def nested(draw, depth=2, top=2000):
    """``depth`` counts, each at most the next."""
    counts = [draw(st.integers(1, top))]
    for _ in range(depth - 1):
        counts.insert(0, draw(st.integers(0, counts[0])))
    return counts


@st.composite
def clusters(draw):
    n = draw(st.lists(st.integers(1, 9), min_size=20, max_size=40))
    return [draw(st.integers(0, m)) for m in n], n


def check_interval(rate, low=0.0, high=1.0):
    assert low <= rate.lower < rate.upper <= high
    assert rate.estimate is None or rate.lower <= rate.estimate <= rate.upper


@given(nested(), LEVELS, st.booleans())
def test_proportion_is_an_interval_in_0_1(counts, level, exact):
    check_interval(rates.estimate_proportion(*counts, level=level, exact=exact))
    for side in ("upper", "lower"):
        check_interval(rates.bound_proportion(*counts, level=level, side=side))


@given(nested(4), LEVELS, st.booleans())
def test_confirmed_is_an_interval_below_the_reported_one(counts, level, exact):
    true, read, flagged, episodes = counts
    rate = rates.estimate_confirmed(flagged, episodes, true, read, level=level, exact=exact)
    check_interval(rate)
    part = (1 + level) / 2 if exact else level
    assert rate.upper <= rates.estimate_proportion(flagged, episodes, level=part, exact=exact).upper


@settings(max_examples=10, deadline=None)
@given(st.tuples(*[st.integers(0, 30)] * 4), st.integers(0, 200), st.integers(0, 900))
def test_double_sampling_is_an_interval_in_0_1(cells, more_flagged, more_unflagged):
    flagged = cells[0] + cells[1] + more_flagged
    episodes = flagged + cells[2] + cells[3] + more_unflagged
    check_interval(rates.estimate_double_sampled(*cells, flagged=flagged, episodes=episodes))


# Lang and Reiczigel add pseudo-observations: of a tiny sample, or at a low level, their limits pass by the raw estimate.
@example([1, 1], [71, 71], [1, 1], 0.875)
@example([200, 200], [95, 100], [190, 200], 0.95)
@example([5, 20], [10**9 - 2, 10**9], [10**9, 10**9], 0.5)
@example([0, 1], [300, 300], [300, 300], 0.5)
@given(nested(), nested(top=300), nested(top=300), LEVELS)
def test_controls_are_an_interval_in_0_1_or_a_reason(run, caught, cleared, level):
    controls = {"caught": tuple(caught), "cleared": tuple(cleared), "transport": "same-agent", "level": level}
    informative = caught[0] / caught[1] + cleared[0] / cleared[1] > 1
    try:
        rate = rates.estimate_from_controls(*run, **controls)
    except NotIdentifiedError as error:
        reason = error
        with pytest.raises(NotIdentifiedError, match=reason.what):
            rates.estimate_inflation_from_controls(*run, **controls)
    else:
        reason = None
    if reason is not None:
        assert not informative or reason.what == "flags say nothing" or reason.carrying[1] <= 0 or reason.carrying[0] >= 1
        return
    check_interval(rate)
    inflation = rates.estimate_inflation_from_controls(*run, **controls)
    check_interval(inflation, high=math.inf)
    if rate.estimate and run[0]:
        assert inflation.estimate == pytest.approx(run[0] / run[1] / rate.estimate)


@given(st.tuples(*[st.integers(0, 300)] * 4), st.integers(0, 2000), LEVELS)
def test_worst_case_holds_every_assignment_of_the_unjudged(parts, rest, level):
    c, q, a, u = parts
    n = sum(parts) + rest + 1
    bounds = rates.bound_worst_case(c, q, n, escalated=a, not_assessable=u, level=level)
    check_interval(bounds)
    for true in (0, q, q + a + u):
        rate = rates.estimate_proportion(c + true, n, level=level, exact=True)
        assert bounds.lower <= rate.lower
        assert rate.upper <= bounds.upper
    assert (bounds.x, bounds.c, bounds.q, bounds.a, bounds.u) == (sum(parts), c, q, a, u)


@given(st.tuples(*[st.integers(0, 60)] * 3), st.integers(0, 400), st.floats(-6, 6))
def test_pattern_mixture_rises_with_its_shift(parts, rest, shift):
    c, a, q = parts
    n = sum(parts) + rest + 1
    low, high = (rates.estimate_pattern_mixture(c, a, q, n, log_odds_shift=s) for s in (shift, shift + 1))
    check_interval(low)
    if low.estimate is not None:
        assert c / n - 1e-12 <= low.estimate <= high.estimate + 1e-12 <= (c + q) / n + 1e-9


@given(st.tuples(*[st.integers(0, 300)] * 4))
def test_paired_difference_turns_round(cells):
    both, first, second, neither = cells
    there, back = rates.compare_paired(both, first, second, neither), rates.compare_paired(both, second, first, neither)
    check_interval(there, -1)
    assert (there.lower, there.upper) == pytest.approx((-back.upper, -back.lower))
    assert there.p_value == pytest.approx(back.p_value)


@given(nested(), nested(), LEVELS)
def test_difference_turns_round_and_its_p_value_is_near_its_interval(one, two, level):
    a, b = rates.estimate_proportion(*one, level=level), rates.estimate_proportion(*two, level=level)
    there, back = rates.compare_rates(a, b), rates.compare_rates(b, a)
    check_interval(there, -1)
    assert (there.lower, there.upper) == pytest.approx((-back.upper, -back.lower))
    if not there.lower - 1e-9 < 0 < there.upper + 1e-9:
        assert there.p_value <= 1 - level + 1e-9


@given(st.integers(1, 400), LEVELS, st.booleans())
def test_limits_rise_with_k(n, level, exact):
    ends = [rates.estimate_proportion(k, n, level=level, exact=exact) for k in sorted({0, 1, n // 2, n - 1, n})]
    for low, high in pairwise(ends):
        assert low.lower <= high.lower + 1e-12
        assert low.upper <= high.upper + 1e-12


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(61, 600))
def test_confirmed_limits_rise_with_t(read, episodes):
    limits = [rates.estimate_confirmed(60, episodes, t, read) for t in range(1, read + 1)]
    assert all(a.lower <= b.lower and a.upper <= b.upper for a, b in pairwise(limits))


@given(nested(top=200), st.integers(2, 9), st.booleans())
def test_a_smaller_sample_is_wider(counts, factor, exact):
    k, n = counts
    small, large = (rates.estimate_proportion(k * f, n * f, exact=exact) for f in (1, factor))
    assert small.upper - small.lower > large.upper - large.lower


@given(nested(), LEVELS)
def test_a_higher_level_is_wider(counts, level):
    narrow, wide = rates.estimate_proportion(*counts, level=level), rates.estimate_proportion(*counts, level=(1 + level) / 2)
    assert wide.lower <= narrow.lower
    assert narrow.upper <= wide.upper


@given(clusters(), st.randoms(use_true_random=False), st.booleans())
def test_clusters_come_in_any_order(columns, random, exact):
    order = list(range(len(columns[1])))
    random.shuffle(order)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rates.FewClustersWarning)
        rate = rates.estimate_clustered(*columns, exact=exact)
        other = rates.estimate_clustered(*([column[i] for i in order] for column in columns), exact=exact)
        padded = rates.estimate_clustered([*columns[0], 0], [*columns[1], 0], exact=exact)
    check_interval(rate)
    assert (rate.lower, rate.upper) == pytest.approx((other.lower, other.upper))
    assert padded == rate


def test_a_design_effect_of_five_is_the_whole_task_repeated():
    alone = rates.estimate_proportion(30, 100)
    task = rates.estimate_clustered([5] * 30 + [0] * 70, [5] * 100)
    assert task.design_effect == pytest.approx(5 * 100 / 99)
    assert task.estimate == alone.estimate
    assert task.upper - task.lower == pytest.approx(alone.upper - alone.lower, rel=0.05)


# At a low level the tails leave a single count, or pass by the estimate.
@example([0, 9, 10], 0.5)
@example([0, 1, 2], 0.001)
@given(nested(3, top=300), LEVELS)
def test_count_holds_the_count_that_was_seen(counts, level):
    true, read, flagged = counts
    rate = rates.count_confirmed(flagged, true, read, level=level)
    assert true <= rate.lower <= rate.upper <= flagged - (read - true)
    assert rate.lower < rate.upper or read == flagged
    assert rate.estimate is None or rate.lower <= rate.estimate <= rate.upper


@settings(max_examples=10, deadline=None)
@example([0, 1], [300, 300], [300, 300], 0.999)
@given(nested(top=10**6), nested(top=300), nested(top=300), LEVELS)
def test_joint_posterior_is_an_interval_in_0_1_or_a_reason(run, caught, cleared, level):
    assume(caught[0] / caught[1] + cleared[0] / cleared[1] > 1)
    controls = {"caught": tuple(caught), "cleared": tuple(cleared), "transport": "same-agent", "level": level}
    try:
        check_interval(rates.estimate_from_controls_bayes(*run, **controls))
    except NotIdentifiedError as error:
        assert error.where == "flagged"  # noqa: PT017
        assert not 1 - cleared[0] / cleared[1] <= run[0] / run[1] <= caught[0] / caught[1]


@given(nested(top=10**9), st.floats(1e-6, 1), st.floats(1e-6, 0.9), LEVELS)
def test_plan_is_an_interval_as_narrow_as_it_says(counts, precision, half_width, level):
    flagged, episodes = max(counts[0], 1), counts[1]
    plan = rates.plan_sample(flagged, episodes, precision=precision, half_width=half_width, level=level)
    check_interval(plan)
    assert 1 <= plan.m <= flagged
    assert (plan.upper - plan.lower <= 2 * half_width) == (plan.verdict == "enough")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(0, 40), st.floats(0.01, 0.5))
def test_tipping_point_is_where_the_claim_falls(counted, quarantined, claim):
    k = rates.find_tipping_point(counted, quarantined, 400, claim=claim)
    stands = [rates.bound_proportion(counted + i, 400).upper < claim for i in range(quarantined + 1)]
    assert k == next((i for i, holds in enumerate(stands) if not holds), None)


def test_tipping_point_against_another_arm():
    other = rates.estimate_proportion(120, 1000)
    k = rates.find_tipping_point(60, 50, 1000, claim=other)
    gaps = [rates.compare_rates(rates.estimate_proportion(60 + i, 1000), other).upper for i in (k - 1, k)]
    assert gaps[0] < 0 <= gaps[1]
    assert rates.find_tipping_point(60, 5, 1000, claim=other) is None
    assert rates.find_tipping_point(60, 50, 1000, claim=rates.estimate_proportion(60, 1000)) == 0
    lax = rates.find_tipping_point(60, 50, 1000, claim=rates.estimate_proportion(120, 1000, level=0.8), level=0.8)
    assert lax > k


@pytest.mark.parametrize(("half_width", "verdict"), [(0.03, "enough"), (0.001, "not enough")])
def test_plan_is_the_smallest_sample_that_is_enough(half_width, verdict):
    plan = rates.plan_sample(120, 1000, precision=0.8, half_width=half_width)
    assert plan.verdict == verdict
    widths = [rates.plan_sample(120, 1000, precision=0.8, half_width=h).m for h in (0.025, 0.03, 0.035)]
    assert widths == sorted(widths, reverse=True)
    if verdict == "enough":
        assert (plan.upper - plan.lower) / 2 <= half_width
        assert rates.plan_sample(120, 1000, precision=0.8, half_width=half_width, level=0.99).m > plan.m
    else:
        assert plan.m == 120


def test_keywords_that_move_a_result():
    controls = {"caught": (95, 100), "cleared": (190, 200), "transport": "stub"}
    pairs = [
        [rates.judge_quarantine(2, 60, threshold=t).verdict for t in (0.02, 0.2)],
        [rates.judge_quarantine(2, 60, level=v).upper for v in (0.9, 0.95)],
        [rates.size_certificate(0.02, level=v) for v in (0.9, 0.95)],
        [rates.size_certificate(t) for t in (0.02, 0.05)],
        [rates.estimate_from_controls_bayes(30, 200, **controls, prior=p).lower for p in (0.5, 1)],
        [rates.estimate_from_controls_bayes(30, 200, **controls, level=v).lower for v in (0.8, 0.95)],
        [rates.estimate_from_controls(30, 200, **controls, level=v).lower for v in (0.8, 0.95)],
        [rates.estimate_inflation_from_controls(60, 200, **controls, level=v).upper for v in (0.8, 0.95)],
        [rates.estimate_known_accuracy(30, 200, sensitivity=0.9, specificity=0.95, exact=e).lower for e in (False, True)],
        [rates.estimate_known_accuracy(30, 200, sensitivity=0.9, specificity=0.95, level=v).lower for v in (0.8, 0.95)],
        [rates.estimate_double_sampled(9, 1, 1, 9, flagged=20, episodes=90, level=v).lower for v in (0.8, 0.95)],
        [rates.count_confirmed(60, 9, 12, level=v).lower for v in (0.8, 0.95)],
        [rates.compare_paired(9, 8, 3, 40, level=v).lower for v in (0.8, 0.95)],
        [rates.bound_worst_case(9, 3, 60, level=v).lower for v in (0.8, 0.95)],
        [rates.estimate_pattern_mixture(9, 1, 3, 60, level=v).lower for v in (0.8, 0.95)],
        [rates.estimate_inflation(9, 12, level=v).lower for v in (0.8, 0.95)],
        [rates.find_fire_probability(60, 0.01, threshold=t) for t in (0.01, 0.02)],
    ]
    assert all(one != other for one, other in pairs)
    wide, narrow = (rates.estimate_clustered([0, 1, 5, 2] * 9, [5] * 36, exact=e) for e in (True, False))
    assert np.isclose(wide.estimate, narrow.estimate)
    assert wide.lower != narrow.lower


def test_accuracy_grid_holds_every_pair_and_says_where_nothing_is_identified():
    table = rates.tabulate_accuracy(40, 500, sensitivity=iter([0.95, 0.5]), specificity=iter([0.97, 0.5, 0.8]), level=0.9)
    assert [rate.label for rate in table.rates[:2]] == ["Se 0.95, Sp 0.97", "Se 0.95, Sp 0.5"]
    assert len(table.rates) == 6
    assert table.rates[0] == rates.estimate_known_accuracy(40, 500, sensitivity=0.95, specificity=0.97, level=0.9).restate(
        label="Se 0.95, Sp 0.97"
    )
    lost = [rate for rate in table.rates if rate.method == "not identified"]
    assert all((rate.estimate, rate.lower, rate.upper) == (None, 0, 1) and rate.notes for rate in lost)
    assert "flags say nothing" in table.rates[4].notes[0]
    assert "inconsistent" in table.rates[2].notes[0]
