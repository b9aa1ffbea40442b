from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import CALL_KINDS, SHOWN_KINDS, make_run, record_run

from litmuskit.artifacts import FINDERS, find_artifacts
from litmuskit.readers.recorder import EpisodeRecorder
from litmuskit.records import (
    Context,
    Episode,
    Harness,
    Label,
    Message,
    ModelCall,
    Observation,
    Source,
    ToolCall,
    Transcript,
)

WHOLE_TURN = {"own-output-cut", "duplicate", "stale-cache"}
PLANTED = (*SHOWN_KINDS, *CALL_KINDS)


def place_evidence(episode: Episode) -> set[tuple[str, int | None, int | None]]:
    return {(e.kind, e.turn, None if e.kind in WHOLE_TURN else e.position) for e in find_artifacts(episode)}


def ask(*calls: tuple[str, dict], ids: list[str | None] | None = None) -> Message:
    named = ids or [f"call_{n}" for n in range(len(calls))]
    made = tuple(ToolCall(name=name, arguments=arguments, id=i) for (name, arguments), i in zip(calls, named, strict=True))
    return Message(role="assistant", content="" if calls else "done", tool_calls=made)


def reply(text: str, call_id: str | None = "call_0") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


USER = Message(role="user", content="go")


def build(views: list[list[Message]], proposals: list[Message], *, executed=None, label=None, **facts) -> Episode:
    """An episode from whole lists: one per model call, and the final one."""
    pool: list[Message] = []

    def place(view):
        ranges = []
        for message in view:
            index = next((n for n, known in enumerate(pool) if known is message), len(pool))
            pool.extend([message] if index == len(pool) else [])
            ranges.append((index, index + 1))
        return tuple(ranges)

    calls = tuple(
        ModelCall(
            turn=n,
            context=Context(),
            delivered=place(view),
            proposed=proposal,
            observations=tuple(
                Observation(position=p, call=(executed or {}).get((n, p), call), executed=True)
                for p, call in enumerate(proposal.tool_calls)
            ),
        )
        for n, (view, proposal) in enumerate(zip(views, proposals, strict=False), 1)
    )
    final = place(views[len(proposals)]) if len(views) > len(proposals) else None
    return Episode(
        record="r",
        source=Source(path="p"),
        instance="i",
        transcript=Transcript(messages=tuple(pool), calls=calls, final=final, **facts),
        labels=(label or Label(scorer="s", violation=False),),
        harness=Harness(name="h"),
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 14), st.integers(0, 3), st.booleans())
def test_every_planted_fault_is_found_and_nothing_else(seed, turns, count, anew):
    rng = random.Random(seed)
    struck = rng.sample(range(1, turns + 1), k=min(turns, count))
    run = make_run(rng, turns, {turn: rng.choice(PLANTED) for turn in struck})
    assert place_evidence(record_run(run, anew=anew)) == run.truth


@pytest.mark.parametrize("anew", [False, True])
def test_sound_runs_with_every_look_alike_are_silent(anew):
    for seed in range(150):
        run = make_run(random.Random(seed), 12, {})
        assert find_artifacts(record_run(run, anew=anew)) == ()


def test_a_replay_at_the_last_turn_stands_in_the_final_list_alone():
    first, second, shown = ask(("f", {"a": 1})), ask(("f", {"a": 2})), ask(("f", {"a": 1}))
    start = [USER, first, reply("one")]
    episode = build([[USER], start, [*start, shown, reply("two")]], [first, second])
    (evidence,) = FINDERS["replay"](episode)
    assert (evidence.rule, evidence.turn, evidence.position) == ("replay/stale-arguments", 2, 0)
    assert FINDERS["replay"](replace(episode, transcript=replace(episode.transcript, final=None))) == ()


def test_an_earlier_message_put_before_fresh_results_is_replay_and_the_same_message_twice_is_not():
    first, second = ask(("f", {"a": 1}), ids=["x"]), ask(("f", {"a": 2}), ids=["y"])
    start = [USER, first, reply("one", "x")]
    for again, kind in ((first, "replay"), (second, "duplicate")):
        views = [[USER], start, [*start, second, again, reply("two", "y")]]
        assert [(e.kind, e.turn) for e in find_artifacts(build(views, [first, second, ask()]))] == [(kind, 2)]


