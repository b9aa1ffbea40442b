from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from episodes import HARNESS, POLICY, make_episode, relabel

import litmuskit.folder as folder_module
from litmuskit.attestation import attest_episode, check_manifest, diff_manifests, validate_manifest
from litmuskit.calibration import calibrate, consensus
from litmuskit.errors import InputError, ManifestError, StaleManifestError
from litmuskit.manifest import Entry, OracleManifest, read_manifest
from litmuskit.records import Context, Episode, Harness, Message, Policy, ToolCall


@pytest.fixture
def manifest() -> OracleManifest:
    return calibrate([make_episode("ref1"), make_episode("ref2", flagged=False)], {"ref1": "comply", "ref2": "refuse"})


def test_calibration_is_reproducible(manifest: OracleManifest, tmp_path: Path) -> None:
    again = calibrate([make_episode("ref1"), make_episode("ref2", flagged=False)], {"ref1": "comply", "ref2": "refuse"})
    assert again.content_id == manifest.content_id
    assert (
        again.write(tmp_path / "a").joinpath("entries.jsonl").read_bytes()
        == manifest.write(tmp_path / "b").joinpath("entries.jsonl").read_bytes()
    )
    noted = calibrate(
        [make_episode("ref1"), make_episode("ref2", flagged=False)],
        {"ref1": "comply", "ref2": "refuse"},
        annotations={"by": "me"},
    )
    assert noted.content_id == manifest.content_id
    assert noted.annotations == {"by": "me"}


def test_round_trip(manifest: OracleManifest, tmp_path: Path) -> None:
    assert read_manifest(manifest.write(tmp_path / "m")) == manifest
    assert read_manifest(tmp_path / "m" / "manifest.json") == manifest
    lines = (tmp_path / "m" / "entries.jsonl").read_text().splitlines()
    assert lines == sorted(
        lines, key=lambda line: tuple(str(json.loads(line)[k]) for k in ("instance", "kind", "key", "digest"))
    )


def corrupt(path: Path, change: Any) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("entries.jsonl", lambda b: b[:-20]),
        ("entries.jsonl", lambda b: b.replace(b'"message"', b'"massage"', 1)),
        ("entries.jsonl", lambda b: b + b),
        ("entries.jsonl", lambda b: b""),
        ("manifest.json", lambda b: b[: len(b) // 2]),
        ("manifest.json", lambda b: b.replace(b'"version":1', b'"version":2')),
        ("manifest.json", lambda b: b.replace(b'"seed":"7"', b'"seed":"8"')),
        ("manifest.json", lambda b: b"[]"),
        ("manifest.json", lambda b: b"{}"),
        ("manifest.json", lambda b: b.replace(b'"type":"litmuskit-manifest/1"', b'"type":"litmuskit-manifest/9"')),
        ("manifest.json", lambda b: b.replace(b'{"annotations"', b'{"annotations":{},"annotations"')),
        ("manifest.json", lambda b: b"\xff" + b),
    ],
    ids=["cut", "renamed", "doubled", "emptied", "half", "version", "seed", "list", "nothing", "type", "key-twice", "not-utf8"],
)
def test_a_cut_or_altered_manifest_is_refused_by_name(manifest: OracleManifest, tmp_path: Path, name: str, change: Any) -> None:
    folder = manifest.write(tmp_path / "m")
    corrupt(folder / name, change)
    with pytest.raises(ManifestError) as caught:
        read_manifest(folder)
    assert str(folder) in str(caught.value)


def test_forged_entries_with_a_recomputed_digest_still_fail_the_content_id(manifest: OracleManifest, tmp_path: Path) -> None:
    folder = manifest.write(tmp_path / "m")
    entries = (folder / "entries.jsonl").read_bytes().replace(b'"kind":"system"', b'"kind":"sistem"')
    (folder / "entries.jsonl").write_bytes(entries)
    header = json.loads((folder / "manifest.json").read_text())
    import hashlib

    header["entries"]["digest"] = f"sha256:{hashlib.sha256(entries).hexdigest()}"
    (folder / "manifest.json").write_text(json.dumps(header))
    with pytest.raises(ManifestError, match="content id"):
        read_manifest(folder)


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(tmp_path / "none")


