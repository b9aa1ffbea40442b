"""The reference harness: the loop is real, faults do what they say and nothing else, truth is known."""

import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litmuskit.errors import HarnessError, InputError
from litmuskit.harness import (
    AGENTS,
    FAULTS,
    ReferenceHarness,
    list_instances,
    run_episode,
    simulate_episodes,
    write_simulation,
)
from litmuskit.harness.tasks import build_task
from litmuskit.records import Context, Label, Message, ReplayableHarness, ToolCall

INSTANCES = list_instances(24)
KEYS = ("arguments", "arguments+observation", "state", "text")
CHARACTER = {  # what a sound harness must say of each habit, by match key: which of KEYS flag it
    "comply": {"arguments", "arguments+observation", "state"},
    "reckless": {"arguments", "arguments+observation", "state"},
    "malformed": {"arguments", "arguments+observation"},
    "error": set(KEYS),
    "quote-and-refuse": {"text"},
}


@pytest.fixture(scope="module")
def harness():
    return {key: ReferenceHarness(match_key=key) for key in KEYS}


def results(episode):
    return [seen.delivered for call in episode.transcript.calls for seen in call.observations]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("agent", AGENTS)
def test_without_faults_each_habit_is_labelled_as_the_key_must(harness, agent, key):
    for instance in INSTANCES:
        episode, truth = run_episode(instance, agent, harness=harness[key])
        assert episode.flagged is truth.flagged is (key in CHARACTER.get(agent, set()))
        assert truth.faults == ()
        assert truth.violated is (agent in {"comply", "reckless", "malformed"})
        assert episode.status == ("errored" if agent == "error" else "finished")


def test_instances_vary_in_size_task_and_shape():
    tasks = [build_task(name) for name in list_instances(200)]
    sizes = [len(task.files[task.batch].encode()) for task in tasks]
    assert 150 < min(sizes) < 400
    assert 5000 < max(sizes) < 10_000
    assert len({task.act.name for task in tasks}) == 4
    assert {len(task.steps[1]) for task in tasks} == {1, 2}
    assert all(task.files[task.batch].count(task.payload) == 1 and task.payload not in task.request for task in tasks)
    assert all(json.loads(task.files[task.batch])["rows"] for task in tasks)


def test_it_is_a_replayable_harness_on_a_real_directory(harness):
    tool = harness["state"]
    assert isinstance(tool, ReplayableHarness)
    assert isinstance(tool.reset("deploys/3"), Context)
    ask = lambda tool_name, /, **arguments: tool.call(ToolCall(name=tool_name, arguments=arguments))  # noqa: E731
    assert ask("write_file", path="a/b.txt", content="é") == "done: a/b.txt"
    assert ask("read_file", path="a/b.txt") == "é"
    assert "a" in ask("list_dir", path=".").splitlines()
    assert ask("delete_file", path="a/b.txt") == "done: a/b.txt"
    assert ask("read_file", path="a/b.txt") == "error: No such file or directory"
    for path in ("../x", "/etc/passwd", "a/../../../x"):
        assert ask("read_file", path=path) == "error: outside the working directory"
    assert ask("run_report", name="../../x", target="t") == "error: outside the working directory"
    assert ask("read_file").startswith("error: invalid call: ")
    assert ask("fly").startswith("error: invalid call: no tool")
    assert tool.call(ToolCall(name="read_file", arguments="{")).startswith("error: invalid call: ")


@given(st.lists(st.tuples(st.sampled_from(INSTANCES), st.sampled_from(sorted(AGENTS))), min_size=1, max_size=5))
@settings(max_examples=12, deadline=None)
def test_reset_leaves_no_trace_of_earlier_episodes(runs):
    shared = ReferenceHarness(match_key="state")
    shared.call(ToolCall(name="write_file", arguments={"path": "a/b/c.txt", "content": "left behind"}))
    for instance, agent in runs:
        used, _ = run_episode(instance, agent, harness=shared)
        assert replace(used, source=used.source) == run_episode(instance, agent, harness=ReferenceHarness(match_key="state"))[0]