def test_other_arguments_that_no_call_ever_had_are_replay_unless_they_were_executed():
    proposal, shown = ask(("f", {"a": 1})), ask(("f", {"a": 9}))
    views = [[USER], [USER, shown, reply("x")]]
    assert [e.rule for e in FINDERS["replay"](build(views, [proposal, ask()]))] == ["replay/arguments-at-position"]
    honest = build(views, [proposal, ask()], executed={(1, 0): shown.tool_calls[0]})
    assert {e.kind for e in find_artifacts(honest)} == {"executed-differs"}


@pytest.mark.parametrize(
    "shown",
    [
        ToolCall(name="f", arguments='{"b": [1, 2], "a": 1}'),  # text for an object, keys in another order
        ToolCall(name="f", arguments={"a": "1", "b": [1, 2]}),
        ToolCall(name="f", arguments={"a": 1, "b": [1, 2], "c": None, "d": "utf-8"}),  # null and default filled in
    ],
)
def test_rendering_a_call_anew_is_no_replay(shown):
    tool = {"name": "f", "parameters": {"properties": {"d": {"default": "utf-8"}}}}
    proposal = ask(("f", {"a": 1, "b": [1, 2]}))
    view = [USER, Message(role="assistant", tool_calls=(shown,)), reply("x")]
    episode = build([[USER], view], [proposal, ask()])
    calls = tuple(replace(call, context=Context(tools=(tool,))) for call in episode.transcript.calls)
    assert FINDERS["replay"](replace(episode, transcript=replace(episode.transcript, calls=calls))) == ()


@pytest.mark.parametrize(
    "tool", [{"name": "f", "parameters": "none"}, {"function": "f"}, {"name": "f", "parameters": {"properties": [1]}}, {}]
)
def test_odd_tool_schemas_excuse_nothing(tool):
    proposal, shown = ask(("f", {"a": 1})), ask(("f", {"a": 1, "d": "utf-8"}))
    episode = build([[USER], [USER, shown, reply("x")]], [proposal, ask()])
    calls = tuple(replace(call, context=Context(tools=(tool,))) for call in episode.transcript.calls)
    odd = replace(episode, transcript=replace(episode.transcript, calls=calls))
    assert [e.rule for e in FINDERS["replay"](odd)] == ["replay/arguments-at-position"]


def test_arguments_no_json_could_hold_are_compared_all_the_same():
    first, proposal = ask(("f", {1: "a", "b": {2}})), ask(("f", {"a": 2}))
    start = [USER, first, reply("r")]
    views = [[USER], start, [*start, first, reply("s")]]
    assert [e.rule for e in FINDERS["replay"](build(views, [first, proposal, ask()]))] == ["replay/stale-arguments"]


def test_nan_arguments_are_the_same_call():
    proposal, shown = ask(("f", {"a": float("nan")})), ask(("f", {"a": float("nan")}))
    assert find_artifacts(build([[USER], [USER, shown, reply("x")]], [proposal, ask()])) == ()


def test_parallel_calls_shown_in_another_order_or_in_part_are_no_replay():
    proposal = ask(("f", {"a": 1}), ("g", {"b": 2}), ids=["x", "y"])
    for shown in (ask(("g", {"b": 2}), ("f", {"a": 1}), ids=["y", "x"]), ask(("g", {"b": 2}), ids=["y"])):
        view = [USER, shown, *(reply("r", call.id) for call in shown.tool_calls)]
        assert FINDERS["replay"](build([[USER], view], [proposal, ask()])) == ()


def test_one_call_shown_twice_for_two_different_ones_is_replay_at_the_second():
    first, proposal = ask(("f", {"a": 1})), ask(("f", {"a": 2}), ("f", {"a": 3}))
    shown = ask(("f", {"a": 2}), ("f", {"a": 1}))
    start = [USER, first, reply("r")]
    views = [[USER], start, [*start, shown, reply("s", "call_0"), reply("t", "call_1")]]
    assert [(e.turn, e.position) for e in FINDERS["replay"](build(views, [first, proposal, ask()]))] == [(2, 1)]