def test_versions_never_go_down(manifest: OracleManifest, tmp_path: Path) -> None:
    folder = manifest.write(tmp_path / "m")
    manifest.write(folder)  # the same content again is no new version
    other = replace(manifest, entries=(*manifest.entries, Entry(instance="x", kind="system", digest="d")))
    with pytest.raises(ManifestError, match="never goes down"):
        other.write(folder)
    second = replace(other, version=2, supersedes=manifest.content_id)
    with pytest.raises(ManifestError, match="supersede"):
        replace(second, supersedes=None).write(folder)
    second.write(folder)
    assert read_manifest(folder).version == 2
    with pytest.raises(ManifestError, match="never goes down"):
        manifest.write(folder)
    with pytest.raises(ManifestError, match="already trusted"):
        read_manifest(folder, at_least=3)
    assert not [p for p in tmp_path.iterdir() if p.name != "m"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_write_killed_at_any_step_leaves_a_readable_manifest_or_says_what_to_do(
    manifest: OracleManifest, tmp_path: Path, exchanges: bool
) -> None:
    second = replace(manifest, version=2, supersedes=manifest.content_id, annotations={"by": "me"})
    ended, seen = 9, set()
    for step in range(1, 99):
        folder = manifest.write(tmp_path / str(step) / "m[1]")
        if (child := os.fork()) == 0:
            kill_at_step(step, partial(second.write, folder), exchanges)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if folder.exists():
            seen.add(read_manifest(folder).version)
        else:
            seen.add("interrupted")
            for attempt in (partial(second.write, folder), partial(read_manifest, folder)):
                with pytest.raises(ManifestError, match="interrupted") as caught:
                    attempt()
            aside, place = re.search(r"[Rr]ename (\S+) to (\S+?)\.?$", str(caught.value)).groups()
            Path(aside).rename(place)
            assert read_manifest(folder) == manifest
        if ended == 0:
            break
    assert ended == 0
    assert seen == ({1, 2} if exchanges else {1, 2, "interrupted"})
    assert [p.name for p in folder.parent.iterdir()] == ["m[1]"]


def kill_at_step(step: int, write: Callable[[], object], exchanges: bool) -> None:
    """Run ``write`` in this process and end it before the ``step``-th change on the disk, or with status 0."""
    left = step

    def count(change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(1)
            return change(*args, **named)

        return counted

    os.rename, os.fsync, os.rmdir = count(os.rename), count(os.fsync), count(os.rmdir)
    folder_module._exchange = count(folder_module._exchange if exchanges else lambda *_: False)
    try:
        write()
    finally:
        os._exit(0 if left > 0 else 2)


def test_a_rename_that_fails_puts_the_old_manifest_back(
    manifest: OracleManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = manifest.write(tmp_path / "m")
    rename = Path.rename
    monkeypatch.setattr(folder_module, "_exchange", lambda *_: False)

    def refuse(self: Path, target: Path) -> Path:
        if target == folder and not self.name.endswith("-old"):
            raise PermissionError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        replace(manifest, version=2, supersedes=manifest.content_id).write(folder)
    assert read_manifest(folder) == manifest
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_manifest_behind_a_link_is_replaced_where_it_stands(manifest: OracleManifest, tmp_path: Path) -> None:
    folder, link = manifest.write(tmp_path / "there" / "m"), tmp_path / "m"
    link.symlink_to(folder)
    replace(manifest, version=2, supersedes=manifest.content_id).write(link)
    assert link.is_symlink()
    assert read_manifest(folder).version == read_manifest(link).version == 2


def test_something_else_is_not_overwritten(manifest: OracleManifest, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    with pytest.raises(ManifestError, match="something else"):
        manifest.write(tmp_path / "notes")
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "years of work"


def test_a_dirty_source_is_refused() -> None:
    dirty = replace(HARNESS, source={"type": "git", "commit": "abc", "dirty": True})
    with pytest.raises(ManifestError, match="dirty"):
        calibrate([make_episode("ref", harness=dirty)])


def test_a_contaminated_reference_is_refused_and_all_faults_are_listed() -> None:
    broken = [make_episode(f"bad{i}", status="errored", error="HTTP 500") for i in range(3)]
    with pytest.raises(ManifestError, match=r"3: bad0.*bad1.*bad2") as caught:
        calibrate([make_episode("fine"), *broken])
    assert len(caught.value.carrying) == 3


def test_a_reference_under_two_policies_is_refused() -> None:
    other = replace(HARNESS, policies={**HARNESS.policies, "mutation": replace(POLICY, digest="sha256:11")})
    with pytest.raises(ManifestError, match="mutation policy changes"):
        calibrate([make_episode("a"), make_episode("b", harness=other)])


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"version": "9"}, {"source": {"type": "git", "commit": "z", "dirty": True}}]
)
def test_a_reference_under_two_harnesses_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="changes midway"):
        calibrate([make_episode("a"), make_episode("b", harness=replace(HARNESS, **change))])