def test_batch_reads_from_an_offset_and_without_notes(harness):
    tool = harness["arguments"]
    tool.reset("invoices/2")
    task, read = build_task("invoices/2"), lambda **more: tool.call(replace(task.bait, arguments={"path": task.batch, **more}))
    assert read(offset=10).encode() == task.files[task.batch].encode()[10:]
    assert task.payload not in read(sanitize=True)
    assert {row["note"] for row in json.loads(read(sanitize=True))["rows"]} == {""}
    assert tool.call(ToolCall(name="read_file", arguments={"path": task.batch})) == "error: use read_batch"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_alters_only_what_it_is_planted_at(fault):
    """Whatever no fault was planted at is byte for byte what the sound harness delivers; log and truth tell the same story."""
    struck = Counter()
    for epoch in range(1, 3):
        for instance in INSTANCES[:12]:
            for agent in ("comply", "repair", "re-read"):
                rate = 700 if fault == "truncate" else 0.3
                episode, truth = run_episode(instance, agent, faults={fault: rate}, epoch=epoch)
                sound, _ = run_episode(instance, agent, epoch=epoch)
                assert {planted.fault for planted in truth.faults} <= {fault}
                struck[fault] += len(truth.faults)
                altered = {(planted.turn, planted.position) for planted in truth.faults}
                for call in episode.transcript.calls:
                    shown = episode.transcript.delivered(call.turn)
                    assert shown[0] == sound.transcript.messages[0]
                    for seen in call.observations:
                        if (call.turn, seen.position) not in altered or fault in {"replay", "late-edit", "judge-failure"}:
                            assert seen.delivered == seen.raw
                        elif fault not in {"cache", "mis-pair"}:
                            assert seen.delivered != seen.raw
                if not truth.faults:
                    assert results(episode) == results(sound)
                    assert episode.labels == sound.labels
    assert struck[fault] > 10


def find_planted(fault, agent="repair", value=1.0, **more):
    for instance in INSTANCES[:12]:
        episode, truth = run_episode(instance, agent, faults={fault: value}, **more)
        if truth.faults:
            yield episode, truth


def test_replay_shows_stale_arguments_beside_the_fresh_result():
    for episode, truth in find_planted("replay"):
        for planted in truth.faults:
            call = episode.transcript.calls[planted.turn - 1]
            shown = episode.transcript.shown_after(planted.turn)
            at = [message for message in shown if message.role == "assistant"][planted.turn - 1].tool_calls[planted.position]
            assert at.arguments != call.proposed.tool_calls[planted.position].arguments
            assert at.id == call.proposed.tool_calls[planted.position].id
            assert call.observations[planted.position].call == call.proposed.tool_calls[planted.position]


def test_mis_pair_swaps_two_results():
    for episode, truth in find_planted("mis-pair"):
        turn = truth.faults[0].turn
        first, second = episode.transcript.calls[turn - 1].observations[:2]
        assert (first.delivered, second.delivered) == (second.raw, first.raw)
        assert [planted.position for planted in truth.faults[:2]] == [0, 1]


def test_truncate_cuts_to_the_cap_and_never_inside_a_character():
    for cap in (1, 37, 150, 700):
        for episode, _ in find_planted("truncate", value=cap, declare=True):
            for call in episode.transcript.calls:
                for seen in call.observations:
                    assert cap - 3 <= len(seen.delivered.encode()) <= cap or seen.truncation is None
                    assert seen.raw.startswith(seen.delivered)
                    if seen.truncation:
                        assert (seen.truncation.raw_size, seen.truncation.cap) == (len(seen.raw.encode()), cap)


