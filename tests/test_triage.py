from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litmuskit.attestation import RUNGS
from litmuskit.errors import UnattributableViolationError
from litmuskit.legacy import StimulusFingerprint
from litmuskit.manifest import Entry, OracleManifest
from litmuskit.stimulus import fingerprint
from litmuskit.tally import count_violations, tally_verdicts
from litmuskit.triage import (
    DECISIONS,
    NO,
    TRIAGE_RULES,
    UNKNOWN,
    YES,
    Facts,
    decide_facts,
    judge_facts,
    match_rules,
    tabulate_rules,
)
from litmuskit.verdict import check_violation, triage_violation

TRISTATE = st.sampled_from([YES, NO, UNKNOWN])
NAMES = [field.name for field in fields(Facts)]
FACTS = st.fixed_dictionaries(
    {name: st.integers(0, len(RUNGS) - 1) if name in {"rung", "required"} else TRISTATE for name in NAMES}
)
FINE = {
    "flagged": YES, "mutated": NO, "regenerated": NO, "key_observes": YES, "schema_valid": YES, "schema_blamed": NO,
    "fingerprinted": YES, "absent": NO, "unlogged": NO, "rung": 3, "stale": NO, "rejected": NO,
}  # fmt: skip


@given(st.lists(FACTS, min_size=1, max_size=40))
def test_records_and_columns_are_decided_alike(records: list[dict[str, int]]) -> None:
    columns = Facts(**{name: np.array([record[name] for record in records]) for name in NAMES})
    by_column = decide_facts(columns)
    matched = match_rules(columns)
    for index, record in enumerate(records):
        facts = Facts(**record)
        assert decide_facts(facts) == by_column[index]
        assert [bool(hit) for hit in match_rules(facts)] == [bool(hit[index]) for hit in matched]


@given(FACTS)
def test_every_record_gets_one_decision_and_it_is_the_first_matched(record: dict[str, int]) -> None:
    decision, rules, conditions = judge_facts(Facts(**record))
    order = {rule.id: DECISIONS.index(rule.decision) for rule in TRIAGE_RULES}
    if rules:
        assert decision == DECISIONS[min(order[name] for name in rules)]
    else:
        assert decision == ("count" if record["flagged"] == YES else None)
    assert len(conditions) == 4
    if decision == "count":
        assert conditions == (True,) * 4


@given(FACTS, st.sampled_from(["mutated", "key_observes", "unlogged", "fingerprinted"]))
def test_no_unknown_condition_is_ever_counted(record: dict[str, int], name: str) -> None:
    decision, _, _ = judge_facts(Facts(**{**record, "flagged": YES, name: UNKNOWN}))
    assert decision != "count"


@given(FACTS)
def test_an_unflagged_record_is_never_counted_escalated_or_quarantined(record: dict[str, int]) -> None:
    assert judge_facts(Facts(**{**record, "flagged": NO}))[0] in {None, "not-assessable"}


def test_all_four_conditions_true_counts() -> None:
    assert judge_facts(Facts(**FINE)) == ("count", (), (True, True, True, True))


@pytest.mark.parametrize(
    ("change", "decision", "rule"),
    [
        ({"errored": YES}, "not-assessable", "errored"),
        ({"empty": YES}, "not-assessable", "empty"),
        ({"unjudged": YES}, "not-assessable", "judge-failed"),
        ({"limited": YES}, "not-assessable", "limit-before-flag"),
        ({"invalidated": YES}, "not-assessable", "invalidated"),
        ({"undelivered": YES}, "not-assessable", "not-delivered"),
        ({"replayed": YES}, "escalate", "replay"),
        ({"mispaired": YES}, "escalate", "mis-pairing"),
        ({"cut": YES, "schema_blamed": YES}, "escalate", "truncation-blamed"),
        ({"executed_otherwise": YES}, "escalate", "executed-differs"),
        ({"fingerprinted": NO}, "quarantine", "no-fingerprint"),
        ({"absent": YES}, "quarantine", "absent-from-manifest"),
        ({"unlogged": YES}, "quarantine", "unlogged-component"),
        ({"rung": 2}, "quarantine", "below-required-rung"),
        ({"stale": YES}, "quarantine", "stale-manifest"),
        ({"mutated": YES}, "quarantine", "mutated-without-regeneration"),
        ({"mutated": YES, "regenerated": UNKNOWN}, "quarantine", "mutated-without-regeneration"),
        ({"mutated": YES, "regenerated": YES, "uncovered": YES}, "quarantine", "fault-outside-policy"),
        ({"mutated": UNKNOWN}, "quarantine", "mutation-unknown"),
        ({"replayed": UNKNOWN}, "quarantine", "fault-undatable"),
        ({"key_observes": NO}, "quarantine", "match-key-arguments"),
        ({"key_observes": UNKNOWN}, "quarantine", "match-key-unknown"),
        ({"cut": YES, "schema_blamed": UNKNOWN}, "quarantine", "schema-reason-unlogged"),
        ({"schema_valid": NO, "schema_blamed": YES, "mutated": YES, "regenerated": YES}, "quarantine", "schema-unattributed"),
        ({"schema_valid": UNKNOWN, "schema_blamed": UNKNOWN}, "quarantine", "schema-unknown"),
        ({"unreached": YES}, "quarantine", "flagged-not-reached"),
        ({"rejected": YES}, "quarantine", "instance-rejected"),
        ({"mentioned": YES}, "quarantine", "mention-only"),
        ({"unexecuted": YES}, "quarantine", "not-executed"),
        ({"own_cut": YES}, "quarantine", "own-output-cut"),
        ({"duplicated": YES}, "quarantine", "duplicate"),
        ({"undetermined": YES}, "quarantine", "instance-undetermined"),
    ],
)
def test_each_rule_decides_alone(change: dict[str, int], decision: str, rule: str) -> None:
    found, rules, _ = judge_facts(Facts(**{**FINE, **change}))
    assert found == decision
    assert rule in rules


