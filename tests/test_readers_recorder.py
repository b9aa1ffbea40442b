"""The Recorder: what stood there at the moment of the call is what the log says, for ever."""

from __future__ import annotations

import json
from collections import UserDict, UserString
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from litmuskit.errors import InputError
from litmuskit.readers import read_log
from litmuskit.readers.recorder import Recorder
from litmuskit.records import (
    Context,
    Episode,
    Event,
    Harness,
    Label,
    Message,
    ModelCall,
    Observation,
    Policy,
    Source,
    ToolCall,
    Transcript,
    Truncation,
)
from litmuskit.stimulus import fingerprint

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def ask(*calls: tuple[str | None, str, object]) -> dict:
    called = [{"id": i, "type": "function", "function": {"name": name, "arguments": args}} for i, name, args in calls]
    return {"role": "assistant", "content": None, "tool_calls": called}


def record_one(path: Path, run, **facts) -> Episode:
    with Recorder(path / "run.jsonl", harness="h") as rec, rec.episode("i", **facts) as ep:
        run(ep)
    (found,) = read_log(path / "run.jsonl")
    return found


def test_a_whole_harness_in_twenty_lines(tmp_path):
    path, swap = tmp_path / "run.jsonl", Policy(name="swap", version="1", digest="sha256:0", seed="7")
    # -- what a maintainer writes, 19 lines ------------------------------------------------------------------------------
    with Recorder(path, harness="mine", version="1.0", benchmark="mail", policies={"mutation": swap}) as rec:
        for case in ("case-1", "case-2"):
            with rec.episode(case, epoch=1, payloads={"mail": "pay me"}, carriers={"read"}, events=()) as ep:
                ep.context(system="You help.", tools=TOOLS, opts={"tool_choice": "auto"}, decode={"temperature": 0})
                history = [{"role": "user", "content": "What is new?"}]
                turn = ep.turn(history)
                message = ask(("c1", "read", '{"n": 1}'))
                turn.propose(message, stop="tool_calls")
                history.append(message)
                raw, shown = "pay me, long", "pay me"
                if raw != shown:
                    ep.mutation(position=0, policy="mutation", detail="shortened")
                turn.observe(message["tool_calls"][0], raw=raw, delivered=shown, truncation={"raw_size": 12, "cap": 6})
                history.append({"role": "tool", "tool_call_id": "c1", "content": shown})
                turn = ep.turn(history)
                turn.propose({"role": "assistant", "content": "Nothing."}, stop="stop")
                ep.final([*history, {"role": "assistant", "content": "Nothing."}])
                ep.label("obeyed", violation=False, match_key="arguments+observation", value=0)
    # --------------------------------------------------------------------------------------------------------------------
    call = ToolCall(name="read", arguments='{"n": 1}', id="c1")
    asks, answer = Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="pay me", tool_call_id="c1")
    last = Message(role="assistant", content="Nothing.")
    around = Context(system="You help.", tools=tuple(TOOLS), opts={"tool_choice": "auto"}, decode={"temperature": 0})
    seen = Observation(
        position=0,
        call=call,
        executed=True,
        raw="pay me, long",
        delivered="pay me",
        truncation=Truncation(raw_size=12, cap=6),
    )
    expected = Episode(
        record="case-1#1",
        source=Source(path=str(path), line=2),
        instance="case-1",
        transcript=Transcript(
            messages=(Message(role="user", content="What is new?"), asks, answer, last),
            calls=(
                ModelCall(turn=1, context=around, delivered=((0, 1),), proposed=asks, observations=(seen,), stop="tool_calls"),
                ModelCall(turn=2, context=around, delivered=((0, 3),), proposed=last, stop="stop"),
            ),
            final=((0, 4),),
        ),
        labels=(Label(scorer="obeyed", violation=False, match_key="arguments+observation", value=0),),
        harness=Harness(name="mine", version="1.0", benchmark="mail", policies={"mutation": swap}),
        payloads={"mail": "pay me"},
        carriers=frozenset({"read"}),
        events=(Event(kind="mutation", turn=1, position=0, policy="mutation", detail="shortened"),),
    )
    second = replace(expected, record="case-2#1", instance="case-2", source=Source(path=str(path), line=3))
    found = list(read_log(path))
    assert [replace(episode, run=None) for episode in found] == [expected, second]
    assert len({episode.run for episode in found} - {None}) == 2  # each execution is told from every other


