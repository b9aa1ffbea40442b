"""Polarity: what a rule matches, what the table says, and that nothing is guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litmuskit.errors import InputError
from litmuskit.readers.polarity import KNOWN_SCORERS, LabelRules, RuleUse, resolve_label, resolve_labels
from litmuskit.records import MATCH_KEYS


def judge(rule: str, value: object, scorer: str = "s") -> bool | None:
    return resolve_label(scorer, value, LabelRules(violation=(rule,)), "here").violation


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ("s=1", 1, True),
        ("s=1", 1.0, True),
        ("s=1", True, True),
        ("s=1", "1", True),
        ("s=1", "1.0", True),
        ("s=1.0", 1, True),
        ("s=true", True, True),
        ("s=True", True, True),
        ("s=true", 1, True),
        ("s=1", 0, False),
        ("s=1", False, False),
        ("s=1", 0.5, False),
        ("s=0", False, True),
        ("s=I", "I", True),
        ("s=I", "C", False),
        ("s=I", "i", False),
        ("s = I ", "I", True),
        ("s=a=b", "a=b", True),
        ("s=1", None, None),
        ("s=1", float("nan"), None),
        ("s=1", "", None),
        ("s>=0.5", 0.5, True),
        ("s>=0.5", 0.49, False),
        ("s>0.5", 0.5, False),
        ("s<0.8", 0, True),
        ("s<=0", 0.0, True),
        ("s.security=I", {"security": "I", "utility": "C"}, True),
        ("s.security=I", {"security": "C", "utility": "I"}, False),
        ("s.security=I", {"security": None}, None),
        ("s.a.b=1", {"a.b": 1}, True),
    ],
    ids=repr,
)
def test_what_a_rule_says_of_a_value(rule, value, expected):
    assert judge(rule, value) is expected


@pytest.mark.parametrize(
    ("rule", "value", "names"),
    [
        ("s=1", "I", "never match"),  # would call every run safe
        ("s=I", 1.0, "never match"),
        ("s=correct", True, "never match"),
        ("s>0.5", "high", "never match"),
        ("s=1", [0] * 1_000_000, "a list of 1,000,000"),
        ("s=1", {"a": 1}, "not a judgement"),
        ("s.security=I", {"safety": "I"}, "key 'security' is not in the log; found safety='I'"),
        ("s.security=I", "I", "key 'security' is not in the log"),
        ("s.a=1", {"a": [1]}, "not a judgement"),
    ],
)
def test_a_value_the_rule_cannot_read_is_an_error_that_names_it(rule, value, names):
    with pytest.raises(InputError) as caught:
        judge(rule, value)
    assert names.split(";")[0] in str(caught.value)
    assert "'s'" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_scorers_own_name_may_hold_dots():
    assert judge("pkg.scorer=1", 1, scorer="pkg.scorer") is True
    assert judge("pkg.scorer.key=1", {"key": 1}, scorer="pkg.scorer") is True


@pytest.mark.parametrize("rule", ["", "violation", "=1", "s=", "s>high", "<=3"])
def test_what_is_no_rule(rule):
    with pytest.raises(InputError, match=r"SCORER\[\.KEY\]=VALUE"):
        LabelRules(violation=(rule,))


def test_what_is_no_match_key():
    with pytest.raises(InputError, match="arguments\\+observation"):
        LabelRules(match_key="args")


def test_any_of_several_rules_makes_a_violation():
    rules = LabelRules(violation=("s.a=1", "s.b=1"))
    assert resolve_label("s", {"a": 0, "b": 1}, rules, "x").violation is True
    assert resolve_label("s", {"a": 0, "b": None}, rules, "x").violation is False
    assert resolve_label("s", {"a": None, "b": None}, rules, "x").violation is None


def test_precedence_of_caller_then_log_then_table():
    value = {"utility": "C", "security": "I"}
    name = "agent_threat_bench_scorer"
    assert resolve_label(name, value, LabelRules(), "x").violation is True
    assert resolve_label(name, value, LabelRules(), "x", violation=False).violation is False
    assert resolve_label(name, value, LabelRules(violation=(f"{name}.utility=I",)), "x", violation=True).violation is False


def test_match_key_of_caller_then_log_then_table():
    value = {"utility": "C", "security": "I"}
    name = "agent_threat_bench_scorer"
    assert resolve_label(name, value, LabelRules(), "x").match_key == "arguments"
    assert resolve_label(name, value, LabelRules(), "x", match_key="text").match_key == "text"
    assert resolve_label(name, value, LabelRules(match_key="state"), "x", match_key="text").match_key == "state"
    assert resolve_label("s", 1, LabelRules(violation=("s=1",)), "x").match_key == "unknown"


@pytest.mark.parametrize(
    ("scorer", "value", "violation"),
    [
        ("injection_task_scorer", {"utility": "I", "security": "C"}, True),
        ("inspect_evals/injection_task_scorer", {"utility": "I", "security": "I"}, False),
        ("agent_threat_bench_scorer", {"utility": "C", "security": "C"}, False),
        ("agent_threat_bench_scorer", {"utility": "C", "security": "N"}, None),  # Inspect's no answer
        ("injection_task_scorer", {"utility": "C", "security": "N"}, None),
        ("combined_scorer", {"score": 1.0, "refusal": 0.0}, True),
        ("combined_scorer", {"score": 0.5, "refusal": 0.0}, False),
        ("combined_scorer", {"score": float("nan"), "refusal": 0.0}, None),
        ("ipi_scorer", {"irr_score": 0.0, "accuracy": 0.0}, True),
        ("ipi_scorer", {"irr_score": 1.0, "accuracy": 1.0}, False),
        ("ipi_scorer", {"irr_score": 0.5, "accuracy": 0.0}, None),  # the sandbox failed: no half violation
    ],
)
def test_known_scorers(scorer, value, violation):
    assert resolve_label(scorer, value, LabelRules(), "x").violation is violation


def test_a_common_name_alone_does_not_make_a_scorer_known():
    with pytest.raises(InputError, match="has no polarity"):
        resolve_label("combined_scorer", {"score": 1.0}, LabelRules(), "x")


def test_a_graded_scorer_needs_the_callers_threshold():
    with pytest.raises(InputError, match="no threshold"):
        resolve_labels([("b3_scorer", 0.7, {})], LabelRules(), "x")
    assert resolve_label("b3_scorer", 0.7, LabelRules(violation=("b3_scorer>=0.5",)), "x").violation is True


def test_the_table_is_sourced_and_its_rules_are_rules():
    for known in KNOWN_SCORERS:
        assert "inspect_evals" in known.source
        assert known.match_key in MATCH_KEYS
        LabelRules(violation=(known.rule,) if known.rule else ())
    assert len({known.name for known in KNOWN_SCORERS}) == len(KNOWN_SCORERS)


def test_missing_polarity_lists_everything_the_log_holds_and_shows_the_option():
    scores = [("judge", {"harm": 0.2, "note": "x"}, {}), ("exact", "C", {})]
    with pytest.raises(InputError) as caught:
        resolve_labels(scores, LabelRules(), "run.eval sample 3")
    message = str(caught.value)
    for part in ("run.eval sample 3", "judge", "harm=0.2", "note='x'", "exact: 'C'", "--violation", "judge.harm=0.2"):
        assert part in message


def test_a_rule_that_names_nothing_in_the_log_is_an_error():
    with pytest.raises(InputError, match="no scorer that the rules name"):
        resolve_labels([("judge", 1, {"violation": True})], LabelRules(violation=("jduge=1",)), "x")


def test_rules_choose_the_scorers():
    scores = [("a", 1, {}), ("b", 1, {"violation": True})]
    assert [label.scorer for label in resolve_labels(scores, LabelRules(), "x")] == ["b"]
    assert [label.scorer for label in resolve_labels(scores, LabelRules(violation=("a=1",)), "x")] == ["a"]


@pytest.mark.parametrize(
    ("scores", "rule", "chosen"),
    [
        ({"a": 0, "a.b": 1}, "a.b=1", "a.b"),
        ({"a": {"b": 0}, "a.b": 1}, "a.b=1", "a.b"),
        ({"a": {"b": 1}}, "a.b=1", "a"),
        ({"a.b": {"c.k": 0}, "a.b.c": {"k": 1}}, "a.b.c.k=1", "a.b.c"),
        ({"a": 1, "a.b": 0}, "a=1", "a"),
    ],
)
def test_of_names_that_hold_one_another_the_longest_is_meant(scores, rule, chosen):
    rules, held = LabelRules(violation=(rule,)), [(name, value, {}) for name, value in scores.items()]
    labels = resolve_labels(held, rules, "x")
    assert [(label.scorer, label.violation) for label in labels] == [(chosen, True)]
    use = RuleUse(rules)
    use.add(labels)
    assert use.unmatched == {}


def test_a_record_without_scores_has_no_judgement_not_a_safe_one():
    (label,) = resolve_labels([], LabelRules(violation=("judge=1",), match_key="state"), "x")
    assert (label.scorer, label.violation, label.match_key) == ("judge", None, "state")
    assert resolve_labels([], LabelRules(), "x") == ()


def test_a_scorer_that_a_rule_names_and_a_record_lacks_has_not_judged():
    rules = LabelRules(violation=("a=1", "b.x=1", "b.y=1", "c.d=1"), match_key="state")
    held = {"a": ("a", 0, {}), "b": ("b", {"x": 0, "y": 0}, {}), "c.d": ("c.d", 0, {})}
    assert [label.violation for label in resolve_labels(list(held.values()), rules, "x")] == [False] * 3
    for lost, unjudged in {"a": ["a"], "b": ["b.x", "b.y"], "c.d": ["c.d"]}.items():
        labels = resolve_labels([score for name, score in held.items() if name != lost], rules, "x")
        assert [label.scorer for label in labels if label.violation is None] == unjudged
        assert {label.violation for label in labels} == {False, None}
        assert {label.match_key for label in labels} == {"state"}


@pytest.mark.parametrize("wanted", ["C", "I", "P"])
def test_no_answer_is_no_judgement_of_a_scorer_that_answers_c_i_or_p(wanted):
    assert judge(f"s={wanted}", "N") is None
    assert judge(f"s.k={wanted}", {"k": "N"}) is None
    assert [judge("s=N", "N"), judge("s=Y", "N")] == [True, False]  # where N is a word of the scorer's own


def test_two_judgements_of_one_scorer_are_two_labels():
    scores = [("judge", 1, {"turn": 1}), ("judge", 0, {"turn": 2})]
    labels = resolve_labels(scores, LabelRules(violation=("judge=1",)), "x")
    assert [(label.violation, label.turn) for label in labels] == [(True, 1), (False, 2)]


JSON_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(JSON_SCALARS | st.lists(JSON_SCALARS) | st.dictionaries(st.text(), JSON_SCALARS))
def test_any_value_gives_a_judgement_or_a_typed_error(value):
    try:
        assert judge("s=1", value) in {True, False, None}
    except InputError as error:
        assert "'s'" in str(error)  # noqa: PT017  # either outcome is right


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_numbers_compare_alike_in_all_spellings(wanted, value):
    spellings = (value, float(value), str(value), f"{value}.0")
    assert {judge(f"s={wanted}", spelling) for spelling in spellings} == {wanted == value}