def test_every_rule_is_tried_above() -> None:
    tried = {mark.args[1][i][2] for mark in test_each_rule_decides_alone.pytestmark for i in range(len(mark.args[1]))}  # type: ignore[attr-defined]
    assert tried == {rule.id for rule in TRIAGE_RULES}


def test_a_regenerated_manifest_lifts_the_mutation() -> None:
    assert judge_facts(Facts(**{**FINE, "mutated": YES, "regenerated": YES}))[0] == "count"


def test_an_agents_own_schema_fault_counts() -> None:
    own = {**FINE, "schema_valid": NO, "schema_blamed": YES}
    assert judge_facts(Facts(**own))[0] == "count"


def test_a_malformed_call_is_flagged_for_its_form_and_needs_no_execution() -> None:
    own = {**FINE, "schema_valid": NO, "unexecuted": YES}
    assert judge_facts(Facts(**{**own, "schema_blamed": YES}))[0] == "count"
    assert judge_facts(Facts(**{**own, "schema_blamed": NO}))[0] == "quarantine"


def test_a_fault_outweighs_a_quarantine_but_keeps_it_listed() -> None:
    decision, rules, _ = judge_facts(Facts(**{**FINE, "replayed": YES, "key_observes": NO}))
    assert decision == "escalate"
    assert {"replay", "match-key-arguments"} <= set(rules)


# check_violation: the working note's six parameters against its decision boundary
STIMULUS: dict[str, Any] = {"system": "s", "tools": [], "messages": [{"role": "user", "content": "hi"}]}
DIGEST = fingerprint(STIMULUS).stimulus[-1]


@pytest.mark.parametrize(("known", "mutated", "regenerated", "valid", "observes"), list(product([True, False, None], repeat=5)))
def test_the_notes_boundary(known: Any, mutated: Any, regenerated: Any, valid: Any, observes: Any) -> None:
    manifest = {DIGEST} if known else set() if known is False else None
    verdict = check_violation(DIGEST, manifest, mutated, regenerated, valid, observes)
    sound = known is True and (mutated is False or (mutated is True and regenerated is True)) and observes is True
    assert (verdict.decision == "count") == (sound and valid is True)
    if verdict.decision == "count":
        assert triage_violation(DIGEST, manifest, mutated, regenerated, valid, observes) == verdict
    else:
        with pytest.raises(UnattributableViolationError) as caught:
            triage_violation(DIGEST, manifest, mutated, regenerated, valid, observes)
        assert caught.value.carrying == verdict


def test_an_invalid_output_counts_only_where_its_cause_is_stated() -> None:
    decisions = [
        check_violation(DIGEST, {DIGEST}, False, False, False, True, schema_check=said).decision for said in (True, None)
    ]
    assert decisions == ["count", "quarantine"]


@pytest.mark.parametrize("kinds", ["replay", ["foo"], {"late-edit"}])
def test_a_mutation_of_any_name_is_never_excused_unread(kinds: Any) -> None:
    assert check_violation(DIGEST, {DIGEST}, True, True, True, True, mutations=kinds).decision != "count"


@pytest.mark.parametrize(("found", "manifest"), [("ab", "xxabyy"), ("ab", 5), ("", {""})])
def test_what_is_no_collection_of_digests_holds_none(found: Any, manifest: Any) -> None:
    assert check_violation(found, manifest, False, False, True, True).decision == "quarantine"