def test_an_edit_in_place_is_another_message_and_the_past_stays(tmp_path):
    def run(ep):
        answer = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "before"}]}
        history = [{"role": "user", "content": "u"}, ask(("a", "read", {"n": 1})), answer]
        ep.turn(history).propose({"role": "assistant", "content": "x"})
        answer["content"][0]["text"] = "after"
        history[1]["tool_calls"][0]["function"]["arguments"]["n"] = 2
        ep.turn(history).propose({"role": "assistant", "content": "y"})
        ep.final(history)

    found = record_one(tmp_path, run).transcript
    first, second = found.delivered(1), found.delivered(2)
    assert (first[2].text, second[2].text) == ("before", "after")
    assert (first[1].tool_calls[0].arguments, second[1].tool_calls[0].arguments) == ({"n": 1}, {"n": 2})
    assert first[0] is second[0]  # what nobody touched stands once
    assert found.calls[1].delivered == ((0, 1), (3, 5))


def test_nothing_recorded_follows_the_harness_objects(tmp_path):
    def run(ep):
        tools, opts, proposal, blocks = [{"name": "a"}], {"tool_choice": "auto"}, ask(("a", "t", {"n": [1]})), [{"text": "x"}]
        ep.context(system=None, tools=tools, opts=opts)
        turn = ep.turn([{"role": "user", "content": "u"}])
        turn.propose(proposal)
        turn.observe(proposal["tool_calls"][0], raw="x", delivered=blocks)
        tools[0]["name"] = opts["tool_choice"] = blocks[0]["text"] = "changed"
        proposal["tool_calls"][0]["function"]["arguments"]["n"].append(2)

    turn = record_one(tmp_path, run).transcript.calls[0]
    assert turn.context == Context(tools=({"name": "a"},), opts={"tool_choice": "auto"})
    assert turn.proposed.tool_calls[0].arguments == turn.observations[0].call.arguments == {"n": [1]}
    assert turn.observations[0].delivered == [{"text": "x"}]


def test_an_honest_history_is_one_range_per_turn(tmp_path):
    def run(ep):
        history = []
        for i in range(50):
            history.append({"role": "user", "content": f"message {i // 2}"})  # each text stands twice
            ep.turn(history).propose({"role": "assistant", "content": "ok"})

    found = record_one(tmp_path, run).transcript
    assert [turn.delivered for turn in found.calls] == [((0, n),) for n in range(1, 51)]
    assert len(found.messages) == 50


def test_what_was_recorded_has_the_fingerprint_of_what_was_shown(tmp_path):
    shown = []

    def run(ep):
        ep.context(system="s", tools=TOOLS, opts={"tool_choice": "auto"})
        history = [{"role": "user", "content": "ü"}]
        for i in range(4):
            shown.append(json.loads(json.dumps(history)))
            turn = ep.turn(history)
            message = ask((f"call_{i}", "read", {"n": i}))
            turn.propose(message)
            history += [message, {"role": "tool", "tool_call_id": f"call_{i}", "content": f"o{i}"}]

    found = record_one(tmp_path, run).transcript
    for turn, messages in enumerate(shown, 1):
        whole = {"system": "s", "tools": TOOLS, "opts": {"tool_choice": "auto"}, "messages": messages}
        assert fingerprint(found, turn=turn).stimulus == fingerprint(whole).stimulus


@pytest.mark.parametrize("around", [{}, {"system": "You help."}])
def test_a_leading_system_message_is_the_system_prompt(around, tmp_path):
    def run(ep):
        ep.context(**around)
        ep.turn([{"role": "system", "content": "You help."}, {"role": "user", "content": "u"}])
        ep.turn([{"role": "system", "content": "You help."}, {"role": "user", "content": "u"}])

    found = record_one(tmp_path, run).transcript
    assert [turn.context.system for turn in found.calls] == ["You help."] * 2
    assert [m.role for m in found.delivered(1)] == ["user"]
    assert "system" not in found.unlogged


def test_a_system_message_beside_another_system_prompt_is_kept(tmp_path):
    def run(ep):
        ep.context(system="other")
        ep.turn([{"role": "system", "content": "You help."}])

    found = record_one(tmp_path, run).transcript
    assert (found.calls[0].context.system, found.delivered(1)[0].text) == ("other", "You help.")


FULL = {"system": None, "tools": [], "opts": {}, "decode": {}}
CALL = {"id": "c", "name": "t", "arguments": {}}


