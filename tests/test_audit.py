from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from episodes import HARNESS, POLICY, make_episode, relabel

from litmuskit.adjudication import draw_sample, read_sample
from litmuskit.audit import Audit, audit_log
from litmuskit.calibration import calibrate, consensus
from litmuskit.cli import main
from litmuskit.display import safe_text
from litmuskit.errors import InputError, ManifestError, OutOfScopeError
from litmuskit.gate import THRESHOLD
from litmuskit.harness import simulate_episodes, write_simulation
from litmuskit.manifest import OracleManifest
from litmuskit.rates import estimate_rates
from litmuskit.readers import Log, read_log
from litmuskit.readers.jsonl import write_log
from litmuskit.records import Context, Episode, Event, Harness, Label, ToolCall, Transcript
from litmuskit.report import describe_methods, write_bundle, write_report
from litmuskit.reproduction import reproduce
from litmuskit.stimulus import fingerprint, fingerprint_turns


@pytest.fixture(scope="module")
def manifest() -> OracleManifest:
    return calibrate([make_episode("ref1"), make_episode("ref2", flagged=False)], {"ref1": "comply", "ref2": "refuse"})


def decide(episode: Episode, oracle: OracleManifest | None, **options: Any) -> tuple[str | None, tuple[str, ...]]:
    verdict = audit_log([episode], oracle, **options).verdicts[0]
    return verdict.decision, verdict.rules


def test_a_sound_violation_counts(manifest: OracleManifest) -> None:
    audit = audit_log([make_episode()], manifest)
    verdict = audit.verdicts[0]
    assert (verdict.decision, verdict.attestation, verdict.rules) == ("count", "calibrated", ())
    assert verdict.conditions == (True,) * 4
    assert verdict.mutation is False
    assert verdict.fingerprint == fingerprint_turns(make_episode().transcript)[1].stimulus
    assert audit["r1"] == verdict
    with pytest.raises(InputError, match="no such record"):
        audit["r2"]


def test_without_an_oracle_nothing_counts(manifest: OracleManifest) -> None:
    assert decide(make_episode(), None)[0] == "quarantine"
    audit = audit_log([make_episode()])
    assert audit.gate.verdict == "refused"
    assert "calibrate" in audit.gate.next_step
    assert "No oracle" in audit.statement


BLIND = make_episode(events=None, transcript=replace(make_episode().transcript, unlogged=frozenset({"returned"})))


@pytest.mark.parametrize(
    ("episode", "decision", "rule"),
    [
        (make_episode(status="errored", error="500"), "not-assessable", "errored"),
        (relabel(make_episode(), match_key="arguments"), "quarantine", "match-key-arguments"),
        (relabel(make_episode(), match_key="unknown"), "quarantine", "match-key-unknown"),
        (make_episode(observed="other"), "quarantine", "absent-from-manifest"),
        (make_episode(invalidated=True), "not-assessable", "invalidated"),
        (BLIND, "quarantine", "mutation-unknown"),
    ],
    ids=["errored", "arguments", "unknown-key", "altered", "invalidated", "unscreenable"],
)  # fmt: skip
def test_each_failing_condition_is_named(manifest: OracleManifest, episode: Episode, decision: str, rule: str) -> None:
    found, rules = decide(episode, manifest)
    assert found == decision
    assert rule in rules


def test_require_lowers_the_bar_by_name_and_every_table_says_so() -> None:
    runs = [make_episode(f"run{i}") for i in range(4)]
    agreed = consensus(runs)
    strict, lower = audit_log(runs, agreed), audit_log(runs, agreed, require="consensus")
    assert (strict.counts.counted, lower.counts.counted) == (0, 4)
    for table in (lower.to_table(), lower.ladder(), lower.rates()):
        assert "from rung consensus" in table.caption
    with pytest.raises(InputError, match="unknown rung"):
        audit_log(runs, agreed, require="sworn")


class Shelf:
    """A harness that returns what it is told to."""

    def __init__(self, **files: str) -> None:
        self.files = files

    def reset(self, instance: str) -> Context:
        return Context()

    def call(self, call: ToolCall, /) -> str | bytes:
        return self.files[str(dict(call.arguments)["path"])]  # type: ignore[arg-type]

    def score(self, transcript: Transcript, /) -> Label:
        return Label(scorer="judge", violation=None)


def test_reproduction_raises_the_rung(manifest: OracleManifest) -> None:
    episode = make_episode(observed="other")
    again = {"r1": reproduce(episode, Shelf(a="other"))}
    assert again["r1"].exact
    assert audit_log([episode], manifest, reproduced=again, require="re-executed").verdicts[0].decision == "count"
    assert audit_log([episode], manifest, reproduced=again).verdicts[0].decision == "quarantine"
    known = audit_log([make_episode()], manifest, reproduced={"r1": reproduce(make_episode(), Shelf(a="{}"))})
    assert known.verdicts[0].attestation == "reproduced"


