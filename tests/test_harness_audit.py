"""The whole chain against truth by construction: what an audit must never do, and what it must count."""

import pytest

from litmuskit.artifacts import FINDERS
from litmuskit.audit import audit_log
from litmuskit.calibration import calibrate
from litmuskit.harness import FAULTS, simulate_episodes, sweep_settings, tabulate_pairs

RATES = {name: 0.3 for name in FAULTS if name != "truncate"} | {"truncate": 900}
MILD = {name: rate if name == "truncate" else 0.06 for name, rate in RATES.items()}
AGENTS = {
    "comply": 0.2,
    "repair": 0.2,
    "reckless": 0.1,
    "re-read": 0.1,
    "remediate": 0.1,
    "error": 0.05,
    "no-op": 0.05,
    "malformed": 0.05,
}
CASES = {**{name: {name: rate} for name, rate in RATES.items()}, "all together": MILD, "none": {}}


def judge(**settings):
    """Simulate and audit: every flagged episode's truth beside its decision."""
    made = simulate_episodes(160, instances=8, **settings)
    audit = audit_log(made.episodes, calibrate(made.reference, made.controls))
    decided = {verdict.record: verdict.decision for verdict in audit.verdicts}
    return made, [(truth, decided[truth.record]) for truth in made.truth if truth.flagged]


@pytest.mark.parametrize("declare", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_three_claims_hold_under_every_fault(case, declare):
    _, flagged = judge(faults=CASES[case], agents=AGENTS, seed=3, declare=declare)
    assert flagged
    assert not [truth for truth, decision in flagged if decision == "escalate" and not truth.faulted]
    assert not [truth for truth, decision in flagged if decision == "count" and not truth.violated]
    if not (declare and {"truncate", "resample"} & set(CASES[case])):  # under other policies the manifest is stale
        assert not [truth for truth, decision in flagged if decision != "count" and truth.violated and not truth.faulted]


@pytest.mark.parametrize("key", ["arguments", "arguments+observation"])
@pytest.mark.parametrize("faults", [{"replay": 1.0}, {"truncate": 600}], ids=["replay", "truncate"])
def test_false_flags_on_the_repairing_agent_are_escalated_or_not_assessable(faults, key):
    _, flagged = judge(faults=faults, agents={"repair": 1.0}, match_key=key, seed=1)
    decisions = {decision for _, decision in flagged}
    assert decisions <= {"escalate", "not-assessable"}
    assert ("escalate" in decisions) is ("truncate" in faults or key == "arguments")


def test_nothing_is_counted_by_arguments_alone():
    _, flagged = judge(faults={}, agents=AGENTS, match_key="arguments", seed=1)
    assert {decision for _, decision in flagged} <= {"quarantine", "not-assessable"}


def test_state_grader_violations_are_counted():
    _, flagged = judge(faults={}, agents={"comply": 0.5}, match_key="state", seed=1)
    assert {decision for _, decision in flagged} == {"count"}


def test_confusion_reads_an_audit():
    made = simulate_episodes(40, faults={"replay": 0.5}, agents=AGENTS, match_key="arguments", instances=4)
    audit = audit_log(made.episodes, calibrate(made.reference, made.controls))
    assert made.confusion(audit) == made.confusion(audit.verdicts)
    assert sum(sum(row[1:]) for row in made.confusion(audit).rows) == 40


def test_a_manifest_regenerated_under_the_cap_counts_what_the_old_one_quarantines():
    counted = {}
    for name, under in (("old", None), ("new", {"truncate": 2500})):
        settings = {"faults": {"truncate": 2500}, "agents": {"comply": 0.6}, "declare": True, "seed": 4}
        made = simulate_episodes(160, instances=12, reference_faults=under, **settings)
        kept = [episode for episode in made.reference if not FINDERS["not-delivered"](episode)]
        counted[name] = audit_log(made.episodes, calibrate(kept)).counts.counted
    assert counted["new"] > counted["old"]


def test_surface_counts_what_was_simulated_and_pairs_name_the_stale_one():
    faults = {f"{rate}": {"faults": {"replay": rate}} for rate in (0.0, 1.0)}
    keys = {key: {"match_key": key} for key in ("arguments", "arguments+observation")}
    surface = sweep_settings(
        faults, keys, episodes=24, instances=4, agents={"repair": 0.5, "comply": 0.5}, axes=("rate", "key")
    )
    table = surface.to_table(within=(0.4, 0.6))
    assert len(table) == 4
    assert table.columns[:2] == ("rate", "key")
    assert [row[3:5] for row in table if row[0] == "0.0"] == [(row[3], 0) for row in table if row[0] == "0.0"]
    assert surface.cells["1.0", "arguments"][2] > 5 > surface.cells["1.0", "arguments+observation"][2] == 0
    assert surface.plot().texts[0].get_text() == "0.0000"

    made = simulate_episodes(8, instances=2, faults={"replay": 1.0}, agents={"repair": 1.0}, match_key="arguments")
    pairs = tabulate_pairs(made.episodes[0], made.reference).to_frame()
    struck = pairs[pairs["grader"].notna()]
    assert list(struck["pair calibrated"]) == [False]
    assert (pairs[pairs["grader"].isna()]["the history shows"] == "as proposed").all()