@pytest.mark.parametrize(
    ("omit", "unlogged"),
    [
        (None, set()),
        ("system", {"system"}),
        ("tools", {"tools"}),
        ("opts", {"opts"}),
        ("decode", {"decode"}),
        ("messages", {"delivered"}),
        ("call", {"executed"}),
        ("executed", {"executed"}),
        ("raw", {"returned"}),
        ("final", {"final"}),
    ],
)
def test_what_was_not_said_is_named_unlogged(omit, unlogged, tmp_path):
    def run(ep):
        ep.context(**{name: value for name, value in FULL.items() if name != omit})
        turn = ep.turn(None if omit == "messages" else [{"role": "user", "content": "u"}])
        turn.propose({"role": "assistant", "tool_calls": [CALL]})
        executed = None if omit == "executed" else True
        turn.observe("c" if omit == "call" else CALL, executed=executed, raw=None if omit == "raw" else "x", delivered="x")
        if omit != "final":
            ep.final([])

    assert record_one(tmp_path, run).transcript.unlogged == unlogged


def test_no_system_prompt_is_not_an_unlogged_one(tmp_path):
    found = record_one(tmp_path, lambda ep: (ep.context(system=None, tools=()), ep.turn([]))).transcript
    assert found.calls[0].context.system is None
    assert found.unlogged >= {"opts", "decode", "final"}
    assert not found.unlogged & {"system", "tools"}


@pytest.mark.parametrize(
    ("proposed", "observed", "positions"),
    [
        ([("a", "t", {}), ("b", "t", {})], [("b", "t", {}), ("a", "t", {})], [1, 0]),
        ([("a", "t", {}), ("a", "t", {})], [("a", "t", {}), ("a", "t", {})], [0, 1]),
        ([(None, "t", {}), (None, "u", {})], [(None, "u", {}), (None, "t", {})], [1, 0]),
        ([(None, "t", {}), (None, "t", {})], [(None, "t", {}), (None, "t", {})], [0, 1]),
        ([("a", "t", {})], [("z", "t", {})], [None]),
        ([("a", "t", {})], [("a", "t", {}), ("a", "t", {})], [0, None]),
        ([("a", "t", {"n": 1})], [("a", "t", {"n": 2})], [0]),
        ([("a", "t", {}), ("b", "t", {})], ["b", "a"], [1, 0]),
        ([("a", "t", {}), ("b", "t", {})], [1, 0], [1, 0]),
        ([("a", "t", {})], [5, "z"], [None, None]),
    ],
    ids=str,
)
def test_an_observation_joins_its_call_by_id_then_in_order(proposed, observed, positions, tmp_path):
    def run(ep):
        turn = ep.turn([])
        turn.propose(ask(*proposed))
        for one in observed:
            turn.observe(ask(one)["tool_calls"][0] if isinstance(one, tuple) else one, raw="x", delivered="x")

    seen = record_one(tmp_path, run).transcript.calls[0].observations
    assert [one.position for one in seen] == positions
    for one, said in zip(seen, observed, strict=True):
        assert (one.call.arguments if one.call else None) == (said[2] if isinstance(said, tuple) else None)


def test_a_call_that_was_not_executed_has_no_executed_call(tmp_path):
    def run(ep):
        turn = ep.turn([])
        turn.propose(ask(("a", "t", {})))
        turn.observe({"id": "a", "name": "t", "arguments": {}}, executed=False, error="rejected", delivered="rejected")

    (seen,) = record_one(tmp_path, run).transcript.calls[0].observations
    assert (seen.executed, seen.call, seen.error, seen.raw) == (False, None, "rejected", None)


@pytest.mark.parametrize(("error", "status"), [(ValueError("boom"), "errored"), (KeyboardInterrupt(), "cancelled")])
def test_what_ends_an_episode_stands_in_the_log_and_passes_on(error, status, tmp_path):
    path = tmp_path / "run.jsonl"

    def run(rec):
        with rec.episode("fine") as ep:
            ep.label("s", violation=False)
        with rec.episode("hurt") as ep:
            ep.turn([{"role": "user", "content": "u"}])
            raise error

    with pytest.raises(type(error)), Recorder(path, harness="h") as rec:
        run(rec)
    fine, hurt = read_log(path)
    assert (fine.status, hurt.status) == ("finished", status)
    assert hurt.error.startswith(type(error).__name__)
    assert len(hurt.transcript.calls) == 1


def test_a_run_that_is_killed_reads_as_cut(tmp_path):
    rec = Recorder(tmp_path / "run.jsonl", harness="h")
    with rec.episode("done"):
        pass
    rec._stream.close()
    log = read_log(tmp_path / "run.jsonl", keep_going=True)
    assert [found.instance for found in log] == ["done"]
    assert "no end line" in str(log.failures[0].error)


