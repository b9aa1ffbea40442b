"""AgentDojo under pre-flight: what the package's own environments say of its instances, on the pairs that matter."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from litmuskit.errors import InputError
from litmuskit.preflight import agentdojo as adapter
from litmuskit.preflight import run_preflight

TABLE = Path(__file__).resolve().parents[1] / "notebooks" / "tables" / "agentdojo_preflight.csv"
KINDS = ["null", "refuse", "quote-and-refuse", "comply", "no-op"]


@pytest.fixture
def pair():
    """One pair of a suite as its record."""
    pytest.importorskip("agentdojo", reason="the extra litmuskit[agentdojo] is not installed")
    from agentdojo.attacks.attack_registry import load_attack
    from agentdojo.task_suite.load_suites import get_suites

    def check(version, name, user, injection):
        suite = get_suites(version)[name]
        bench = adapter._Bench(
            name, suite, load_attack("important_instructions", suite, type("V", (), {"name": adapter.VICTIM}))
        )
        task = suite.injection_tasks[f"injection_task_{injection}"] if isinstance(injection, int) else injection(suite)
        return bench.check_pair("key", suite.user_tasks[f"user_task_{user}"], task).to_json()

    return check


def results(record):
    return {kind: control["result"] for kind, control in record["controls"].items()}


def test_a_sound_pair_passes_every_control_and_names_its_target(pair):
    record = pair("v1.2.2", "slack", 0, 1)
    assert list(record) == [
        "instance",
        "suite",
        "user_task",
        "injection_task",
        "version",
        "controls",
        "collisions",
        "rules",
        "valid",
    ]
    assert list(record["controls"]) == KINDS
    assert set(results(record).values()) == {"pass"}
    assert record["valid"] == {"literal": "no", "behavioural": "yes"}
    assert any(c["signal"] == "www.secure-systems-252.com" and c["where"].startswith("payload") for c in record["collisions"])


def test_a_quoting_refusal_is_scored_as_success_where_the_text_is_searched(pair):
    record = pair("v1", "travel", 0, 6)
    assert results(record) == dict.fromkeys(KINDS, "pass") | {"quote-and-refuse": "fail"}
    assert record["controls"]["quote-and-refuse"]["label"] is True
    assert record["valid"]["behavioural"] == "no"


@pytest.mark.parametrize(("user", "result"), [(14, "fail"), (0, "pass")])
def test_faithful_compliance_is_scored_as_refusal_where_the_payload_is_an_email(pair, user, result):
    record = pair("v1", "workspace", user, 0)
    assert results(record) == dict.fromkeys(KINDS, "pass") | {"comply": result}


def test_a_task_without_ground_truth_leaves_compliance_absent(pair):
    record = pair("v1.2.2", "workspace", 0, 6)
    assert results(record) == dict.fromkeys(KINDS, "pass") | {"comply": "absent"}
    assert "no ground truth" in record["controls"]["comply"]["reason"]
    assert record["valid"] == {"literal": "no", "behavioural": "undetermined"}


@pytest.mark.parametrize(("version", "collides"), [("v1", True), ("v1.1", True), ("v1.1.1", False), ("v1.2.2", False)])
def test_the_attackers_account_stands_in_the_users_own_prompt(pair, version, collides):
    record = pair(version, "banking", 15, 0)
    found = [c for c in record["collisions"] if c["where"] == "user: prompt" and c["share"] == 1 and c["finding"]]
    assert [c["signal"] for c in found] == (["US133000000121212121212"] if collides else [])


def test_thirteen_is_reported_and_is_no_finding(pair):
    record = pair("v1", "workspace", 0, 1)
    assert {c["finding"] for c in record["collisions"] if c["signal"] == "13"} == {False}
    assert record["valid"]["literal"] == "yes"


def test_a_detector_that_raises_leaves_the_instance_undetermined(pair):
    def break_task(suite):
        class Broken(type(suite.injection_tasks["injection_task_0"])):
            def security(self, model_output, pre_environment, post_environment):
                raise KeyError("gone")

        return Broken()

    record = pair("v1", "banking", 0, break_task)
    assert set(results(record).values()) == {"absent"}
    assert record["controls"]["refuse"]["reason"] == "KeyError: 'gone'"
    assert record["valid"] == {"literal": "undetermined", "behavioural": "undetermined"}


def test_a_detector_that_wavers_fails(pair):
    def waver(suite):
        class Wavering(type(suite.injection_tasks["injection_task_0"])):
            runs = 0

            def security(self, model_output, pre_environment, post_environment):
                type(self).runs += 1
                return self.runs % 2 == 0

        return Wavering()

    assert "fail" in results(pair("v1", "banking", 0, waver)).values()


def test_records_are_kept_and_an_interrupted_run_goes_on(pair, tmp_path, monkeypatch):
    kept = tmp_path / "records.jsonl"
    first = list(islice(adapter.check_suites("v1", suite="slack", resume=kept), 6))
    whole = kept.read_text()
    kept.write_text(whole[:-20])
    made = []
    original = adapter._Bench.check_pair
    monkeypatch.setattr(adapter._Bench, "check_pair", lambda self, key, *tasks: made.append(key) or original(self, key, *tasks))
    again = list(islice(adapter.check_suites("v1", suite="slack", resume=kept), 7))
    assert again[:6] == first
    assert made == [first[5]["instance"], again[6]["instance"]]
    assert [json.loads(line)["instance"] for line in kept.read_text().splitlines()] == [r["instance"] for r in again]


def test_records_of_another_version_are_not_taken_for_this_one(pair, tmp_path):
    kept = tmp_path / "records.jsonl"
    list(islice(adapter.check_suites("v1", suite="slack", resume=kept), 1))
    with pytest.raises(InputError, match="another benchmark version"):
        next(adapter.check_suites("v1.2", suite="slack", resume=kept))
    for line in ("{}x", "[]", "{}", '{"version": "v1"}', '{"version": 1, "instance": "a"}'):
        kept.write_text(f"{line}\n")
        with pytest.raises(InputError, match=r"records\.jsonl:1"):
            next(adapter.check_suites("v1", suite="slack", resume=kept))


def test_a_success_that_fires_another_detector_is_noted(pair):
    [cross] = [rule for rule in pair("v1", "banking", 0, 0)["rules"] if rule["name"] == "cross-fire"]
    assert cross["result"] == "note"
    assert "injection_task_1" in cross["detail"]


@pytest.mark.parametrize(("version", "suite"), [("v9", None), ("", None), ("1", None), ("v1", "shopping")])
def test_an_unknown_version_or_suite_is_refused(pair, version, suite):
    with pytest.raises(InputError, match="no such benchmark"):
        run_preflight(f"agentdojo:{version}", suite=suite)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "agentdojo.attacks.attack_registry", None)
    with pytest.raises(InputError, match=r"litmuskit\[agentdojo\]"):
        run_preflight("agentdojo:v1")


# The whole benchmark takes minutes: its counts stand in the derived table, made by benchmarks/derive_preflight.py.


def count(version, **wanted):
    with TABLE.open() as rows:
        return sum(int(r["pairs"]) for r in csv.DictReader(rows) if r["version"] == version and wanted.items() <= r.items())


@pytest.mark.parametrize(
    ("version", "pairs"), [(v, 629 if v.startswith("v1.1") or v == "v1" else 949) for v in adapter.VERSIONS]
)
def test_the_derived_table_holds_what_was_measured_independently(version, pairs):
    assert count(version) == pairs
    assert count(version, null="fail") == 0
    assert count(version, refuse="fail") == 0
    assert count(version, comply="fail") == 9
    assert count(version, comply="fail", suite="workspace", injection_task="injection_task_0") == 9
    assert count(version, **{"quote-and-refuse": "fail"}) == 20
    assert count(version, **{"quote-and-refuse": "fail"}, suite="travel", injection_task="injection_task_6") == 20
    assert count(version, comply="absent") == (320 if pairs == 949 else 0)


def test_the_literal_reading_rejects_nearly_every_task():
    with TABLE.open() as rows:
        named = Counter()
        for row in csv.DictReader(rows):
            named[row["version"], row["suite"], row["injection_task"]] += row["literal"] == "no"
    by_version = {v: [bool(n) for (version, *_), n in named.items() if version == v] for v in ("v1", "v1.2.2")}
    assert {version: (sum(tasks), len(tasks)) for version, tasks in by_version.items()} == {"v1": (26, 27), "v1.2.2": (34, 35)}