def test_exact_reproduction_vouches_for_an_answer_to_novel_arguments(manifest: OracleManifest) -> None:
    novel = make_episode(path="new", observed="fresh")
    assert audit_log([novel], manifest).verdicts[0].decision == "quarantine"
    exact = {"r1": reproduce(novel, Shelf(new="fresh"))}
    assert audit_log([novel], manifest, reproduced=exact).verdicts[0].decision == "count"
    spaced = {"r1": reproduce(novel, Shelf(new=" fresh "), normalizers=["whitespace/1"])}
    assert audit_log([novel], manifest, reproduced=spaced).verdicts[0].decision == "quarantine"


def test_exact_reproduction_vouches_for_nothing_but_answers_to_novel_calls(manifest: OracleManifest) -> None:
    strange = make_episode(instance="never calibrated")
    asked = make_episode(path="new", observed="fresh")
    loose = replace(asked.transcript.messages[2], tool_call_id="of nobody")
    messages = (*asked.transcript.messages[:3], loose, *asked.transcript.messages[3:])
    calls = (asked.transcript.calls[0], replace(asked.transcript.calls[1], delivered=((0, 4),)))
    unasked = replace(asked, transcript=replace(asked.transcript, messages=messages, calls=calls, final=((0, 6),)))
    for episode in (strange, unasked):
        exact = {"r1": reproduce(episode, Shelf(a="{}", new="fresh"))}
        assert exact["r1"].exact
        assert audit_log([episode], manifest, reproduced=exact).verdicts[0].attestation == "re-executed"


def test_reproduction_compares_bytes_then_named_normalizers() -> None:
    episode = make_episode(observed="at 2026-01-01T10:00:00Z  done")
    plain = reproduce(episode, Shelf(a="at 2026-01-02T11:11:11Z done"))
    assert (plain.rung, plain.identical, len(plain.differing)) == ("unattested", 0, 1)
    folded = reproduce(episode, Shelf(a="at 2026-01-02T11:11:11Z done"), normalizers=["whitespace/1", "timestamps/1"])
    assert (folded.rung, folded.exact, folded.normalizers) == ("re-executed", False, ("whitespace/1", "timestamps/1"))
    assert reproduce(episode, Shelf(a="at 2026-01-02T11:11:11Z done"), normalizers=["whitespace/1"]).rung == "unattested"
    with pytest.raises(InputError, match="unknown normalizer"):
        reproduce(episode, Shelf(a=""), normalizers=["magic/9"])


def test_only_what_came_before_the_flag_is_executed_again() -> None:
    assert reproduce(make_episode(), Shelf(a="{}")).calls == 1
    assert reproduce(make_episode(flagged=False), Shelf(a="{}", b="done")).calls == 2


def test_adjudication_sheet_round_trip(manifest: OracleManifest, tmp_path: Path) -> None:
    groups = [{"lab": "xy"[i % 2]} for i in range(40)]
    audit = audit_log([make_episode(f"r{i}", flagged=i < 30, groups=g) for i, g in enumerate(groups)], manifest)
    sheet = draw_sample(audit, 10, "lab", 7, unflagged=4, path=tmp_path / "sheet.csv")
    filled = sheet.read_text().replace(",7,\n", ",7,yes\n").replace(",7,\r\n", ",7,yes\r\n")
    sheet.write_text(filled)
    counts = read_sample(audit, sheet, "lab", 7)
    assert counts == {"adjudicated": 10, "true": 10, "unflagged_adjudicated": 4, "missed": 4}
    assert audit.rates(cluster="none", adjudicated=counts).headline.estimand == "violations"  # type: ignore[union-attr]
    for wrong in ({"seed": 8, "strata": "lab"}, {"seed": 7, "strata": None}):
        with pytest.raises(InputError):
            read_sample(audit, sheet, **wrong)  # type: ignore[arg-type]


def test_match_decides_what_is_compared(manifest: OracleManifest) -> None:
    episode = make_episode()
    said = replace(episode.transcript.messages[1], content="Let me look.")
    messages = (episode.transcript.messages[0], said, *episode.transcript.messages[2:])
    first = replace(episode.transcript.calls[0], proposed=said)
    talkative = replace(
        episode, transcript=replace(episode.transcript, messages=messages, calls=(first, episode.transcript.calls[1]))
    )
    assert decide(talkative, manifest)[0] == "count"
    assert decide(talkative, manifest, match="exact")[0] == "quarantine"


def test_preflight_rejections_are_quarantined_and_gate(manifest: OracleManifest) -> None:
    states = {state: audit_log([make_episode()], manifest, preflight={"i1": state}) for state in ("yes", "no", "undetermined")}
    assert [a.verdicts[0].decision for a in states.values()] == ["count", "quarantine", "quarantine"]
    assert "instance-undetermined" in states["undetermined"].verdicts[0].rules
    lines = {s: next(line.state for line in a.gate.lines if line.condition == "pre-flight") for s, a in states.items()}
    assert lines == {"yes": "met", "no": "not met", "undetermined": "not shown"}
    assert states["yes"].gate.verdict == "publishable"
    elsewhere = audit_log([make_episode()], manifest, preflight={"i9": "yes"})
    assert elsewhere.gate.verdict == "refused"
    assert elsewhere.verdicts[0].decision == "quarantine"


def test_a_reference_episode_is_not_audited_by_its_own_oracle(manifest: OracleManifest) -> None:
    with pytest.raises(ManifestError, match="2: ref1, ref2"):
        audit_log([make_episode("ref1"), make_episode("r1"), make_episode("ref2", flagged=False)], manifest)


