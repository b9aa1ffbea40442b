"""`estimate_rates` picks the default of every situation; tables and figures print what it picked."""

from __future__ import annotations

import json
import math
import warnings

import pytest

from litmuskit import rates
from litmuskit.errors import InputError

READ = {"adjudicated": 40, "true": 37}
CONTROLS = {"caught": (285, 300), "cleared": (980, 1000), "transport": "same-agent"}
TAKEN = {"quarantined": 12, "escalated": 5, "not_assessable": 3}


def estimate(**known):
    return rates.estimate_rates(flagged=120, episodes=1000, **known)


@pytest.mark.parametrize(
    ("known", "estimand", "method"),
    [
        ({"quarantined": 0}, "attributable", "Wilson"),
        (TAKEN, "worst case", "bounds of Clopper-Pearson"),
        (READ, "confirmed", "MOVER-log of Wilson"),
        (TAKEN | READ, "confirmed", "MOVER-log of Wilson"),
        (READ | {"unflagged_adjudicated": 50, "missed": 1}, "violations", "double sampling, Jeffreys"),
        (CONTROLS, "violations", "Lang-Reiczigel"),
        (TAKEN | CONTROLS, "violations", "Lang-Reiczigel"),
        (CONTROLS | READ, "confirmed", "MOVER-log of Wilson"),
        (TAKEN | CONTROLS | {"transport": "stub"}, "worst case", "bounds of Clopper-Pearson"),
    ],
)
def test_headline_is_the_default_of_its_situation(known, estimand, method):
    table = estimate(**known)
    assert (table.headline.estimand, table.headline.method) == (estimand, method)
    assert [rate.role for rate in table.rates].count("headline") == 1
    assert all(rate.why and rate.role for rate in table.rates)


def test_nothing_known_has_no_headline():
    table = estimate()
    assert table.headline is None
    assert [rate.estimand for rate in table.rates] == ["reported"]
    assert "not a violation rate" in table.rates[0].why


def test_every_row_is_its_own_estimator():
    rows = {(rate.estimand, rate.method): rate for rate in estimate(**TAKEN, **READ, assessed=950, exposed=700).rates}
    c, n = 100, 1000
    expected = {
        ("reported", "Wilson"): rates.estimate_proportion(120, n),
        ("attributable", "Wilson"): rates.estimate_proportion(c, n),
        ("assessable", "Wilson"): rates.estimate_proportion(c, 950),
        ("exposed only", "Wilson"): rates.estimate_proportion(c, 700),
        ("worst case", "bounds of Clopper-Pearson"): rates.bound_worst_case(c, 12, n, escalated=5, not_assessable=3),
        ("artifact-excluded", "bounds of Clopper-Pearson"): rates.bound_worst_case(c, 12, n),
        ("pattern mixture", "MOVER-log, shift 0"): rates.estimate_pattern_mixture(c, 5, 15, n),
        ("pattern mixture", "MOVER-log, shift -2"): rates.estimate_pattern_mixture(c, 5, 15, n, log_odds_shift=-2),
        ("confirmed", "MOVER-log of Wilson"): rates.estimate_confirmed(120, n, 37, 40),
        ("confirmed", "product of Clopper-Pearson"): rates.estimate_confirmed(120, n, 37, 40, exact=True),
        ("inflation", "1/Clopper-Pearson"): rates.estimate_inflation(37, 40),
    }
    for key, rate in expected.items():
        assert (rows[key].estimate, rows[key].lower, rows[key].upper) == (rate.estimate, rate.lower, rate.upper), key
    worst = rows["worst case", "bounds of Clopper-Pearson"]
    assert (worst.x, worst.c, worst.q, worst.a, worst.u) == (120, 100, 12, 5, 3)


def test_shifts_stand_only_where_there_are_odds_to_shift():
    def count(**taken):
        return sum(r.estimand == "pattern mixture" for r in rates.estimate_rates(flagged=20, episodes=99, **taken).rates)

    assert count(quarantined=5, escalated=3) == 3
    assert count(quarantined=5) == 1
    assert count(quarantined=15, escalated=5) == count(escalated=5) == 0


def test_columns_are_clusters_throughout():
    flagged, episodes, quarantined = [1, 0, 3, 2] * 10, [5] * 40, [1, 0, 0, 1] * 10
    table = rates.estimate_rates(
        flagged=flagged, episodes=episodes, quarantined=quarantined, adjudicated=[1, 0, 2, 1] * 10, true=[1, 0, 1, 1] * 10
    )
    by = {rate.estimand: rate for rate in table.rates}
    assert {rate.clusters for rate in table.rates if rate.estimand != "inflation"} == {40}
    assert by["worst case"].method == "bounds of Korn-Graubard"
    assert table.headline.method == "MOVER-log of logit CR1 with t(J-1)"
    assert by["reported"].lower == rates.estimate_clustered(flagged, episodes).lower
    alone = rates.estimate_confirmed(sum(flagged), sum(episodes), 30, 40)
    clustered = rates.estimate_confirmed(flagged, episodes, 30, 40)
    assert clustered.estimate == pytest.approx(alone.estimate)
    assert clustered.design_effect == by["reported"].design_effect > 1
    assert clustered.upper - clustered.lower > alone.upper - alone.lower
    assert any("clusters are ignored" in rate.why for rate in rates.estimate_rates(
        flagged=flagged, episodes=episodes, adjudicated=40, true=30, unflagged_adjudicated=9, missed=0).rates)  # fmt: skip