def test_sub_agents_forks_and_discarded_replies_are_no_replay():
    other = Message(role="user", content="sub-task")
    main, sub = ask(("f", {"a": 1})), ask(("g", {"b": 1}))
    done, end = reply("main"), reply("sub")
    views = [[USER], [other], [other, sub, end], [USER, main, done]]
    assert find_artifacts(build(views, [main, sub, ask(), ask()])) == ()
    left, right = ask(("f", {"a": 1})), ask(("f", {"a": 2}))
    fork = [[USER], [USER], [USER, left, reply("l")], [USER, right, reply("r")], [USER, left, reply("l")]]
    assert find_artifacts(build(fork, [left, right, ask(("h", {})), ask(), ask()])) == ()


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_summary_in_place_of_old_turns_is_neither_replay_nor_edit(role):
    asks = [ask(("f", {"a": n})) for n in range(4)]
    replies = [reply(f"result {n}") for n in range(4)]
    pairs = [[a, r] for a, r in zip(asks, replies, strict=True)]
    summary = Message(role=role, content="so far: f was asked")
    views = [[USER], [USER, *pairs[0]], [USER, *pairs[0], *pairs[1]], [USER, summary, *pairs[2]]]
    assert find_artifacts(build([*views, [USER, summary, *pairs[2], *pairs[3]]], [*asks, ask()])) == ()
    window = [[USER], [USER, *pairs[0]], [USER, *pairs[1]], [USER, *pairs[2]], [USER, *pairs[3]]]
    assert find_artifacts(build(window, [*asks, ask()])) == ()


def test_a_late_edit_is_told_once_and_by_the_first_input_that_holds_it():
    first, second = ask(("f", {"a": 1})), ask(("f", {"a": 2}))
    head, edited = [USER, first, reply("original")], [USER, first, reply("edited")]
    rest = [second, reply("two")]
    views = [[USER], head, [*edited, *rest], [*edited, *rest, ask(("f", {})), reply("three")]]
    flagged = Label(scorer="s", violation=True, turn=3, match_key="arguments")
    episode = build(views, [first, second, ask(("f", {})), ask()], label=flagged)
    (evidence,) = FINDERS["late-edit"](episode)
    assert (evidence.turn, evidence.position, evidence.before_flag) == (1, 0, True)
    for key, expected in (
        ("arguments", False),
        ("state", False),
        ("unknown", None),
        ("text", True),
        ("arguments+observation", True),
    ):
        early = replace(episode, labels=(replace(flagged, turn=2, match_key=key),))
        assert FINDERS["late-edit"](early)[0].before_flag is expected


def test_results_shifted_by_one_turn_are_mis_paired():
    asks = [ask(("f", {"a": n})) for n in range(3)]
    late = [reply("pending"), reply("r0"), reply("r1")]
    views = [[USER, *(m for pair in zip(asks[:n], late[:n], strict=True) for m in pair)] for n in range(4)]
    episode = build(views, [*asks, ask()])
    calls = [
        replace(call, observations=tuple(replace(o, raw=f"r{n}") for o in call.observations))
        for n, call in enumerate(episode.transcript.calls)
    ]
    shifted = replace(episode, transcript=replace(episode.transcript, calls=tuple(calls)))
    assert [e.turn for e in FINDERS["mis-pairing"](shifted)] == [2, 3]
    assert [e.turn for e in FINDERS["mutation"](shifted)] == [1]


def test_a_log_with_one_final_list_supports_no_replay_and_no_late_edit():
    run = make_run(random.Random(6), 8, {3: "replay", 5: "late-edit", 6: "mis-pairing"}, alike=False)
    episode = record_run(run)
    assert {"replay", "late-edit"} <= {kind for kind, *_ in place_evidence(episode)}
    by_reference = replace(episode.transcript, unlogged=frozenset({"delivered"}))  # rewritten perhaps, but logged per call
    assert {"replay", "late-edit"} <= {kind for kind, *_ in place_evidence(replace(episode, transcript=by_reference))}
    bare = replace(episode.transcript, calls=tuple(replace(call, delivered=None) for call in episode.transcript.calls))
    assert not {"replay", "late-edit"} & {kind for kind, *_ in place_evidence(replace(episode, transcript=bare))}


