"""What is refused, and what is answered at the edges."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from litmuskit import rates
from litmuskit.errors import InputError, NotIdentifiedError

CONTROLS = {"caught": (95, 100), "cleared": (190, 200), "transport": "same-agent"}

# A valid call of every estimator of counts, and the arguments of it that are counts.
CALLS = {
    rates.estimate_proportion: {"k": 3, "n": 9},
    rates.bound_proportion: {"k": 3, "n": 9},
    rates.estimate_confirmed: {"flagged": 12, "episodes": 50, "true": 5, "adjudicated": 6},
    rates.estimate_double_sampled: {"tp": 3, "fp": 1, "fn": 1, "tn": 9, "flagged": 8, "episodes": 40},
    rates.count_confirmed: {"flagged": 12, "true": 5, "adjudicated": 6},
    rates.estimate_inflation: {"true": 5, "adjudicated": 6},
    rates.estimate_known_accuracy: {"flagged": 12, "episodes": 50},
    rates.estimate_from_controls: {"episodes": 50},
    rates.estimate_from_controls_bayes: {"flagged": 12, "episodes": 50},
    rates.estimate_inflation_from_controls: {"flagged": 12, "episodes": 50},
    rates.bound_worst_case: {"counted": 7, "quarantined": 3, "episodes": 50, "escalated": 1, "not_assessable": 1},
    rates.estimate_pattern_mixture: {"counted": 7, "escalated": 2, "quarantined": 3, "episodes": 50},
    rates.find_tipping_point: {"counted": 7, "quarantined": 3, "episodes": 50},
    rates.compare_paired: {"both": 3, "first": 5, "second": 2, "neither": 30},
    rates.judge_quarantine: {"quarantined": 3, "flagged": 12},
    rates.size_certificate: {"quarantined": 1},
    rates.plan_sample: {"flagged": 12, "episodes": 50},
    rates.find_fire_probability: {"flagged": 12},
    rates.estimate_rates: {"flagged": 12, "episodes": 50, "quarantined": 2, "adjudicated": 6, "true": 5},
}
OTHERS = {
    rates.estimate_known_accuracy: {"sensitivity": 0.9, "specificity": 0.95},
    rates.estimate_from_controls: {"flagged": 12, **CONTROLS},
    rates.estimate_from_controls_bayes: CONTROLS,
    rates.estimate_inflation_from_controls: CONTROLS,
    rates.find_tipping_point: {"claim": 0.3},
    rates.plan_sample: {"precision": 0.9, "half_width": 0.1},
    rates.find_fire_probability: {"true_rate": 0.01},
}
BAD_COUNTS = [2.5, -1, math.nan, math.inf, "3", True, None]
PLACES = [(call, name) for call, counts in CALLS.items() for name in counts]


def name_place(value):
    return getattr(value, "__name__", value)


@pytest.mark.parametrize(("call", "name"), PLACES, ids=name_place)
def test_bad_count_is_refused_by_name(call, name):
    whole = CALLS[call] | OTHERS.get(call, {})
    call(**whole)
    for bad in BAD_COUNTS:
        if bad is None and call is rates.estimate_rates:
            continue
        with pytest.raises(InputError) as caught:
            call(**whole | {name: bad})
        assert caught.value.where == name, bad


@pytest.mark.parametrize("call", [c for c in CALLS if c is not rates.find_fire_probability], ids=name_place)
@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan, "0.95", True])
def test_level_outside_0_1_is_refused_by_name(call, level):
    with pytest.raises(InputError) as caught:
        call(**CALLS[call] | OTHERS.get(call, {}), level=level)
    assert caught.value.where == "level"


@pytest.mark.parametrize(
    ("call", "too_many"),
    [
        (rates.estimate_proportion, {"k": 10, "n": 9}),
        (rates.estimate_confirmed, {"true": 7}),
        (rates.estimate_confirmed, {"adjudicated": 13}),
        (rates.estimate_confirmed, {"flagged": 51}),
        (rates.estimate_double_sampled, {"tp": 8}),
        (rates.estimate_double_sampled, {"tn": 39}),
        (rates.count_confirmed, {"adjudicated": 13}),
        (rates.bound_worst_case, {"quarantined": 44}),
        (rates.find_tipping_point, {"quarantined": 44}),
        (rates.judge_quarantine, {"quarantined": 13}),
        (rates.estimate_rates, {"quarantined": 13}),
    ],
)
def test_part_larger_than_its_whole_is_refused(call, too_many):
    with pytest.raises(InputError, match="exceeds its whole"):
        call(**CALLS[call] | OTHERS.get(call, {}) | too_many)


@pytest.mark.parametrize("name", ["sensitivity", "specificity"])
@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, "x"])
def test_bad_accuracy_is_refused_by_name(name, bad):
    with pytest.raises(InputError) as caught:
        rates.estimate_known_accuracy(12, 50, **{"sensitivity": 0.9, "specificity": 0.95, name: bad})
    assert caught.value.where == name


@pytest.mark.parametrize("call", [c for c in CALLS if OTHERS.get(c, {}).get("transport")], ids=name_place)
def test_controls_need_an_assumption_and_information(call):
    whole = CALLS[call] | OTHERS[call]
    for transport in ("", "because", None):
        with pytest.raises(InputError, match="transport"):
            call(**whole | {"transport": transport})
    with pytest.raises(NotIdentifiedError, match=r"Se \+ Sp"):
        call(**whole | {"caught": (50, 100), "cleared": (100, 200)})
    with pytest.raises(NotIdentifiedError, match=r"Se \+ Sp"):
        call(**whole | {"caught": (10, 100), "cleared": (20, 200)})  # abs() would have made this a good test
    with pytest.raises(NotIdentifiedError, match="no controls"):
        call(**whole | {"caught": (0, 0)})
    with pytest.raises(InputError, match="caught"):
        call(**whole | {"caught": (101, 100)})
    assert "stubs" in call(**whole | {"transport": "stub"}).notes[0]
    assert "same agent" in call(**whole).notes[0]


def test_known_accuracy_without_information_is_not_identified():
    with pytest.raises(NotIdentifiedError):
        rates.estimate_known_accuracy(12, 50, sensitivity=0.4, specificity=0.6)
    with pytest.raises(NotIdentifiedError, match="inconsistent") as caught:
        rates.estimate_known_accuracy(1, 1000, sensitivity=0.9, specificity=0.9)
    assert caught.value.carrying[1] < 0


def test_shrunken_controls_without_information_are_not_identified():
    with pytest.raises(NotIdentifiedError, match=r"Se \+ Sp"):
        rates.estimate_from_controls(5, 50, caught=(1, 1), cleared=(1, 1000), transport="same-agent")


def test_lang_reiczigel_alone_takes_a_real_count():
    rate = rates.estimate_from_controls(711.72, 11862, caught=(8, 10), cleared=(12, 12), transport="same-agent")
    assert rate.upper == pytest.approx(0.14666839342382)
    for bad in (-0.5, 11862.5, math.nan):
        with pytest.raises(InputError, match="flagged"):
            rates.estimate_from_controls(bad, 11862, caught=(8, 10), cleared=(12, 12), transport="same-agent")


def test_posterior_far_from_the_controls_is_not_identified():
    with pytest.raises(NotIdentifiedError, match="inconsistent"):
        rates.estimate_from_controls_bayes(0, 100_000, caught=(100, 100), cleared=(800, 1000), transport="same-agent")


@pytest.mark.parametrize(
    "rate",
    [
        *(
            rates.estimate_proportion(k, n, exact=e)
            for k, n in ((0, 0), (0, 1), (1, 1), (0, 10**6), (10**6,) * 2)
            for e in (0, 1)
        ),
        rates.bound_proportion(0, 0),
        rates.bound_proportion(5, 5, side="lower"),
        rates.estimate_confirmed(0, 0, 0, 0),
        rates.estimate_confirmed(0, 50, 0, 0),
        rates.estimate_confirmed(10, 50, 0, 0),
        rates.estimate_confirmed(10, 50, 0, 10),
        rates.estimate_confirmed(10, 50, 10, 10, exact=True),
        rates.estimate_confirmed(50, 50, 50, 50),
        rates.estimate_double_sampled(0, 0, 0, 0, flagged=0, episodes=0),
        rates.estimate_double_sampled(0, 0, 0, 0, flagged=50, episodes=50),
        rates.estimate_inflation(0, 0),
        rates.estimate_inflation(0, 5),
        rates.estimate_inflation(5, 5),
        rates.estimate_known_accuracy(0, 0, sensitivity=1, specificity=1),
        rates.estimate_known_accuracy(50, 50, sensitivity=1, specificity=1),
        rates.estimate_from_controls(0, 50, caught=(9, 9), cleared=(9, 9), transport="stub"),
        rates.estimate_from_controls(50, 50, caught=(9, 9), cleared=(9, 9), transport="stub"),
        rates.estimate_inflation_from_controls(20, 50, caught=(9, 9), cleared=(9, 9), transport="stub"),
        rates.estimate_inflation_from_controls(0, 50, caught=(9, 9), cleared=(9, 9), transport="stub"),
        rates.estimate_inflation_from_controls(1, 50, caught=(9, 9), cleared=(8, 9), transport="stub"),
        rates.bound_worst_case(0, 10, 50),
        rates.bound_worst_case(0, 0, 0),
        rates.estimate_pattern_mixture(0, 0, 10, 50),
        rates.estimate_pattern_mixture(0, 0, 0, 50),
        rates.estimate_pattern_mixture(0, 5, 5, 50, log_odds_shift=3),
        rates.estimate_pattern_mixture(5, 0, 5, 50, log_odds_shift=-3),
        rates.compare_paired(0, 0, 0, 50),
        rates.compare_paired(0, 0, 0, 0),
        rates.judge_quarantine(0, 0),
        rates.judge_quarantine(9, 9),
    ],
    ids=repr,
)
def test_edges_have_an_interval_that_holds_the_estimate(rate):
    assert rate.lower < rate.upper
    assert rate.estimate is None or rate.lower <= rate.estimate <= rate.upper


def test_edges_have_stated_answers():
    nothing_read = rates.estimate_confirmed(10, 50, 0, 0)
    assert (nothing_read.estimate, nothing_read.lower) == (None, 0)
    assert nothing_read.upper == rates.estimate_proportion(10, 50).upper
    all_quarantined = rates.bound_worst_case(0, 10, 50)
    assert (all_quarantined.estimate, all_quarantined.lower) == (None, 0)
    assert rates.estimate_pattern_mixture(0, 0, 10, 50).estimate is None
    assert rates.estimate_confirmed(10, 50, 0, 10).estimate == 0
    assert rates.estimate_inflation(0, 5).upper == math.inf
    assert rates.estimate_inflation(0, 0).estimate is None
    no_episodes = rates.estimate_proportion(0, 0)
    assert (no_episodes.estimate, no_episodes.lower, no_episodes.upper) == (None, 0, 1)
    with pytest.raises(NotIdentifiedError, match="no episodes"):
        rates.estimate_from_controls(0, 0, **CONTROLS)


def test_inflation_is_unbounded_where_the_corrected_rate_may_be_zero():
    assert rates.estimate_inflation_from_controls(12, 200, **CONTROLS).upper == math.inf
    assert math.isfinite(rates.estimate_inflation_from_controls(120, 200, **CONTROLS).upper)


def test_a_census_alone_may_be_certain():
    assert rates.count_confirmed(10, 7, 10).lower == rates.count_confirmed(10, 7, 10).upper == 7
    with pytest.raises(NotIdentifiedError, match="no interval"):
        rates.Rate(estimand="e", method="m", estimate=0.0, lower=0.0, upper=0.0, level=0.95)


def test_fewer_than_two_clusters_are_not_identified():
    for k, n in (([3], [9]), ([3, 0], [9, 0]), ([], [])):
        with pytest.raises(NotIdentifiedError, match="at least 2 clusters"):
            rates.estimate_clustered(k, n)


def test_few_clusters_warn():
    with pytest.warns(rates.FewClustersWarning, match="only 19 clusters"):
        rates.estimate_clustered([1] * 9 + [2] * 10, [3] * 19)
    with pytest.warns(rates.FewClustersWarning, match="only 4 clusters with events") as caught:
        rate = rates.estimate_clustered([1] * 4 + [0] * 16, [3] * 20)
    assert len(caught) == 1
    assert "only 4 clusters with events" in rate.notes
    with pytest.warns(rates.FewClustersWarning, match="only 1 cluster with events"):
        rates.estimate_clustered([1] + [0] * 19, [3] * 20)
    rates.estimate_clustered([1] * 5 + [0] * 15, [3] * 20)


def test_no_event_takes_the_exact_limit_of_j_trials():
    with pytest.warns(rates.FewClustersWarning):
        rate = rates.estimate_clustered([0] * 30, [5] * 30)
    assert rate.upper == rates.estimate_proportion(0, 30, exact=True).upper
    assert rate.design_effect is None


def test_clusters_that_never_differ_have_no_zero_width():
    rate = rates.estimate_clustered([1] * 30, [2] * 30)
    assert (rate.lower, rate.upper) == pytest.approx((0.3130, 0.6870), abs=1e-3)


@pytest.mark.parametrize(
    "columns", [([1, 2], [3]), ([1, 2.5], [3, 3]), ([1, 4], [3, 3]), ([1, math.nan], [3, 3]), ([-1, 1], [3, 3])]
)
def test_bad_columns_are_refused(columns):
    with pytest.raises(InputError, match="k"):
        rates.estimate_clustered(*columns)


def test_columns_and_single_counts_do_not_mix():
    with pytest.raises(InputError, match="mixed"):
        rates.bound_worst_case([1, 2] * 10, 1, [5, 5] * 10)
    with pytest.raises(InputError, match="mixed"):
        rates.estimate_rates(flagged=[1, 2] * 10, episodes=[5, 5] * 10, quarantined=1)


def test_arms_of_different_estimands_or_levels_do_not_compare():
    one = rates.estimate_proportion(3, 9)
    with pytest.raises(InputError, match="estimand"):
        rates.compare_rates(one, one.restate(estimand="confirmed"))
    with pytest.raises(InputError, match="level"):
        rates.compare_rates(one, rates.estimate_proportion(3, 9, level=0.9))


@pytest.mark.parametrize("options", [{"adjudicated": 3}, {"true": 3}, {"caught": (1, 1)}, {"missed": 1}, {"assessed": 9},
                                     {"unflagged_adjudicated": 9, "missed": 1}])  # fmt: skip
def test_half_a_situation_is_refused(options):
    with pytest.raises(InputError):
        rates.estimate_rates(flagged=3, episodes=10, **options)


def test_other_refusals():
    with pytest.raises(InputError, match="side"):
        rates.bound_proportion(1, 2, side="both")
    with pytest.raises(InputError, match="prior"):
        rates.estimate_from_controls_bayes(12, 50, **CONTROLS, prior=0)
    with pytest.raises(InputError, match="nothing to plan"):
        rates.plan_sample(0, 50, precision=0.9, half_width=0.1)
    with pytest.raises(InputError, match="claim"):
        rates.find_tipping_point(1, 1, 9, claim=0)


def test_numpy_counts_are_counts():
    assert rates.estimate_proportion(np.int64(3), np.float64(9)) == rates.estimate_proportion(3, 9)


def test_import_loads_scipy_special_at_most():
    code = "import sys, litmuskit.rates; print(*sorted(m for m in sys.modules if m.count('.') < 2))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "matplotlib", "scipy.stats", "scipy.optimize", "scipy.integrate", "ipywidgets"} & set(loaded)
    assert "scipy.special" in loaded


# Words, other number types, arrays, and numbers no float or no quantile can hold: refused, or answered as the same number is.
ABSURD = [None, "", "3", math.nan, -math.inf, -1, 0, 1, 0.5, 1e-300, 1e-12, 1 - 1e-16, 10**400, 10**18, 10**9, 1e300,
          Fraction(3), Decimal(3), 3j, np.float32(0.5), np.uint8(3), np.bool_(True), np.datetime64("2020"), [], [3], [3, 4],
          (3, 4, 5), ("a", "b"), ((1, 2), 3), np.array(3), np.array([]), np.ones((2, 2)), {}, {3}, object(), [1] * 20,
          ["a"] * 20, [10**400] * 20, [10**9] * 20, [1] * 19 + [[1]], "upper", rates.estimate_proportion(3, 9)]  # fmt: skip
MORE = {
    rates.estimate_clustered: {"k": [1, 2] * 10, "n": [5, 5] * 10, "exact": True},
    rates.estimate_confirmed: {"exact": True},
    rates.estimate_proportion: {"exact": True},
    rates.bound_proportion: {"side": "lower"},
    rates.tabulate_accuracy: {"flagged": 3, "episodes": 9, "sensitivity": [0.9], "specificity": [0.9]},
    rates.estimate_from_controls_bayes: {"prior": 1},
    rates.estimate_pattern_mixture: {"log_odds_shift": 1},
    rates.judge_quarantine: {"threshold": 0.02},
    rates.size_certificate: {"threshold": 0.02},
    rates.find_fire_probability: {"threshold": 0.02},
    rates.compare_rates: dict.fromkeys(("first", "second"), rates.estimate_proportion(3, 9)),
    rates.compare_groups: {"rates": {"a": rates.estimate_proportion(3, 9)}},
    rates.estimate_rates: {"escalated": 1, "not_assessable": 1, "assessed": 40, "exposed": 30, "label": "a"},
}  # fmt: skip
WHOLE = {call: CALLS.get(call, {}) | OTHERS.get(call, {}) | MORE.get(call, {}) for call in CALLS | MORE}
SAID_OF_BOTH = {"flags say nothing", "controls inconsistent with run", "the arms do not compare"}
LEVELLESS = (rates.find_fire_probability, rates.compare_rates, rates.compare_groups)


@pytest.mark.parametrize("call", WHOLE, ids=name_place)
def test_absurd_arguments_are_refused_by_name_or_answered(call):
    whole = WHOLE[call] | ({} if call in LEVELLESS else {"level": 0.95})
    for name, bad in product(whole, ABSURD):
        found, reason = [], None
        try:
            found = call(**whole | {name: bad})
        except (InputError, NotIdentifiedError) as error:
            reason = error
        assert reason is None or name in str(reason) or reason.what in SAID_OF_BOTH, (name, bad)
        for rate in getattr(found, "rates", found if found == [] else [found]):
            if isinstance(rate, rates.Rate):
                assert -1 <= rate.lower <= rate.upper, (name, bad)
                assert rate.estimate is None or rate.lower <= rate.estimate <= rate.upper, (name, bad)
            else:
                assert rate is None or math.isfinite(rate), (name, bad)


@pytest.mark.parametrize("name", ["caught", "cleared", "transport", "unflagged_adjudicated", "missed"])
@pytest.mark.parametrize("bad", ["", 3j, True, [3], np.ones((2, 2)), object()])
def test_absurd_controls_and_samples_are_refused_by_name(name, bad):
    known = {"flagged": 9, "episodes": 99, "adjudicated": 3, "true": 2, "unflagged_adjudicated": 9, "missed": 1, **CONTROLS}
    with pytest.raises(InputError, match=name):
        rates.estimate_rates(**known | {name: bad})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.float32])
def test_columns_of_any_width_are_the_same_counts(dtype):
    columns = {"flagged": [9, 3] * 20, "episodes": [90, 100] * 20, "quarantined": [4, 1] * 20, "adjudicated": [9, 2] * 20,
               "true": [8, 2] * 20}  # fmt: skip
    assert rates.estimate_rates(**{name: np.array(v, dtype) for name, v in columns.items()}) == rates.estimate_rates(**columns)


@pytest.mark.parametrize("extreme", [1e-300, 1e-9, 1 - 1e-9, np.nextafter(1, 0)])
def test_level_no_quantile_can_be_computed_for_is_refused(extreme):
    with pytest.raises(InputError, match="level: too near"):
        rates.estimate_proportion(3, 9, level=extreme)


def test_certificate_of_any_share_or_a_reason():
    assert rates.size_certificate(1e-12) == pytest.approx(-math.log(0.05) * 1e12, rel=1e-6)
    with pytest.raises(InputError, match="threshold: no run"):
        rates.size_certificate(1e-15)


def test_nothing_observed_is_no_estimate():
    for rate in (
        rates.estimate_double_sampled(0, 0, 0, 0, flagged=0, episodes=0),
        rates.estimate_double_sampled(0, 0, 0, 0, flagged=20, episodes=90),
        rates.estimate_from_controls_bayes(0, 0, **CONTROLS),
    ):
        assert (rate.estimate, rate.lower, rate.upper) == (None, 0, 1)


def test_a_half_nobody_read_is_named_and_does_not_lead():
    assert "none of the unflagged" in rates.estimate_double_sampled(9, 1, 0, 0, flagged=20, episodes=90).notes[-1]
    assert "none of the flagged" in rates.estimate_double_sampled(0, 0, 1, 9, flagged=20, episodes=90).notes[-1]
    known = {"flagged": 20, "episodes": 90, "adjudicated": 10, "true": 9, "missed": 0}
    assert rates.estimate_rates(**known, unflagged_adjudicated=0).headline.estimand == "confirmed"
    assert rates.estimate_rates(**known, unflagged_adjudicated=1).headline.estimand == "violations"


def test_columns_nest_in_every_cluster_not_only_in_sum():
    known = {"flagged": [5, 0] * 20, "episodes": [9, 9] * 20, "quarantined": 0}
    with pytest.raises(InputError, match=r"adjudicated\[1\]"):
        rates.estimate_rates(**known, adjudicated=[0, 5] * 20, true=[0, 5] * 20)
    with pytest.raises(InputError, match=r"assessed\[0\]"):
        rates.estimate_rates(**known, assessed=[10, 8] * 20)
    assert rates.estimate_confirmed([5, 0] * 20, [9, 9] * 20, [0] * 40, [0] * 40).estimate is None


def test_controls_that_put_the_whole_interval_above_1_have_no_inflation():
    for estimate in (rates.estimate_from_controls, rates.estimate_inflation_from_controls):
        with pytest.raises(NotIdentifiedError, match="inconsistent"):
            estimate(200, 200, **CONTROLS)
    edge = rates.estimate_inflation_from_controls(195, 200, **CONTROLS)
    assert edge.estimate == 195 / 200
    assert edge.lower <= edge.estimate <= edge.upper


def test_one_sided_limits_below_half_hold_the_estimate():
    for side in ("upper", "lower"):
        rate = rates.bound_proportion(5, 50, side=side, level=0.1)
        assert rate.lower <= rate.estimate <= rate.upper
    with pytest.raises(InputError, match="level"):
        rates.judge_quarantine(5, 50, level=0.4)