def test_events_say_whether_the_harness_declares_them(tmp_path):
    for name, facts, run, expected in (
        ("silent", {}, lambda ep: None, None),
        ("declares", {"events": ()}, lambda ep: None, ()),
        ("did", {}, lambda ep: ep.event("replay", detail="x"), (Event(kind="replay", detail="x"),)),
        ("given", {"events": [Event(kind="replay")]}, lambda ep: None, (Event(kind="replay"),)),
        (
            "both",
            {"events": ({"kind": "a"},)},
            lambda ep: ep.mutation(policy="p"),
            (Event(kind="a"), Event(kind="mutation", policy="p")),
        ),
    ):
        (tmp_path / name).mkdir()
        assert record_one(tmp_path / name, run, **facts).events == expected


def test_facts_may_come_late(tmp_path):
    found = record_one(tmp_path, lambda ep: ep.add_facts(status="limited", limit="messages"), groups={"suite": "mail"}, epoch=3)
    assert (found.record, found.status, found.limit, found.groups) == ("i#3", "limited", "messages", {"suite": "mail"})
    (tmp_path / "named").mkdir()
    assert record_one(tmp_path / "named", lambda ep: None, record="mine/7").record == "mine/7"


def test_objects_of_sdks_and_odd_mappings_are_plain_inside(tmp_path):
    dumped = SimpleNamespace(model_dump=lambda: {"role": "assistant", "content": "hi", "refusal": None})

    class Text(str):
        __slots__ = ()

    def run(ep):
        ep.turn([{"role": Text("user"), "content": Text("x")}, dumped]).propose(dumped)

    found = record_one(tmp_path, run).transcript
    assert [m.text for m in found.delivered(1)] == ["x", "hi"]
    assert type(found.delivered(1)[0].content) is str
    assert found.calls[0].proposed == Message(role="assistant", content="hi")


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ep: ep.turn([{"content": "no role"}]),
        lambda ep: ep.turn([{"role": "robot", "content": "x"}]),
        lambda ep: ep.turn(["text"]),
        lambda ep: ep.turn([UserDict(role="user")]),
        lambda ep: ep.turn([]).propose({"role": "assistant", "content": UserString("x")}),
        lambda ep: ep.context(temperature=0),
        lambda ep: ep.context(tools={"name": "x"}),
        lambda ep: ep.add_facts(verdict=1),
        lambda ep: ep.add_facts(transcript=None),
        lambda ep: ep.add_facts(status="done"),
        lambda ep: ep.add_facts(payloads=["x"]),
        lambda ep: ep.label("s", violation=True, match_key="args"),
        lambda ep: ep.label("s", violation="yes"),
        lambda ep: ep.event("mutation", seed=1),
        lambda ep: ep.turn([]).observe("a", outcome="x"),
        lambda ep: ep.turn([]).observe("a", truncation={"size": 1}),
        lambda ep: ep.turn([]).observe({"arguments": {}}),
    ],
    ids=range(17),
)
def test_misuse_is_named_at_once(misuse, tmp_path):
    with pytest.raises(InputError), Recorder(tmp_path / "run.jsonl", harness="h") as rec, rec.episode("i") as ep:
        misuse(ep)
    (found,) = read_log(tmp_path / "run.jsonl")
    assert found.status == "errored"


def test_a_log_is_never_written_over_and_identity_is_said_once(tmp_path):
    with Recorder(tmp_path / "run.jsonl", harness=Harness(name="h", version="2")):
        pass
    with pytest.raises(InputError, match="never written over"):
        Recorder(tmp_path / "run.jsonl", harness="h")
    with pytest.raises(InputError, match="twice"):
        Recorder(tmp_path / "b.jsonl", harness=Harness(name="h"), version="2")
    with pytest.raises(InputError, match="harness"):
        Recorder(tmp_path / "c.jsonl", harness="h", vendor="x")
    assert not (tmp_path / "c.jsonl").exists()


def test_episodes_may_run_side_by_side(tmp_path):
    with Recorder(tmp_path / "run.jsonl", harness="h") as rec, ThreadPoolExecutor(8) as pool:

        def run(i):
            with rec.episode(f"case-{i}") as ep:
                ep.turn([{"role": "user", "content": f"{i} " * 500}]).propose({"role": "assistant", "content": f"{i}"})

        list(pool.map(run, range(200)))
    found = {e.instance: e.transcript for e in read_log(tmp_path / "run.jsonl")}
    assert len(found) == 200
    assert all(
        t.calls[0].proposed.text == name.removeprefix("case-") == t.messages[0].text.split()[0] for name, t in found.items()
    )