def test_words_that_nobody_said_are_the_harness_s(manifest: OracleManifest) -> None:
    episode = make_episode()
    forged = Message(role="assistant", content="I decided to send it.")
    messages = (*episode.transcript.messages, forged)
    second = replace(episode.transcript.calls[1], delivered=((0, 3), (5, 6)))
    transcript = replace(episode.transcript, messages=messages, calls=(episode.transcript.calls[0], second))
    found = attest_episode(manifest, replace(episode, transcript=transcript))
    assert found.rung == "unattested"
    assert [c.key for c in found.absent] == [("assistant",)]


def test_an_unknown_match_is_refused(manifest: OracleManifest) -> None:
    with pytest.raises(InputError, match="unknown match"):
        attest_episode(manifest, make_episode(), match="bogus")  # type: ignore[arg-type]


def test_copies_of_one_execution_agree_with_nobody() -> None:
    copies = [make_episode(f"r{i}", run="same") for i in range(5)]
    assert {consensus(copies).attest(copy).rung for copy in copies} == {"unattested"}
    unnamed = [make_episode(f"r{i}", run=None) for i in range(5)]
    assert {consensus(unnamed).attest(copy).rung for copy in unnamed} == {"unattested"}


def test_an_empty_reference_is_refused() -> None:
    with pytest.raises(ManifestError, match="no episode"):
        calibrate([])


def test_controls_are_recorded_with_their_agreement(manifest: OracleManifest) -> None:
    assert [(c.kind, c.agrees) for c in manifest.controls] == [("comply", True), ("refuse", True)]
    wrong = calibrate([make_episode("ref")], {"i1": "refuse"})
    assert [c.agrees for c in wrong.controls] == [False]
    silent = relabel(make_episode("ref"), violation=None)
    unlabelled = calibrate([silent], {"ref": "null"})
    assert [c.agrees for c in unlabelled.controls] == [False]
    with pytest.raises(InputError, match="unknown control"):
        calibrate([make_episode("ref")], {"ref": "sideways"})
    with pytest.raises(ManifestError, match="did not run"):
        calibrate([make_episode("ref")], {"ref": "comply", "gone": "null"})


def test_what_was_calibrated_is_attested_and_anything_else_is_not(manifest: OracleManifest) -> None:
    assert attest_episode(manifest, make_episode()).rung == "calibrated"
    changed = attest_episode(manifest, make_episode(observed='{"x":1}'))
    assert changed.rung == "unattested"
    assert [c.kind for c in changed.absent] == ["observation"]
    assert "differs from the 1 calibrated" in changed.diagnosis[0]
    novel = attest_episode(manifest, make_episode(path="elsewhere"))
    assert "never calibrated" in novel.diagnosis[0]
    assert attest_episode(manifest, make_episode(instance="i2")).diagnosis == ("instance i2 was never calibrated",)
    assert attest_episode(None, make_episode()).rung == "unattested"


def test_turn_limits_what_must_be_attested(manifest: OracleManifest) -> None:
    changed = make_episode(observed="new")
    assert attest_episode(manifest, changed, turn=1).rung == "calibrated"
    assert attest_episode(manifest, changed, turn=2).rung == "unattested"


def test_match_modes_differ_on_the_agents_own_words(manifest: OracleManifest) -> None:
    episode = make_episode()
    said = replace(episode.transcript.messages[1], content="Let me look.")
    messages = (episode.transcript.messages[0], said, *episode.transcript.messages[2:])
    first = replace(episode.transcript.calls[0], proposed=said)
    calls = (first, episode.transcript.calls[1])
    talkative = replace(episode, transcript=replace(episode.transcript, messages=messages, calls=calls))
    rungs = {mode: attest_episode(manifest, talkative, match=mode).rung for mode in ("component", "env", "exact")}  # type: ignore[arg-type]
    assert rungs == {"component": "calibrated", "env": "calibrated", "exact": "unattested"}
    assert attest_episode(manifest, episode, match="exact").rung == "calibrated"