def test_controls_that_contradict_the_run_claim_nothing():
    table = rates.estimate_rates(
        flagged=5, episodes=1000, quarantined=1, caught=(20, 20), cleared=(490, 500), transport="same-agent"
    )
    assert table.headline.estimand == "worst case"
    lost = table.rates[-1]
    assert (lost.estimate, lost.lower, lost.upper, lost.method) == (None, 0, 1, "not identified")
    assert "controls inconsistent with run" in lost.notes[0]


def test_a_posterior_that_the_controls_contradict_loses_no_other_row():
    table = rates.estimate_rates(flagged=236, episodes=300, **READ, caught=(7, 33), cleared=(48, 60), transport="stub")
    assert table.headline.estimand == "confirmed"
    methods = [rate.method for rate in table.rates]
    assert methods[1:4] == ["Lang-Reiczigel", "not identified", "Fieller"]
    assert table.rates[2].estimate is None


def test_level_and_label_reach_every_row():
    table = estimate(**TAKEN, **READ, **CONTROLS, unflagged_adjudicated=50, missed=1, level=0.9, label="model a")
    assert {(rate.level, rate.label) for rate in table.rates} == {(0.9, "model a")}
    assert "label" in table.to_table().columns
    assert "label" not in estimate(**READ).to_table().columns


def test_table_prints_every_count_and_no_infinity():
    table = rates.estimate_rates(flagged=12, episodes=100, adjudicated=4, true=0).to_table()
    assert set(rates.rate.COUNTS) <= set(table.columns)
    records = table.to_records()
    json.dumps(records, allow_nan=False)
    inflation = next(row for row in records if row["estimand"] == "inflation")
    assert (inflation["estimate"], inflation["upper"]) == ("unbounded", "unbounded")
    assert list(table.to_frame().columns) == list(table.columns)


def test_rate_shows_itself():
    rate = rates.estimate_proportion(81, 263)
    assert "\n" not in repr(rate)
    assert "0.3080" in rate._repr_html_()
    hostile = rate.restate(label="<script>alert(1)</script>")
    assert "<script>" not in rates.RateTable(rates=(hostile,))._repr_html_()
    assert repr(estimate(**READ)).count("\n") == 0


def test_forest_draws_the_limits_the_table_prints():
    table = rates.estimate_rates(flagged=12, episodes=100, adjudicated=6, true=0, label="$a$")
    axes = table.plot()
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names[0] == "$a$ reported"
    assert names[1] == "$a$ confirmed, product of Clopper-Pearson"
    assert len(set(names)) == len(table.rates)
    assert "n = 100" in axes.get_xlabel()
    apart = rates.RateTable(rates=(rates.estimate_proportion(1, 9), rates.estimate_proportion(1, 1_000)))
    assert [tick.get_text() for tick in apart.plot().get_yticklabels()] == [
        f"proportion, Wilson, n = {n}" for n in ("9", "1,000")
    ]
    lines = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
    for rate, (low, high) in zip(table.rates, lines, strict=True):
        assert low == rate.lower
        assert high == rate.upper or math.isinf(rate.upper)
    assert rates.estimate_proportion(3, 9).plot() is not None


def test_groups_are_compared_once_each_after_holm():
    arms = {name: rates.estimate_proportion(x, 1000) for name, x in (("a", 300), ("b", 352), ("c", 310))}
    table = rates.compare_groups(arms)
    assert [rate.label for rate in table.rates] == ["a - b", "a - c", "b - c"]
    single = [rates.compare_rates(arms[p], arms[q]).p_value for p, q in (("a", "b"), ("a", "c"), ("b", "c"))]
    assert table.rates[0].p_value == pytest.approx(3 * single[0])
    assert [rate.verdict for rate in table.rates] == ["lower", "not shown to differ", "not shown to differ"]
    bounds = rates.bound_worst_case(20, 9, 1000)
    unknown = rates.compare_groups({"a": bounds, "b": rates.bound_worst_case(90, 9, 1000)})
    assert (unknown.rates[0].p_value, unknown.rates[0].verdict) == (None, "not shown to differ")
    assert unknown.rates[0].upper < 0


def test_equally_safe_models_look_different_on_reported_rates():
    """True rate .3, artifact shares 2 % and 15 %: the issue's 61 % of comparisons."""
    import numpy as np

    rng = np.random.default_rng(61)
    reported = corrected = 0
    for _ in range(300):
        arms = []
        for share in (0.02, 0.15):
            x = int(rng.binomial(1000, 0.3 / (1 - share)))
            m = x // 2
            arms.append((x, rates.estimate_confirmed(x, 1000, int(rng.binomial(m, 1 - share)), m)))
        apart = rates.compare_rates(*(rates.estimate_proportion(x, 1000) for x, _ in arms))
        reported += not apart.lower <= 0 <= apart.upper
        apart = rates.compare_rates(arms[0][1], arms[1][1])
        corrected += not apart.lower <= 0 <= apart.upper
    assert 0.53 < reported / 300 < 0.80
    assert corrected / 300 < 0.09


def test_estimate_rates_lets_few_clusters_warn():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rates.estimate_rates(flagged=[1, 2, 0], episodes=[5, 5, 5])
    assert {w.category for w in caught} == {rates.FewClustersWarning}


def test_assessed_needs_an_audit():
    with pytest.raises(InputError, match="audited"):
        estimate(assessed=900)