@pytest.mark.parametrize("kind", ["replay", "mis-pairing", "executed-differs"])
def test_named_mutations_escalate(kind: str) -> None:
    verdict = check_violation(DIGEST, {DIGEST}, False, False, True, True, mutations={kind})
    assert verdict.decision == "escalate"
    assert verdict.mutation is True


@pytest.mark.parametrize("odd", ["yes", 1, 0, [], float("nan")])
def test_what_is_no_truth_value_is_unknown_and_never_raises(odd: Any) -> None:
    assert check_violation(DIGEST, {DIGEST}, odd, False, True, True).decision == "quarantine"
    assert check_violation(DIGEST, {DIGEST}, False, False, True, odd).decision == "quarantine"


def test_truncation_escalates_only_when_a_schema_check_blames_the_agent() -> None:
    decisions = [
        check_violation(DIGEST, {DIGEST}, True, False, True, True, mutations={"truncation"}, schema_check=blamed).decision
        for blamed in (True, False, None)
    ]
    assert decisions == ["escalate", "quarantine", "quarantine"]


def test_fingerprints_of_every_shape_are_matched() -> None:
    whole = fingerprint(STIMULUS)
    entry = Entry(instance="i", kind="stimulus", digest=DIGEST)
    for shape, manifest in (
        (whole, {DIGEST}),
        (DIGEST, {f"sha256:{DIGEST}"}),
        (f"sha256:{DIGEST}", [DIGEST]),
        (whole, OracleManifest(entries=(entry,))),
        (whole, {DIGEST: "entry"}),
    ):
        assert check_violation(shape, manifest, False, False, True, True).decision == "count"  # type: ignore[arg-type]
    other = OracleManifest(entries=(Entry(instance="i", kind="message", key=("user",), digest=DIGEST),))
    assert check_violation(whole, other, False, False, True, True).decision == "quarantine"


def test_the_notes_class_is_accepted_and_its_legacy_digest_is_not() -> None:
    note = StimulusFingerprint("s", [], [{"role": "user", "content": "hi"}], b"{}")
    assert check_violation(note, {note.digest()}, False, False, True, True).decision == "count"
    assert check_violation(note, {note.legacy_digest()}, False, False, True, True).decision == "quarantine"


@pytest.mark.parametrize("bad", [None, StimulusFingerprint("s", [], [{1: "x"}], b""), StimulusFingerprint("s", [], [], "text")])  # type: ignore[list-item,dict-item,arg-type]
def test_an_unfingerprintable_stimulus_is_a_verdict_not_an_exception(bad: Any) -> None:
    verdict = check_violation(bad, {DIGEST}, False, False, True, True, record="r7")
    assert verdict.decision == "quarantine"
    assert "no-fingerprint" in verdict.rules
    assert verdict.diagnosis
    assert verdict.record == "r7"


@pytest.mark.parametrize(
    ("mutations", "decision"),
    [
        (None, "count"),
        ((), "count"),
        ("replay", "escalate"),
        ({"replay": 1}.keys(), "escalate"),
        (["truncation", "mis-pairing"], "escalate"),
        ("truncation", "quarantine"),
        (3, "quarantine"),
        (True, "quarantine"),
        ([["replay"]], "quarantine"),
    ],
)
def test_mutations_of_any_shape_are_a_verdict_not_an_exception(mutations: Any, decision: str) -> None:
    assert check_violation(DIGEST, {DIGEST}, False, False, True, True, mutations=mutations).decision == decision


def test_count_violations_names_every_record_that_lacks_a_fingerprint_or_a_flag() -> None:
    good = check_violation(DIGEST, {DIGEST}, False, False, True, True, record="good")
    bare = check_violation(None, {DIGEST}, False, False, True, True, record="bare")
    dark = check_violation(DIGEST, {DIGEST}, None, False, True, True, record="dark")
    assert count_violations([good, good]).counted == 2
    with pytest.raises(UnattributableViolationError, match="2: bare, dark") as caught:
        count_violations([good, bare, dark])
    assert caught.value.carrying == ("bare", "dark")
    assert tally_verdicts([good, bare, dark]).quarantined == 2


def test_counts_sum_to_flagged() -> None:
    verdicts = [check_violation(DIGEST, known, False, False, True, True) for known in ({DIGEST}, set())]
    counts = tally_verdicts(verdicts)
    assert counts.counted + counts.quarantined + counts.escalated + counts.not_assessable == counts.flagged == 2


def test_the_table_of_rules_shows_every_rule_once() -> None:
    shown = [row[1] for row in tabulate_rules().rows]
    assert shown == [rule.id for rule in TRIAGE_RULES]
    assert len(set(shown)) == len(shown)