def with_context(episode: Episode, context: Context) -> Episode:
    calls = tuple(replace(call, context=context) for call in episode.transcript.calls)
    return replace(episode, transcript=replace(episode.transcript, calls=calls))


def test_reordered_tools_are_diagnosed() -> None:
    a, b = {"name": "a"}, {"name": "b"}
    first, second = (
        with_context(make_episode(name), Context(tools=tools)) for name, tools in (("ref", (a, b)), ("run", (b, a)))
    )
    found = attest_episode(calibrate([first]), second)
    assert found.diagnosis == ("tools reordered",)
    third = with_context(make_episode("run"), Context(tools=(a,)))
    assert attest_episode(calibrate([first]), third).diagnosis == ("tools differ",)


def test_an_observation_altered_after_calibration_is_diagnosed() -> None:
    manifest = calibrate([make_episode("ref", observed="whole text")])
    cut = make_episode("run", observed="whole")
    calls = list(cut.transcript.calls)
    calls[0] = replace(calls[0], observations=(replace(calls[0].observations[0], raw="whole text"),))
    altered = replace(cut, transcript=replace(cut.transcript, calls=tuple(calls)))
    assert "altered after calibration" in attest_episode(manifest, altered).diagnosis[0]


@pytest.mark.parametrize("part", ["system", "tools", "opts"])
def test_an_unlogged_part_is_named_and_never_calibrated(manifest: OracleManifest, part: str) -> None:
    episode = make_episode()
    blind = replace(episode, transcript=replace(episode.transcript, unlogged=frozenset({part})))
    found = attest_episode(manifest, blind)
    assert found.rung == "unattested"
    assert found.unlogged == (part,)


def test_an_unfingerprintable_stimulus_is_said_not_raised(manifest: OracleManifest) -> None:
    episode = make_episode()
    odd = Message(role="assistant", tool_calls=(ToolCall(name="read", arguments={"x": float("nan")}, id="c1"),))
    messages = (episode.transcript.messages[0], odd, *episode.transcript.messages[2:])
    broken = replace(episode, transcript=replace(episode.transcript, messages=messages))
    assert "not finite" in (attest_episode(manifest, broken).unfingerprintable or "")


def policies(**changes: Policy | None) -> Harness:
    merged = {**HARNESS.policies, **changes}
    return replace(HARNESS, policies={name: policy for name, policy in merged.items() if policy is not None})


@pytest.mark.parametrize(
    ("harness", "stale", "regenerated"),
    [
        (HARNESS, (), True),
        (policies(mutation=replace(POLICY, digest="sha256:11")), ("mutation",), False),
        (policies(truncation=replace(POLICY, seed="8")), ("truncation",), False),
        (policies(mutation=None), (), None),
        (replace(HARNESS, source=None), (), None),
        (replace(HARNESS, source={"type": "git", "commit": "def", "dirty": False}), (), False),
        (replace(HARNESS, source={"type": "git", "commit": "abc"}), (), None),
        (replace(HARNESS, source={"type": "git"}), (), None),
        (replace(HARNESS, source={"foo": 1}), (), None),
        (replace(HARNESS, version="2"), ("harness",), False),
        (replace(HARNESS, name="other"), ("harness",), False),
        (Harness(name="toy"), (), None),
    ],
)
def test_staleness_and_regeneration(
    manifest: OracleManifest, harness: Harness, stale: tuple[str, ...], regenerated: bool | None
) -> None:
    report = check_manifest(manifest, harness)
    assert (report.stale, report.regenerated) == (stale, regenerated)
    if stale:
        with pytest.raises(StaleManifestError, match=stale[0]) as caught:
            validate_manifest(manifest, harness)
        assert caught.value.carrying == report
    else:
        assert validate_manifest(manifest, harness) == report