def test_a_stale_manifest_counts_nothing_and_keeps_the_other_decisions(manifest: OracleManifest) -> None:
    newer = replace(HARNESS, policies={**HARNESS.policies, "mutation": replace(POLICY, digest="sha256:11")})
    audit = audit_log([make_episode(harness=newer), make_episode("r2", harness=newer, status="errored", error="x")], manifest)
    assert [v.decision for v in audit.verdicts] == ["quarantine", "not-assessable"]
    assert "stale-manifest" in audit.verdicts[0].rules
    assert audit.gate.verdict == "refused"
    assert any(line.condition == "policy current" and line.state == "not met" for line in audit.gate.lines)


def test_another_cap_gates_but_bytes_that_were_calibrated_still_count(manifest: OracleManifest) -> None:
    capped = replace(HARNESS, policies={**HARNESS.policies, "truncation": replace(POLICY, digest="sha256:22")})
    audit = audit_log([make_episode(harness=capped)], manifest)
    assert audit.verdicts[0].decision == "count"
    assert audit.gate.verdict == "refused"


def test_a_live_fingerprint_that_disagrees_is_a_late_edit(manifest: OracleManifest) -> None:
    live = tuple(turn.stimulus for turn in fingerprint_turns(make_episode().transcript))
    assert decide(make_episode(live=live), manifest)[0] == "count"
    decision, rules = decide(make_episode(live=(live[0], "0" * 64)), manifest)
    assert decision == "quarantine"
    assert "no-fingerprint" in rules


def test_duplicates_are_quarantined(manifest: OracleManifest) -> None:
    twice = [
        make_episode(),
        relabel(make_episode(source=replace(make_episode().source, path="other")), violation=True, reason="again"),
    ]
    audit = audit_log(twice, manifest)
    assert [v.decision for v in audit.verdicts] == ["quarantine", "quarantine"]
    line = next(line for line in audit.gate.lines if line.condition == "distinct records")
    assert line.state == "not met"


def test_what_the_owner_invalidated_is_not_assessable_flagged_or_not(manifest: OracleManifest) -> None:
    log = [make_episode("a", invalidated=True), make_episode("b", flagged=False, invalidated=True)]
    assert audit_log(log, manifest).counts.not_assessable_unflagged == 1


def test_a_late_edit_nobody_declared_is_not_excused_by_equal_policies(manifest: OracleManifest) -> None:
    episode = make_episode()
    changed = replace(episode.transcript.messages[2], content="other")
    transcript = replace(episode.transcript, messages=(*episode.transcript.messages, changed), final=((0, 2), (5, 6), (3, 5)))
    decision, rules = decide(replace(episode, transcript=transcript), manifest)
    assert decision == "quarantine"
    assert "fault-outside-policy" in rules


def test_nothing_is_not_publishable(manifest: OracleManifest) -> None:
    for log in ([], [make_episode("benign", attacked=False)]):
        assert audit_log(log, manifest, preflight={"i1": "yes"}).gate.verdict == "refused"


def test_a_log_without_any_tool_loop_is_out_of_scope() -> None:
    bare = replace(make_episode().transcript.calls[0], context=Context(system="s"), observations=(), proposed=None)
    transcript = replace(make_episode().transcript, calls=(bare,))
    episode = make_episode(transcript=transcript, labels=(Label(scorer="judge", violation=False),))
    with pytest.raises(OutOfScopeError, match="no tool loop"):
        audit_log([episode])
    lost = replace(episode, record="lost", status="errored", transcript=Transcript(messages=(), calls=()))
    assert audit_log([lost]).counts.episodes == 1
    with pytest.raises(OutOfScopeError, match="no tool loop"):
        audit_log([lost, episode])
    unlogged = replace(transcript, unlogged=frozenset({"tools"}))
    assert audit_log([replace(episode, transcript=unlogged)]).counts.episodes == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/s"},
        "str",
        [1],
        {"required": 5},
        {"pattern": "("},
    ],
)
def test_a_tool_schema_that_cannot_be_read_is_unknown_not_a_crash(schema: Any) -> None:
    context = Context(system="s", tools=({"name": "read", "parameters": schema},))
    episode = relabel(make_episode(), schema_check=None)
    calls = tuple(replace(call, context=context) for call in episode.transcript.calls)
    decision, rules = decide(replace(episode, transcript=replace(episode.transcript, calls=calls)), None)
    assert decision == "quarantine"
    assert "schema-unknown" in rules


def test_every_flagging_scorer_must_compare_more_than_arguments(manifest: OracleManifest) -> None:
    label = make_episode().labels[0]
    both = make_episode(labels=(label, replace(label, scorer="other", match_key="arguments")))
    assert "match-key-arguments" in decide(both, manifest)[1]


def test_what_is_not_held_is_not_screened(manifest: OracleManifest) -> None:
    episode = make_episode(events=None)
    assert decide(episode, manifest)[0] == "count"
    call = episode.transcript.calls[0]
    blind = replace(call, observations=(replace(call.observations[0], raw=None, call=None, executed=None),))
    transcript = replace(episode.transcript, calls=(blind, episode.transcript.calls[1]))
    assert "mutation-unknown" in decide(replace(episode, transcript=transcript), manifest)[1]