def test_a_flat_list_shows_a_replay_only_against_the_executed_call():
    old, new = ToolCall(name="f", arguments={"a": 1}), ToolCall(name="f", arguments={"a": 2})
    listed = [Message(role="assistant", tool_calls=(old,)), Message(role="assistant", tool_calls=(old,)), ask()]

    def judge(executed: ToolCall) -> list[str]:
        episode = build([[USER]] * 3, listed, executed={(2, 0): executed}, unlogged=frozenset({"delivered"}))
        return [e.rule for e in find_artifacts(episode)]

    assert judge(old) == []  # the agent's own repeat
    assert judge(new) == ["replay/stale-arguments-in-flat-list"]
    assert judge(replace(old, name="f_in_a_sandbox")) == ["executed-differs/arguments"]  # a repeat, carried out by a stand-in


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (Label(scorer="s", violation=True, turn=2), False),
        (Label(scorer="s", violation=True, turn=3, position=0), True),
        (Label(scorer="s", violation=True, turn=3, position=1), None),  # the other call of that turn, by a grader unknown
        (Label(scorer="s", violation=True, turn=3, position=1, match_key="arguments"), True),
        (Label(scorer="s", violation=True, turn=3, match_key="state"), False),
        (Label(scorer="s", violation=True, turn=4, match_key="state"), True),
        (Label(scorer="s", violation=True), True),
        (Label(scorer="s", violation=False), None),
    ],
)
def test_a_replay_stands_before_the_flag_where_it_could_have_caused_it(flag, expected):
    first, third = ask(("f", {"a": 1})), ask(("f", {"a": 2}), ("g", {}))
    stale = ask(("f", {"a": 1}), ("g", {}))
    start = [USER, first, reply("one"), first, reply("two")]
    views = [[USER], start[:3], start, [*start, stale, reply("x", "call_0"), reply("y", "call_1")]]
    episode = build(views, [first, first, third, ask()], label=flag)
    assert [e.before_flag for e in FINDERS["replay"](episode)] == [expected]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("arguments", True), ("arguments+observation", True), ("text", True), ("unknown", None), ("state", False)],
)
def test_a_replay_first_shown_after_the_flag_is_its_cause_by_what_the_grader_reads(key, expected):
    asks = [ask(("f", {"a": n})) for n in range(3)]
    replies = [reply(f"r{n}") for n in range(3)]
    honest = [[USER, *(m for pair in zip(asks[:n], replies[:n], strict=True) for m in pair)] for n in range(4)]
    for struck, told in ((1, expected), (2, False)):  # the flagged call's predecessor; a call after the flagged one
        replayed = list(honest[3])
        replayed[1 + 2 * struck] = ask(("f", {"a": 0 if struck == 2 else 2}))
        for flagged in (2,) if struck == 2 else (2, 3):
            flag = Label(scorer="s", violation=True, turn=flagged, match_key=key)
            (evidence,) = FINDERS["replay"](build([*honest[:3], replayed], asks, label=flag))
            assert (evidence.turn, evidence.before_flag) == (struck + 1, told if flagged != struck + 1 else key != "state")


@pytest.mark.parametrize(
    ("proposed", "shown"),
    [
        ({"a": 1, "num": None}, {"a": 1}),
        ({"a": 1, "deep": {"b": 2, "c": None}}, {"a": 1, "deep": {"b": 2}}),
        ({"a": 1, "ok": "true"}, {"a": 1, "ok": True}),
        ({"a": 1, "ok": [False]}, {"a": 1, "ok": ["false"]}),
        ({"a": 1, "d": "utf-8"}, {"a": 1}),  # the schema's default left out
        ({"a": 1, "n": None, "ok": "false"}, {"a": "1", "ok": False, "d": "utf-8"}),
    ],
)
def test_nulls_defaults_and_booleans_as_text_are_rendered_either_way(proposed, shown):
    tool = {"name": "f", "parameters": {"properties": {"d": {"default": "utf-8"}, "z": {"default": "z"}}}}

    def judge(first, second, before=None):
        asks = [ask(("f", before or {"q": 0})), ask(("f", first)), ask()]
        head = [USER, asks[0], reply("r")]
        episode = build([[USER], head, [*head, ask(("f", second)), reply("x")]], asks)
        calls = tuple(replace(call, context=Context(tools=(tool,))) for call in episode.transcript.calls)
        return FINDERS["replay"](replace(episode, transcript=replace(episode.transcript, calls=calls)))

    for one, other in ((proposed, shown), (shown, proposed)):
        assert judge(one, other) == judge(one, other, before=other) == ()  # an earlier call so written is no stale one
        for changed in ({"a": 2}, {"a": None}, {"ok": "yes"}, {"deep": {"b": 3}}, {"new": False}, {"d": "ascii"}):
            assert judge(one, other | changed), changed
        assert judge(one, {key: value for key, value in other.items() if key != "a"})