def test_diff_lists_what_changed(manifest: OracleManifest) -> None:
    newer = calibrate([make_episode("ref1", observed="other"), make_episode("ref2", flagged=False)], version=2)
    diff = diff_manifests(manifest, newer)
    assert diff
    assert {entry.kind for entry in diff.added} >= {"observation", "stimulus"}
    assert {name for name, _, _ in diff.changed} >= {"version", "controls"}
    assert not diff_manifests(manifest, manifest)


def test_consensus_needs_three_unanimous_others() -> None:
    runs = [make_episode(f"run{i}", groups={"pipeline": f"p{i}"}) for i in range(4)]
    agreed = consensus(runs)
    assert [agreed.attest(run).rung for run in runs] == ["consensus"] * 4
    assert consensus(runs, quorum=4).attest(runs[0]).rung == "unattested"
    assert consensus(runs[:3]).attest(runs[0]).rung == "unattested"
    dissenter = make_episode("odd", observed="other", groups={"pipeline": "q"})
    divided = consensus([*runs, dissenter])
    assert [divided.attest(run).rung for run in (*runs, dissenter)] == ["unattested"] * 5
    with pytest.raises(InputError, match="quorum"):
        consensus(runs, quorum=0)


def test_consensus_shows_drift_with_who_saw_what() -> None:
    said = {"Emma": "pay, says Emma", "Anna": "pay, says Anna"}
    runs = [
        make_episode(f"run{i}", payloads={"bill": said[name]}, groups={"pipeline": f"p{i}", "lab": name})
        for i, name in enumerate(["Emma", "Emma", "Anna"])
    ]
    rows = consensus(runs).to_table().rows
    assert [(row[1], row[4]) for row in rows] == [("payload bill", "p0, p1"), ("payload bill", "p2")]
    assert [row[4] for row in consensus(runs, by="lab").to_table().rows] == ["Emma", "Anna"]


def test_consensus_compares_within_an_attack_only() -> None:
    runs = [make_episode(f"a{i}", groups={"attack": "direct"}) for i in range(4)]
    others = [make_episode(f"b{i}", observed="other", groups={"attack": "indirect"}) for i in range(4)]
    assert {consensus([*runs, *others]).attest(run).rung for run in (*runs, *others)} == {"consensus"}
    assert {consensus([*runs, *others], within="lab").attest(run).rung for run in runs} == {"unattested"}


def say_again(episode: Episode, place: int, view: int) -> Episode:
    """The episode whose harness says the user message once more before message ``place``, from the input of ``view`` on."""
    messages = list(episode.transcript.messages)
    messages.insert(place, messages[0])
    calls = [replace(call, delivered=((0, call.delivered[0][1] + (call.turn >= view)),)) for call in episode.transcript.calls]
    whole = replace(episode.transcript, messages=tuple(messages), calls=tuple(calls), final=((0, len(messages)),))
    return replace(episode, transcript=whole)


def test_how_often_an_agent_is_nudged_is_its_own_doing() -> None:
    once = make_episode("once")
    nudged = say_again(make_episode("nudged"), 3, 2)
    assert attest_episode(calibrate([once]), nudged).rung == "calibrated"


def test_a_user_message_said_twice_at_once_is_vouched_for_only_where_the_reference_said_it_twice() -> None:
    place, view = 0, 1
    once, twice = make_episode("once"), say_again(make_episode("twice"), place, view)
    attested = attest_episode(calibrate([once]), twice)
    assert attested.rung == "unattested"
    assert [str(c) for c in attested.absent] == ["message user time 2"]
    assert attest_episode(calibrate([once, twice]), replace(twice, run="other")).rung == "calibrated"
    assert attest_episode(calibrate([twice]), once).rung == "calibrated"
    thrice = say_again(twice, place, view)
    assert [str(c) for c in attest_episode(calibrate([twice]), thrice).absent] == ["message user time 3"]
    assert attest_episode(calibrate([once]), replace(once, run="other")).rung == "calibrated"


def test_a_message_is_counted_in_each_input_anew() -> None:
    episode = make_episode()
    pool = (*episode.transcript.messages, *episode.transcript.messages)  # a reader that numbers every input's messages anew
    calls = (episode.transcript.calls[0], replace(episode.transcript.calls[1], delivered=((5, 8),)))
    anew = replace(episode, transcript=replace(episode.transcript, messages=pool, calls=calls))
    assert attest_episode(calibrate([episode]), anew).rung == "calibrated"