@pytest.mark.parametrize(
    ("event", "decision"),
    [(Event(kind="mutation", turn=2), "quarantine"), (Event(kind="mutation", turn=2, position=0), "count")],
)
def test_a_mutation_declared_at_the_flagged_turn(manifest: OracleManifest, event: Event, decision: str) -> None:
    unpinned = replace(HARNESS, source=None)
    assert decide(make_episode(events=(event,), harness=unpinned), manifest)[0] == decision


@pytest.mark.parametrize("turn", [0, -1, 3, True, "2"])
def test_a_place_that_the_transcript_does_not_hold_is_refused(turn: Any) -> None:
    with pytest.raises(InputError, match="does not hold"):
        relabel(make_episode(), turn=turn)
    with pytest.raises(InputError, match="does not hold"):
        make_episode(events=(Event(kind="mutation", turn=turn),))
    with pytest.raises(InputError, match="does not hold"):
        relabel(make_episode(), position=9)


def test_unattacked_runs_are_neither_flagged_nor_in_n(manifest: OracleManifest) -> None:
    audit = audit_log([make_episode(), make_episode("benign", attacked=False)], manifest)
    assert (audit.counts.episodes, audit.counts.unattacked, audit.counts.flagged) == (1, 1, 1)
    assert audit.verdicts[1].decision is None
    assert all(rate.n == 1 for rate in audit.rates(cluster="none").rates if rate.estimand == "reported")


def test_the_gate_needs_every_line(manifest: OracleManifest) -> None:
    good = audit_log([make_episode()], manifest, preflight={"i1": "yes"})
    assert good.gate
    assert [line.state for line in good.gate.lines] == ["met"] * 9
    unnamed = audit_log([make_episode(harness=Harness(name="toy"))], manifest, preflight={"i1": "yes"})
    assert unnamed.gate.verdict == "refused"
    uncontrolled = audit_log([make_episode()], calibrate([make_episode("ref")]), preflight={"i1": "yes"})
    assert uncontrolled.gate.verdict == "refused"
    disagreeing = audit_log([make_episode()], calibrate([make_episode("ref")], {"ref": "refuse"}), preflight={"i1": "yes"})
    assert disagreeing.gate.verdict == "refused"


@pytest.mark.parametrize(("bad", "verdict"), [(0, "publishable"), (1, "publishable"), (2, "rerun-required")])
def test_the_two_percent_rule(manifest: OracleManifest, bad: int, verdict: str) -> None:
    log = [make_episode(f"ok{i}") for i in range(60 - bad)] + [
        relabel(make_episode(f"bad{i}"), match_key="arguments") for i in range(bad)
    ]
    audit = audit_log(log, manifest, preflight={"i1": "yes"})
    assert (bad / 60 > THRESHOLD) == (verdict == "rerun-required")
    assert audit.gate.verdict == verdict
    assert "inconclusive" in audit.gate.evidence


@pytest.mark.parametrize(("lost", "verdict"), [(1, "publishable"), (2, "rerun-required")])
def test_the_not_assessable_share(manifest: OracleManifest, lost: int, verdict: str) -> None:
    log = [make_episode(f"ok{i}", flagged=False) for i in range(60 - lost)]
    log += [make_episode(f"bad{i}", flagged=False, status="errored", error="x") for i in range(lost)]
    assert audit_log(log, manifest, preflight={"i1": "yes"}).gate.verdict == verdict


def test_rates_by_group_and_cluster(manifest: OracleManifest) -> None:
    log = [
        make_episode(f"r{i}", flagged=i % 3 == 0, groups={"pipeline": "ab"[i % 2], "user_task": str(i % 10)}) for i in range(60)
    ]
    audit = audit_log(log, manifest)
    by = audit.rates(by="pipeline", cluster="none")
    assert [(r.label, r.n, r.x) for r in by.rates if r.estimand == "reported"] == [("a", 30, 10), ("b", 30, 10)]
    assert audit.rates(cluster="none").rates[0].clusters is None
    with pytest.warns(UserWarning, match="clusters"):
        clustered = audit.rates().rates[0]
    assert clustered.clusters == 10
    assert audit.rates(cluster="none", level=0.9).rates[0].upper < audit.rates(cluster="none").rates[0].upper
    with pytest.raises(InputError, match="no such group"):
        audit.rates(by="planet")
    with pytest.raises(InputError, match="pooled sample"):
        audit.rates(by="pipeline", adjudicated={"adjudicated": 5, "true": 4})
    read = audit.rates(cluster="none", adjudicated={"adjudicated": 5, "true": 4})
    assert read.headline is not None
    assert read.headline.estimand == "confirmed"


def test_every_decision_is_in_the_json_and_the_four_counts_sum(manifest: OracleManifest) -> None:
    audit = audit_log(
        [make_episode(), make_episode("r2", observed="x"), make_episode("r3", status="errored", error="e")], manifest
    )
    whole = json.loads(json.dumps(audit.to_json(), allow_nan=False))
    assert whole["counted"] + whole["quarantined"] + whole["escalated"] + whole["not_assessable"] == whole["flagged"] == 3
    assert len(whole["verdicts"]) == whole["episodes"] == 3
    for verdict in whole["verdicts"]:
        assert {"record", "source", "instance", "epoch", "flagged", "decision", "attestation", "rules", "evidence"} <= set(
            verdict
        )
    assert {"verdict", "evidence", "conditions"} <= set(whole["gate"])
    assert {"estimand", "method", "estimate", "lower", "upper"} <= set(whole["rates"][0])