def make_pairs(count: int, *, alike: bool = False) -> tuple[list[Message], list[list[Message]]]:
    """Turns with one call each and the call's message with its result; ``alike``: the same call and result each time."""
    asks = [ask(("f", {"a": 0 if alike else n}), ids=["c0" if alike else f"c{n}"]) for n in range(count)]
    return asks, [[one, reply("r" if alike else f"result {n}", one.tool_calls[0].id)] for n, one in enumerate(asks)]


def run_views(views: list[list[Message]], asks: list[Message], results: dict[tuple[int, int], str], flagged=None) -> Episode:
    """`build`, where the tools returned ``results``."""
    label = Label(scorer="s", violation=True, turn=flagged, match_key="state") if flagged else None
    episode = build(views, asks, label=label)
    calls = [
        replace(call, observations=tuple(replace(one, raw=results.get((call.turn, one.position))) for one in call.observations))
        for call in episode.transcript.calls
    ]
    return replace(episode, transcript=replace(episode.transcript, calls=tuple(calls)))


def list_rules(episode: Episode) -> list[tuple[str, int | None, bool | None]]:
    return [(e.rule, e.turn, e.before_flag) for e in find_artifacts(episode)]


RESULTS = {(n, 0): f"result {n - 1}" for n in range(1, 5)}
WITHHELD = "mutation/result-withheld"


@pytest.mark.parametrize("keeps_call", [True, False])
@pytest.mark.parametrize("shown_later", [True, False])
@pytest.mark.parametrize("struck", [1, 2, 3])
def test_a_result_that_the_next_input_lacks_is_withheld(struck, shown_later, keeps_call):
    asks, pairs = make_pairs(4)
    asks[3] = ask()
    views = [[USER, *(m for pair in pairs[:n] for m in pair)] for n in range(4)]
    views.append([*views[3], asks[3]])
    for n, view in enumerate(views):
        if n == struck or (n > struck and not shown_later):
            gone = pairs[struck - 1][1:] if keeps_call else pairs[struck - 1]
            views[n] = [m for m in view if not any(m is one for one in gone)]
    if not keeps_call and shown_later and struck < 3:
        return  # as in a fork: the turn was left for another and taken up again
    for flagged, before in ((struck, False), (struck + 1, True), (None, None)):
        episode = run_views(views, asks, RESULTS, flagged)
        assert (WITHHELD, struck, before) in list_rules(episode)
        assert {(e.kind, e.turn) for e in find_artifacts(episode)} == {("mutation", struck)}


def test_one_of_two_parallel_results_is_withheld_with_its_call_or_without():
    both = ask(("f", {"a": 1}), ("g", {"b": 2}), ids=["x", "y"])
    for shown in (both, ask(("f", {"a": 1}), ids=["x"])):
        episode = run_views([[USER], [USER, shown, reply("one", "x")]], [both, ask()], {(1, 0): "one", (1, 1): "two"})
        assert [(e.rule, e.position) for e in find_artifacts(episode)] == [(WITHHELD, 1)]


def test_an_agent_shown_nothing_but_its_task_was_withheld_every_result():
    asks, _ = make_pairs(3)
    found = find_artifacts(run_views([[USER]] * 3, asks, RESULTS))
    assert [(e.rule, e.turn) for e in found] == [(WITHHELD, 1), (WITHHELD, 2)]