def test_late_edit_changes_a_later_input_not_the_first_one():
    for episode, truth in find_planted("late-edit", value=0.5):
        for planted in truth.faults:
            first, later = (
                [m.content for m in episode.transcript.delivered(turn) if m.role == "tool"]
                for turn in (planted.turn + 1, planted.seen)
            )
            assert planted.seen > planted.turn + 1
            assert first != later[: len(first)]


def test_cache_serves_the_last_reply_and_the_log_says_so():
    for episode, truth in find_planted("cache", value=0.3):
        calls = episode.transcript.calls
        assert [call.turn for call in calls if call.cached] == [planted.turn for planted in truth.faults]
        for planted in truth.faults:
            assert calls[planted.turn - 1].proposed == calls[planted.turn - 2].proposed


def test_non_delivery_loses_the_payload_and_no_one_obeys_it():
    seen = list(find_planted("non-delivery", agent="comply"))
    assert len(seen) == 12
    for episode, truth in seen:
        payload = episode.payloads["note"]
        assert not any(payload in message.text for message in episode.transcript.messages)
        assert not truth.violated
        assert any(payload in seen.raw for call in episode.transcript.calls for seen in call.observations)


def test_judge_failure_gives_no_label():
    for episode, truth in find_planted("judge-failure", agent="comply"):
        assert episode.labels[0].violation is None
        assert truth.violated
        assert not truth.flagged


@pytest.mark.parametrize("key", ["arguments", "arguments+observation"])
def test_repair_is_flagged_falsely_under_replay_by_arguments_only(key):
    made = simulate_episodes(24, instances=12, faults={"replay": 1.0}, agents={"repair": 1.0}, match_key=key)
    blamed = [episode.flag.reason for episode in made.episodes if episode.flagged]
    assert blamed == (["repeated forbidden call"] * 24 if key == "arguments" else [])
    assert not any(truth.violated for truth in made.truth)
    assert all(truth.faulted for truth in made.truth if truth.flagged)


@pytest.mark.parametrize("key", ["arguments", "arguments+observation"])
def test_repair_is_called_malformed_after_a_cut_under_either_key(key):
    """The schema check looks at no observation: the better match key does not help here, attribution does."""
    made = simulate_episodes(24, instances=12, faults={"truncate": 600}, agents={"repair": 1.0}, match_key=key)
    reasons = Counter(episode.flag.reason if episode.flagged else None for episode in made.episodes)
    cut = sum(len(build_task(name).files[build_task(name).batch].encode()) > 600 for name in list_instances(12))
    assert reasons["malformed output"] == 2 * cut > 10
    assert all(episode.flag.schema_check for episode in made.episodes if episode.flagged)
    assert not any(truth.violated for truth in made.truth)


def test_true_violations_stay_flagged_under_the_observation_aware_key():
    made = simulate_episodes(
        24, instances=12, faults={"replay": 0.2}, agents={"comply": 1.0}, match_key="arguments+observation"
    )
    assert sum(truth.flagged for truth in made.truth) > 20
    assert all(truth.violated for truth in made.truth)


def test_false_flags_grow_with_the_rate_and_with_the_habit():
    def share(rate, repair):
        made = simulate_episodes(
            200, faults={"replay": rate}, agents={"repair": repair, "comply": 0.2}, match_key="arguments", instances=8
        )
        flagged = [truth for truth in made.truth if truth.flagged]
        return sum(not truth.violated for truth in flagged) / len(flagged)

    shares = [share(rate, 0.4) for rate in (0.0, 0.1, 0.4, 1.0)]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] > 0.5
    assert share(0.4, 0.1) < share(0.4, 0.8)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_faults_strike_at_their_rate(rate):
    made = simulate_episodes(600, faults={"judge-failure": rate}, agents={"no-op": 1.0}, instances=8)
    hits = sum(bool(truth.faults) for truth in made.truth)
    assert abs(hits - 600 * rate) < 5 * math.sqrt(600 * rate * (1 - rate))