def test_ladder_counts_what_only_attestation_speaks_against(manifest: OracleManifest) -> None:
    odd = make_episode("odd", observed="never seen")
    keyed = relabel(make_episode("keyed"), match_key="arguments")
    rates = {r.label: r.c for r in audit_log([make_episode(), odd, keyed], manifest).ladder().rates}
    assert rates == {"unattested": 2, "consensus": 1, "re-executed": 1, "calibrated": 1, "reproduced": 0}


HOSTILE = "<img src=x onerror=alert(1)>\x1b[8m\u202e=1+1"


def test_hostile_text_is_inert_wherever_an_audit_shows_it(
    manifest: OracleManifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = audit_log(
        [make_episode(HOSTILE, instance=HOSTILE, status="errored", error=HOSTILE, groups={"model": HOSTILE})], manifest
    )
    page = write_report(audit, tmp_path / "a.html").read_text()
    bundle = write_bundle(audit, tmp_path / "bundle")
    pages = [audit._repr_html_(), page, audit.to_table()._repr_html_(), audit.verdicts[0]._repr_html_()]
    for text in (*pages, audit.to_table().to_text(), (bundle / "verdicts.csv").read_text(), safe_text(describe_methods(audit))):
        assert "<img" not in text or text not in pages
        assert "\x1b" not in text
        assert "\u202e" not in text
    with pytest.raises(InputError, match="something stands there"):
        write_bundle(audit, tmp_path / "bundle")


def test_figure_shows_the_ladder(manifest: OracleManifest) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    axes = audit_log([make_episode()], manifest).plot()
    assert "n = 1" in "".join(t.get_text() for t in axes.figure.findobj() if hasattr(t, "get_text")).replace("N", "n")


# the command line
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    write_simulation(simulate_episodes(60, faults={"replay": 0.3}, agents={"comply": 0.3, "repair": 0.3}, seed=3), folder)
    return folder


def test_audit_command(simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, reference = str(simulated / "log.jsonl"), str(simulated / "reference.jsonl")
    assert main(["calibrate", reference, "--out", str(tmp_path / "m")]) == 0
    capsys.readouterr()
    assert main(["audit", log, "--oracle", str(tmp_path / "m"), "--json", "-"]) == 1
    whole = json.loads(capsys.readouterr().out)
    assert whole["episodes"] == 60
    assert {verdict["source"] for verdict in whole["verdicts"]} == {log}
    assert whole["verdicts"][0]["place"] == f"{log}:2"
    assert whole["escalated"] > 0
    assert whole["counted"] > 0
    assert (
        main(
            [
                "audit",
                log,
                "--calibrate-from",
                reference,
                "--json",
                str(tmp_path / "a.json"),
                "--html",
                str(tmp_path / "a.html"),
            ]
        )
        == 1
    )
    again = json.loads((tmp_path / "a.json").read_text())
    assert [v["decision"] for v in again["verdicts"]] == [v["decision"] for v in whole["verdicts"]]
    assert "Gate: refused" in capsys.readouterr().out
    assert main(["audit", log, "--consensus", "--require", "consensus", "--workers", "2"]) == 1
    assert "stimulus drift" in capsys.readouterr().out
    assert main(["audit", log, "--match-key", "arguments", "--oracle", str(tmp_path / "m"), "--json", "-"]) == 1
    assert main(["verify", str(tmp_path / "m")]) == 0
    assert main(["verify", str(tmp_path / "m"), "--at-least", "2"]) == 2
    assert main(["calibrate", reference, "--out", str(tmp_path / "m")]) == 0
    assert "unchanged" in capsys.readouterr().out


def test_a_second_calibration_supersedes_the_first(simulated: Path, tmp_path: Path) -> None:
    reference, expected = str(simulated / "reference.jsonl"), tmp_path / "expected.json"
    main(["calibrate", reference, "--out", str(tmp_path / "m")])
    moved = tmp_path / "moved.jsonl"
    moved.write_bytes((simulated / "reference.jsonl").read_bytes().replace(b'"version":"', b'"version":"9', 1))
    assert main(["calibrate", str(moved), "--out", str(tmp_path / "m")]) == 0
    assert json.loads((tmp_path / "m" / "manifest.json").read_text())["version"] == 2  # same stimuli, another harness
    record = next(iter(read_log(reference))).record
    expected.write_text(json.dumps({record: "refuse"}))
    assert main(["calibrate", reference, "--out", str(tmp_path / "m"), "--expected", str(expected)]) == 0
    header = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert header["version"] == 3
    assert header["supersedes"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "no/such/path"],
        ["audit", "{tmp}/empty.jsonl"],
        ["audit", "{tmp}/cut.jsonl"],
        ["audit", "{tmp}/unknown.json"],
        ["audit", "{tmp}/folder"],
        ["audit", "{log}", "--oracle", "{tmp}/none"],
        ["audit", "{log}", "--require", "sworn"],
        ["audit", "{log}", "--preflight", "{tmp}/none.jsonl"],
        ["calibrate", "{log}", "--out", "{tmp}/m2"],
        ["fingerprint", "{tmp}/cut.jsonl"],
        ["compare", "{tmp}/unknown.json", "{tmp}/none"],
        ["simulate", "--faults", "gremlins=1", "--out", "{tmp}/s"],
        ["simulate", "--faults", "replay=2", "--out", "{tmp}/s"],
        ["simulate", "--faults", "replay", "--out", "{tmp}/s"],
        ["simulate", "--faults", "replay=0.1, replay=0.2", "--out", "{tmp}/s"],
        ["simulate", "--faults", "replay=0.1", "--faults", "cache=0.1,replay=0.1", "--out", "{tmp}/s"],
        ["simulate", "--agents", "comply=0.1", "--agents", "comply=0.1", "--out", "{tmp}/s"],
        ["rates", "--flagged", "5", "--episodes", "4"],
        ["verify", "{tmp}/none"],
        [],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_bad_input_exits_2_and_says_where(
    arguments: list[str], simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "cut.jsonl").write_bytes((simulated / "log.jsonl").read_bytes()[:5000])
    (tmp_path / "unknown.json").write_text('{"hello": "world"}')
    (tmp_path / "folder").mkdir()
    words = [a.format(tmp=tmp_path, log=simulated / "log.jsonl") for a in arguments]
    try:
        status = main(words)
    except SystemExit as stop:
        status = int(stop.code or 0)
    assert status == 2
    assert capsys.readouterr().err


def test_keep_going_audits_the_rest_and_never_publishes(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (simulated / "log.jsonl").read_bytes()
    (tmp_path / "a.jsonl").write_bytes(good)
    (tmp_path / "b.jsonl").write_bytes(b'{"hello":')
    assert main(["audit", str(tmp_path)]) == 2
    capsys.readouterr()
    assert main(["audit", str(tmp_path), "--keep-going", "--json", "-"]) == 1
    whole = json.loads(capsys.readouterr().out)
    assert whole["episodes"] == 60
    assert [Path(f["source"]).name for f in whole["failures"]] == ["b.jsonl"]
    assert whole["gate"]["verdict"] == "refused"


def test_fingerprint_and_compare_commands(simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text(json.dumps({"system": "s", "messages": [{"role": "user", "content": "a"}]}))
    two.write_text(json.dumps({"system": "s", "messages": [{"role": "user", "content": "b"}]}))
    assert main(["fingerprint", str(one), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["spec"] == "litmuskit-fp/1"
    assert main(["compare", str(one), str(two)]) == 0
    assert "user message differs" in capsys.readouterr().out
    log = str(simulated / "log.jsonl")
    record = next(iter(read_log(log))).record
    assert main(["fingerprint", log, "--record", record, "--turn", "1"]) == 0
    assert main(["fingerprint", log]) == 2
    assert main(["compare", log, str(one), "--record", record, "--turn", "1"]) == 0
    episode = next(iter(read_log(log)))
    for turn in (1, len(episode.transcript.calls)):
        capsys.readouterr()
        assert main(["fingerprint", log, "--record", record, "--turn", str(turn), "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out)["stimulus"] == fingerprint(episode.transcript, turn=turn).stimulus


@pytest.mark.parametrize("option", [["--record", "r"], ["--turn", "1"]])
def test_an_option_that_names_a_part_of_a_log_is_refused_for_one_stimulus(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "1.json"
    one.write_text(json.dumps({"system": "s", "messages": []}))
    for words in (["fingerprint", str(one)], ["compare", str(one), str(one)]):
        assert main([*words, *option]) == 2
        assert option[0] in capsys.readouterr().err


@pytest.mark.parametrize("turn", ["0", "-1", "99"])
def test_a_turn_that_a_log_does_not_hold_is_refused(simulated: Path, turn: str) -> None:
    log = str(simulated / "log.jsonl")
    assert main(["fingerprint", log, "--record", next(iter(read_log(log))).record, "--turn", turn]) == 2


def test_reproduce_command(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(simulated / "reference.jsonl"), "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["rung"] for row in rows if row["calls"]} == {"re-executed"}
    assert main(["reproduce", str(simulated / "log.jsonl"), "--record", "nobody"]) == 2


def test_by_reaches_the_json_and_an_unknown_group_is_an_error(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(simulated / "log.jsonl")
    assert main(["audit", log, "--by", "instance", "--json", "-"]) == 1
    assert len({row["label"] for row in json.loads(capsys.readouterr().out)["rates"]}) > 5
    assert main(["audit", log, "--by", "planet", "--json", "-"]) == 2
    assert main(["audit", log, "--expected", log]) == 2


def test_rates_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rates", "--flagged", "120", "--episodes", "1000", "--adjudicated", "40", "--true", "37", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    confirmed = next(row for row in rows if row["role"] == "headline")
    assert round(confirmed["estimate"], 4) == 0.111


RATES = {"flagged": "120", "episodes": "1000", "quarantined": "12", "escalated": "5", "not-assessable": "3", "assessed": "950",
         "exposed": "700", "adjudicated": "40", "true": "37", "unflagged-adjudicated": "50", "missed": "1", "caught": "95/100",
         "cleared": "190/200", "transport": "same-agent", "level": "0.95"}  # fmt: skip
OTHER_RATES = {"flagged": "121", "transport": "stub", "level": "0.9", "caught": "94/100", "cleared": "191/200"}


def print_rates(capsys: pytest.CaptureFixture[str], options: Mapping[str, str]) -> tuple[int, str, str]:
    status = main(["rates", *(word for name, value in options.items() for word in (f"--{name}", value)), "--json", "-"])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("name", RATES)
def test_every_option_of_rates_changes_the_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    costly = [*RATES][[*RATES].index("unflagged-adjudicated") : -1]
    known = {key: value for key, value in RATES.items() if key not in costly or name in costly}
    changed = {**known, name: OTHER_RATES.get(name) or str(int(RATES[name]) - 1)}
    (status, one, _), (other_status, two, _) = print_rates(capsys, known), print_rates(capsys, changed)
    assert status == other_status == 0
    assert one != two


@pytest.mark.parametrize("name", ["true", "adjudicated", "missed", "unflagged-adjudicated", "caught", "cleared", "transport"])
def test_half_a_situation_is_refused_on_the_command_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, error = print_rates(capsys, {key: value for key, value in RATES.items() if key != name})
    assert (status, out) == (2, "")
    assert name.replace("-", "_") in error


def test_rates_takes_one_count_per_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"flagged": [1, 2, 0, 3] * 6, "episodes": [5] * 24, "quarantined": [1, 0, 0, 1] * 6}
    options = {name: ",".join(map(str, column)) for name, column in columns.items()}
    assert json.loads(print_rates(capsys, options)[1]) == estimate_rates(**columns).to_json()  # type: ignore[arg-type]
    status, _, error = print_rates(capsys, options | {"quarantined": "1"})
    assert (status, "mixed" in error) == (2, True)


@pytest.mark.parametrize(("name", "word"), [("caught", "95"), ("caught", "1/2/3"), ("flagged", "1,x"), ("true", "1.5")])
def test_a_count_that_is_none_is_a_usage_error(name: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["rates", *(w for key, value in (RATES | {name: word}).items() for w in (f"--{key}", value))])
    assert "found" in capsys.readouterr().err


def test_simulate_writes_log_reference_truth_and_manifest(tmp_path: Path) -> None:
    words = [
        "simulate",
        "--faults",
        "replay=0.1,truncate=512",
        "--agents",
        "repair=0.5,comply=0.2",
        "--episodes",
        "30",
        "--seed",
        "1",
    ]
    assert main([*words, "--out", str(tmp_path / "runs")]) == 0
    names = {"log.jsonl", "reference.jsonl", "truth.jsonl", "manifest", "preflight.jsonl"}
    assert {p.name for p in (tmp_path / "runs").iterdir()} == names
    assert (
        main(["audit", str(tmp_path / "runs" / "log.jsonl"), "--oracle", str(tmp_path / "runs" / "manifest"), "--json", "-"])
        == 1
    )


def test_demo_writes_its_figure_and_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    for name in ("ladder.png", "audit.json"):
        assert str(tmp_path / "demo" / name) in out
        assert (tmp_path / "demo" / name).stat().st_size > 1000
    for word in ("Verdicts", "Gate: ", "Attestation ladder", "escalate"):
        assert word in out


def test_python_api_of_the_readme(simulated: Path) -> None:
    import litmuskit as lk

    audit = lk.audit_log(lk.read_log(simulated / "log.jsonl"), lk.calibrate(lk.read_log(simulated / "reference.jsonl")))
    assert isinstance(audit, Audit)
    assert len(audit.to_frame()) == 60
    assert OutOfScopeError is lk.OutOfScopeError


def judged_log(path: Path, values: list[Any], violation: list[str], **facts: Any) -> Log:
    """A log whose scorer j wrote these values, read under the caller's rules."""
    said = {"violation": None, "match_key": "arguments+observation", "schema_check": False, "turn": None, "position": None}
    episodes = [relabel(make_episode(f"{path.stem}{i}", **facts), scorer="j", value=v, **said) for i, v in enumerate(values)]
    write_log(path, episodes)
    return read_log(path, violation=violation)


def state_rules(audit: Audit) -> tuple[str, str] | None:
    return next(((line.state, line.detail) for line in audit.gate.lines if line.condition == "violation rules"), None)


@pytest.mark.parametrize(
    ("values", "rules", "state"),
    [
        (["Yes", "No"], ["j=violated"], "not shown"),
        (["No", "No"], ["j=violated"], "not shown"),
        (["Yes", "No"], ["j=Yes"], "met"),
        ([0, 0.0, False, "0"], ["j=1"], "not shown"),
        ([0, 1], ["j=1"], "met"),
        ([0.1, 0.7], ["j>=0.9"], "not shown"),
        ([None, None], ["j=1"], "not shown"),
        ([{"k": "a"}, {"k": "b"}], ["j.k=c"], "not shown"),
        ([{"k": "a"}, {"k": "b"}], ["j.k=b"], "met"),
        (["a", "b"], ["j=b", "j=c"], "met"),  # the scorer is shown to find some; the statement names the rest
        ([{"k": "a", "l": "x"}], ["j.k=a", "j.l=y"], "not shown"),
    ],
)
def test_a_rule_that_never_matched_is_said_and_publishes_nothing(
    tmp_path: Path, values: list[Any], rules: list[str], state: str
) -> None:
    manifest = calibrate([make_episode("ref")], {"ref": "comply"})
    audit = audit_log(judged_log(tmp_path / "log.jsonl", values, rules), manifest, preflight={"i1": "yes"})
    found, detail = state_rules(audit)
    assert found == state
    unmatched = [rule for rule in rules if f"no record matched {rule}" in audit.statement]
    assert ("values seen, none" in detail) is (set(values) == {None} if not isinstance(values[0], dict) else False)
    assert all(rule in detail for rule in unmatched)
    assert bool(unmatched) >= (state == "not shown")
    if not audit.counts.flagged:
        assert unmatched == rules
        assert audit.gate.verdict == "refused"
        assert "no record matched" in audit.rates(cluster="none").caption
    assert all(repr(value) in detail for value in values if unmatched and isinstance(value, str) and not value.isdigit())


@pytest.mark.parametrize(
    ("values", "rules", "publishable"),
    [
        ([0, 0], ["j=1"], True),
        (["No"], ["j=Yes"], True),
        (["refused", "ignored"], ["j=Yes"], False),  # two values and neither is it: is "Yes" one at all?
        ([0.1, 0.7], ["j>=0.9"], True),
        ([None], ["j=1"], False),
    ],
)
def test_a_safe_run_is_published_where_controls_show_that_the_scorer_fires(
    tmp_path: Path, values: list[Any], rules: list[str], publishable: bool
) -> None:
    fires = {"j=1": 1, "j=Yes": "Yes", "j>=0.9": 0.95}[rules[0]]
    manifest = calibrate(judged_log(tmp_path / "ref.jsonl", [fires], rules), {"ref0": "comply"})
    audit = audit_log(judged_log(tmp_path / "log.jsonl", values, rules), manifest, preflight={"i1": "yes"})
    assert audit.counts.flagged == 0
    assert bool(audit.gate) is publishable
    null = calibrate(judged_log(tmp_path / "null.jsonl", [values[0]], rules), {"null0": "null"})
    assert not audit_log(judged_log(tmp_path / "again.jsonl", values, rules), null, preflight={"i1": "yes"}).gate


def test_without_rules_of_the_caller_the_gate_has_no_line_for_them(manifest: OracleManifest) -> None:
    assert state_rules(audit_log([make_episode()], manifest)) is None


@pytest.mark.parametrize(
    "words",
    [
        ["audit", ""],
        ["audit", "{log}", ""],
        ["audit", "{log}", "--oracle", ""],
        ["audit", "{log}", "--json", ""],
        ["audit", "{log}", "--html", ""],
        ["audit", "{log}", "--calibrate-from", "{log}", ""],
        ["calibrate", "{log}", "--out", ""],
        ["fingerprint", "", "--record", "r"],
        ["verify", ""],
    ],
)
def test_an_empty_name_is_no_name(
    simulated: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(simulated)
    with pytest.raises(SystemExit) as caught:
        main([word.format(log=simulated / "log.jsonl") for word in words])
    assert caught.value.code == 2
    place = words[words.index("") - 1]
    said = "--calibrate-from" if "--calibrate-from" in words else place if place.startswith("--") else ""
    assert f"argument {said}" in (err := capsys.readouterr().err)
    assert "nothing is named" in err


def test_no_faults_and_no_agents_are_named_by_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["simulate", "--episodes", "6", "--agents", "comply=1"]
    assert main([*given, "--faults", "", "--out", str(tmp_path / "a")]) == main([*given, "--out", str(tmp_path / "b")]) == 0
    assert (tmp_path / "a" / "log.jsonl").read_bytes() == (tmp_path / "b" / "log.jsonl").read_bytes()
    assert main(["simulate", "--episodes", "6", "--agents", "", "--out", str(tmp_path / "c")]) == 0
    assert not any(episode.flagged for episode in read_log(tmp_path / "c" / "log.jsonl"))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("path", ["", [], [""], ["log.jsonl", ""]])
def test_no_path_is_not_the_working_directory(path: Any, simulated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(simulated)
    with pytest.raises(InputError, match="no log was named"):
        read_log(path)


@pytest.mark.parametrize("kind", [None, 3, ["comply"], {}, "dance", True])
def test_a_control_of_no_known_kind_is_refused_with_its_place(kind: Any) -> None:
    for expected in ({"ref": kind}, {"nobody": kind}):
        with pytest.raises(InputError, match="unknown control") as caught:
            calibrate([make_episode("ref")], expected)
        assert next(iter(expected)) in str(caught.value)


@pytest.mark.parametrize("told", [{"adjudicated": {"true": 1, "episodes": 3}}, {"controls": {"sensitivity": 0.9}}])
def test_rates_refuse_counts_they_do_not_know(told):
    with pytest.raises(InputError, match="unknown counts; expected adjudicated, caught"):
        audit_log([make_episode()]).rates(**told)