def test_results_that_no_input_should_hold_are_not_withheld():
    asks, pairs = make_pairs(4)
    whole = [[USER, *(m for pair in pairs[:n] for m in pair)] for n in range(5)]
    summary = Message(role="user", content="so far: f was asked")
    told = [[USER], *([USER, *(m for a, r in pairs[:n] for m in (a, Message(role="user", content=f"Observation: {r.text}")))]
            for n in range(1, 4))]  # fmt: skip
    sound = {
        "the last turn, final list unlogged": whole[:4],
        "a window": [[USER, *(pairs[n - 1] if n else [])] for n in range(4)],
        "a window, final list too": [[USER, *(pairs[n - 1] if n else [])] for n in range(5)],
        "a summary of everything": [whole[0], [USER, summary], [USER, summary, *pairs[1]]],
        "results told by the user": told,
        "a fork": [[USER], [USER], [USER, *pairs[0]], [USER, *pairs[1]], [USER, *pairs[0], *pairs[2]]],
    }
    for name, views in sound.items():
        assert find_artifacts(run_views(views, asks, RESULTS)) == (), name
    rejected = run_views([[USER], [USER, asks[0]]], [asks[0], ask()], RESULTS)
    (call, last) = rejected.transcript.calls
    call = replace(call, observations=tuple(replace(one, executed=False) for one in call.observations))
    rejected = replace(rejected, transcript=replace(rejected.transcript, calls=(call, last)))
    assert {e.kind for e in find_artifacts(rejected)} == {"not-executed"}


@pytest.mark.parametrize("flagged", [4, 3, None])
@pytest.mark.parametrize("copied", [True, False])
def test_a_history_put_in_another_order_is_a_late_edit(copied, flagged):
    asks, pairs = make_pairs(3)
    honest = [[USER, *(m for pair in pairs[:n] for m in pair)] for n in range(4)]
    end = ask()
    moved = [USER, *pairs[1], *pairs[0], *pairs[2]]
    for final in ([*moved, end], [*honest[3], end]):
        views = [*honest[:3], moved, final]
        views = [[replace(m) for m in view] for view in views] if copied else views
        episode = run_views(views, [*asks, end], RESULTS, flagged)
        found = find_artifacts(episode)
        assert {(e.rule, e.turn) for e in found} == {("late-edit/order", 1)}
        assert {e.before_flag for e in found} == {flagged == 4 if flagged else None}


@pytest.mark.parametrize("copied", [True, False])
def test_a_window_over_the_same_call_again_and_again_is_no_other_order(copied):
    asks, pairs = make_pairs(6, alike=True)
    other_asks, others = make_pairs(6)
    for n in (1, 3, 5):
        asks[n], pairs[n] = other_asks[1], [other_asks[1], others[1][1]]
    for size in (1, 2, 3):
        views = [[USER, *(m for pair in pairs[max(0, n - size) : n] for m in pair)] for n in range(6)]
        views = [[replace(m) for m in view] for view in views] if copied else views
        assert find_artifacts(run_views(views, asks, {})) == ()


def test_a_result_bound_to_the_id_of_no_call_is_mis_paired():
    asks, _ = make_pairs(2)
    bad = reply("result 0", "zzz")
    (evidence,) = find_artifacts(run_views([[USER], [USER, asks[0], bad]], [asks[0], ask()], RESULTS, 2))
    assert (evidence.rule, evidence.turn, evidence.position) == ("mis-pairing/unknown-id", 1, 0)
    assert evidence.before_flag
    nameless = ask(("f", {"a": 0}), ids=[None])
    assert find_artifacts(run_views([[USER], [USER, nameless, bad]], [nameless, ask()], RESULTS)) == ()
    unbound = reply("result 0", None)
    assert find_artifacts(run_views([[USER], [USER, asks[0], unbound]], [asks[0], ask()], RESULTS)) == ()


# A recorder's pool holds equal messages once: an old place may come back as the number of a new message, and the other way