def test_raising_one_rate_leaves_the_other_faults_where_they_were():
    few, many = (
        simulate_episodes(200, faults={"non-delivery": 0.2, "judge-failure": rate}, agents={"refuse": 1.0})
        for rate in (0.1, 0.6)
    )

    def struck(made, fault):
        return {truth.record for truth in made.truth if any(planted.fault == fault for planted in truth.faults)}

    assert len(struck(few, "non-delivery")) > 5
    assert struck(few, "non-delivery") == struck(many, "non-delivery")
    assert struck(few, "judge-failure") < struck(many, "judge-failure")


SETTINGS = "faults={'replay': .3, 'truncate': 900, 'cache': .1, 'resample': .1, 'late-edit': .1, 'mis-pair': .5}, seed=5"


def test_the_same_seed_gives_the_same_log_in_another_process(tmp_path):
    script = (
        "import sys; from litmuskit.harness import *\n"
        f"write_simulation(simulate_episodes(30, {SETTINGS}, instances=9), sys.argv[1])"
    )
    for name, hash_seed in (("a", "1"), ("b", "2")):
        subprocess.run([sys.executable, "-c", script, tmp_path / name], check=True, env={"PYTHONHASHSEED": hash_seed})
    for name in ("log.jsonl", "reference.jsonl", "truth.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_seed_declare_and_ids_each_change_the_log():
    faults = {"replay": 0.3, "cache": 0.2}
    base = simulate_episodes(20, faults=faults, instances=5)
    assert simulate_episodes(20, faults=faults, instances=5, seed=1).truth != base.truth
    loud = simulate_episodes(20, faults=faults, instances=5, declare=True)
    assert [len(episode.events) for episode in loud.episodes] == [len(truth.faults) for truth in base.truth]
    assert all(episode.events is None for episode in base.episodes)
    unique = simulate_episodes(20, faults=faults, instances=5, recurring_ids=False)
    for made, distinct in ((base, False), (unique, True)):
        calls = [c for e in made.reference for t in e.transcript.calls for c in (t.proposed.tool_calls if t.proposed else ())]
        assert (len({call.id for call in calls}) == len(calls)) is distinct


def test_policies_are_true_when_declared_and_believed_when_not():
    faults = {"truncate": 500, "resample": 0.1}
    (quiet, loud) = (simulate_episodes(4, faults=faults, declare=declare) for declare in (False, True))
    names = [{role: policy.name for role, policy in made.episodes[0].harness.policies.items()} for made in (quiet, loud)]
    assert names == [{"mutation": "none", "truncation": "none"}, {"mutation": "resample", "truncation": "byte-cap"}]
    assert quiet.episodes[0].harness == quiet.reference[0].harness
    again = simulate_episodes(4, faults={"truncate": 500}, reference_faults={"truncate": 500}, declare=True)
    assert again.episodes[0].harness == again.reference[0].harness
    assert any(seen.truncation for call in again.reference[0].transcript.calls for seen in call.observations)


def test_a_real_model_takes_the_place_of_an_agent():
    asked = []

    def model(context, messages):
        asked.append((context, tuple(messages)))
        if len(asked) == 3:
            raise HarnessError("out of quota")
        call = ToolCall(name="list_dir", arguments={"path": "."}, id="x")
        return Message(role="assistant", content=None, tool_calls=(call,))

    episode, truth = run_episode("tickets/0", model)
    assert [len(messages) for _, messages in asked] == [1, 3, 5]
    assert asked[0][0].tools[0]["function"]["name"] == "read_batch"
    assert (episode.status, episode.error, truth.agent) == ("errored", "out of quota", "custom")


def test_an_agent_that_never_stops_is_limited():
    call = ToolCall(name="list_dir", arguments={"path": "."}, id="x")
    episode, _ = run_episode("tickets/0", lambda *_: Message(role="assistant", tool_calls=(call,)))
    assert (episode.status, episode.limit, len(episode.transcript.calls)) == ("limited", "turns", 16)


def test_a_grader_reads_any_transcript(harness):
    episode, _ = run_episode("payroll/1", "comply")
    harness["arguments"].reset("payroll/1")
    label = harness["arguments"].score(episode.transcript)
    assert isinstance(label, Label)
    assert label == replace(episode.labels[0], match_key="arguments")
    assert harness["arguments"].score(replace(episode.transcript, final=None)).violation is False


def test_confusion_covers_every_episode_once_and_refuses_gaps():
    made = simulate_episodes(60, faults={"replay": 0.5, "truncate": 800}, match_key="arguments", instances=8)
    table = made.confusion()
    assert sum(sum(row[1:]) for row in table.rows) == 60
    decided = {truth.record: "count" if truth.flagged else None for truth in made.truth}
    assert set(made.confusion(decided).columns) == {"truth", "count", "unflagged"}
    assert sum(row[0].startswith("violation") for row in table.rows) == 2 or len(table.rows) > 3
    with pytest.raises(InputError, match="without a decision"):
        made.confusion({})
    counts = made.to_frame().set_index("agent")
    assert counts["episodes"].sum() == 60
    assert "flagged" in repr(made)


def test_written_files_say_what_was_simulated(tmp_path):
    from litmuskit.readers import read_log

    made = simulate_episodes(30, faults={"replay": 0.4, "late-edit": 0.3}, match_key="arguments", instances=6)
    log, reference, truth = write_simulation(made, tmp_path / "runs")
    assert [replace(e, source=made.episodes[0].source) for e in read_log(log)] == list(made.episodes)
    assert [e.record for e in read_log(reference)] == [e.record for e in made.reference]
    lines = [json.loads(line) for line in truth.read_text().splitlines()]
    assert [(line["record"], line["violated"]) for line in lines] == [(t.record, t.violated) for t in made.truth]


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"faults": {"repaly": 0.1}}, "replay"),
        ({"faults": {"replay": 1.1}}, "0 to 1"),
        ({"faults": {"replay": -0.1}}, "0 to 1"),
        ({"faults": {"replay": math.nan}}, "0 to 1"),
        ({"faults": {"replay": True}}, "0 to 1"),
        ({"faults": {"replay": "0.1"}}, "0 to 1"),
        ({"faults": {"truncate": 0.5}}, "faults.truncate"),
        ({"faults": {"truncate": 0}}, "faults.truncate"),
        ({"faults": {"truncate": 512.5}}, "whole number"),
        ({"reference_faults": {"x": 1}}, "replay"),
        ({"agents": {"complies": 0.1}}, "quote-and-refuse"),
        ({"agents": {"comply": 1.5}}, "0 to 1"),
        ({"agents": {"comply": 0.7, "repair": 0.7}}, "exceed 1"),
        ({"match_key": "unknown"}, "arguments\\+observation"),
        ({"match_key": "observation"}, "arguments\\+observation"),
        ({"episodes": 0}, "episodes"),
        ({"episodes": 1.5}, "episodes"),
        ({"instances": 0}, "instances"),
    ],
)
def test_bad_settings_name_the_known_ones(bad, named):
    with pytest.raises(InputError, match=named):
        simulate_episodes(**{"episodes": 3, **bad})


@pytest.mark.parametrize("instance", ["invoices", "invoices/", "invoices/x", "../1", "invoice/1", "invoices/²"])
def test_unknown_instances_are_refused(instance):
    with pytest.raises(InputError, match="KIND/NUMBER"):
        run_episode(instance, "comply")


def test_an_unknown_agent_is_refused():
    with pytest.raises(InputError, match="quote-and-refuse"):
        run_episode("invoices/0", "obey")


@pytest.mark.parametrize("count", [4.0, "4", True, None, 0, -1])
@pytest.mark.parametrize("name", ["episodes", "instances"])
def test_a_count_is_a_whole_number_above_0(name: str, count: object) -> None:
    with pytest.raises(InputError, match=name):
        simulate_episodes(**{"episodes": 4, name: count})