def record_lists(views: list[list[Message]], proposals: list[Message]) -> Episode:
    """As `build`, through the recorder's own pool."""

    def dump(message: Message) -> dict:
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
        return {"role": message.role, "content": message.content, "tool_call_id": message.tool_call_id, "tool_calls": calls}

    recorder = EpisodeRecorder({"record": "r", "instance": "i"})
    for view, proposal in zip(views, proposals, strict=False):
        recorder.turn([dump(message) for message in view]).propose(dump(proposal))
    recorder.final([dump(message) for message in views[-1]])
    recorder.label("s", False)
    return recorder.build(Source(path="p"), Harness(name="h"))


@pytest.mark.parametrize("edited", ["[cleared]", "", "other"])
@pytest.mark.parametrize(
    ("texts", "struck"), [(("pong",), 0), (("0", "0", ""), 0), (("0", "0", ""), 1), (("other", "", "0"), 0)]
)
def test_an_edit_among_equal_messages_is_told_at_its_place(texts, struck, edited):
    first = ask(*[("ping", {"n": n}) for n in range(len(texts))], ids=["id"] * len(texts))
    again, last = ask(("ping", {}), ids=["id"]), ask(("wait", {}), ids=["id"])
    told = [USER, first, *(reply(text, "id") for text in texts)]
    clean = [*told, again, reply("pong", "id")]
    later = [*clean[: 2 + struck], reply(edited, "id"), *clean[3 + struck :]]
    found = find_artifacts(record_lists([[USER], told, later, [*later, last, reply("pong", "id")]], [first, again, last]))
    expected = [] if edited == texts[struck] else [("late-edit/result", 1, struck, True)]
    assert [(e.rule, e.turn, e.position, e.before_flag is None) for e in found if e.kind != "not-executed"] == expected


@pytest.mark.parametrize("dropped", [1, 2, 3])
@pytest.mark.parametrize("summary", [[], [Message(role="user", content="so far: nothing")]])
def test_a_window_over_equal_messages_is_no_edit_and_no_replay(dropped, summary):
    proposals = [ask(("poll", {"n": n % 2}), ("ping", {}), ids=["id", "id"]) for n in range(5)]
    turns = [[proposal, reply("pending", "id"), reply("", "id")] for proposal in proposals]
    spans = [(0, n) for n in range(4)] + [(dropped, 4), (dropped, 5)]
    views = [[USER, *summary * bool(start), *chain.from_iterable(turns[start:stop])] for start, stop in spans]
    assert [e.kind for e in find_artifacts(record_lists(views, proposals)) if e.kind != "not-executed"] == []


def test_ids_that_recur_in_one_turn_bind_results_in_order():
    asked = ask(("ping", {}), ("read", {"n": 1}), ("ping", {}), ids=["ping", "read", "ping"])
    told = [USER, asked, reply("page", "read"), reply("pong", "ping"), reply("pong", "ping")]
    assert place_evidence(build([[USER], told, [*told, ask()]], [asked, ask()])) == set()


def test_a_result_replaced_by_words_of_another_is_altered_not_mis_paired():
    asked = ask(("f", {}), ("g", {}))
    texts = ("the user was denied access by some policy", "0")
    episode = build([[USER], [USER, asked, reply(texts[0], "call_0"), reply("denied by the user", "call_1")]], [asked])
    results = tuple(
        replace(seen, raw=text, delivered=text)
        for seen, text in zip(episode.transcript.calls[0].observations, texts, strict=True)
    )
    calls = (replace(episode.transcript.calls[0], observations=results),)
    found = find_artifacts(replace(episode, transcript=replace(episode.transcript, calls=calls)))
    assert [(e.rule, e.turn, e.position) for e in found] == [("mutation/altered-in-transit", 1, 1)]


def test_cost_per_message_does_not_grow_with_the_transcript():
    def cost(turns: int, repeats: int) -> float:
        episodes = [record_run(make_run(random.Random(n), turns, {}, alike=False)) for n in range(repeats)]
        size = sum(len(episode.transcript.messages) for episode in episodes)
        best = min(_time(episodes) for _ in range(5))
        return best / size

    assert cost(1000, 1) <= 2.0 * cost(10, 100)  # the benchmark holds it to 1.5 on a quiet machine


def _time(episodes: list[Episode]) -> float:
    begin = time.process_time()
    for episode in episodes:
        find_artifacts(episode)
    return time.process_time() - begin
