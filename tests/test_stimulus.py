from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litmuskit.comparison import compare
from litmuskit.errors import InputError, UnfingerprintableError
from litmuskit.legacy import StimulusFingerprint
from litmuskit.messages import parse_message
from litmuskit.records import Context, Message, ModelCall, ToolCall, Transcript
from litmuskit.stimulus import fingerprint, fingerprint_turns

VECTORS = "tests/vectors/0.1.0/fingerprints.jsonl"


def read_vectors(path: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def check_vector(case: dict[str, Any]) -> None:
    found = fingerprint(case["input"])
    for name, expected in case["expect"].items():
        assert getattr(found, name) == expected, (case["name"], name)


def test_independent_vectors(shared: Any) -> None:
    cases = read_vectors(shared / "vectors/fp1_vectors.jsonl")
    assert len(cases) == 23
    for case in cases:
        check_vector(case)


def test_released_vectors_still_hold(request: pytest.FixtureRequest) -> None:
    cases = read_vectors(request.config.rootpath / VECTORS)
    assert len(cases) >= 8
    for case in cases:
        check_vector(case)


def test_legacy_recipe_collides_where_the_fingerprint_does_not(shared: Any) -> None:
    pairs = json.loads((shared / "vectors/legacy_collisions.json").read_text())["pairs"]
    apart = []
    for pair in pairs:
        a, b = (
            StimulusFingerprint(system, tools, history, text.encode())
            for system, tools, history, text in (pair["a"], pair["b"])
        )
        assert a.legacy_digest() == b.legacy_digest() == pair["legacy_sha256"]
        apart.append(a.digest() != b.digest())
    assert apart == [True, True, False]  # the third differs in property order only, which RFC 8785 sorts


def ask(*ids: str | None) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": i, "name": "f", "arguments": {"x": 1}} for i in ids]}


def reply(call_id: str | None) -> dict[str, Any]:
    return {"role": "tool", "content": "{}", "tool_call_id": call_id}


@pytest.mark.parametrize(
    ("history", "answers"),
    [
        ([ask("a")], "a"),
        ([ask("a"), reply("a"), ask("b")], "b"),
        ([ask("a"), reply("a"), ask("a")], "a"),  # ids that recur each turn
        ([ask("a", "b"), reply("a"), reply("b"), ask("a", "b"), reply("b")], "a"),
        ([ask("a", "b"), reply("b"), reply("a"), ask("a", "b"), reply("a")], "b"),
        ([ask("a"), ask("b", "a"), reply("a")], "b"),  # the first a was never answered
        ([ask(None), reply(None), ask(None)], None),
        ([ask("a"), reply("a")], "observation"),
        ([ask("a"), reply("z")], "a"),
    ],
)
def test_the_observation_answers_the_last_open_call_by_order(history: list[Any], answers: str | None) -> None:
    whole = {"system": "s", "tools": [], "messages": [*history, {"role": "tool", "content": b"x", "tool_call_id": answers}]}
    assert StimulusFingerprint("s", [], history, b"x").digest() == fingerprint(whole).stimulus[-1]


@pytest.mark.parametrize(
    "history", [[{1: "x"}], [{"role": "user", "content": [{None: "x"}]}], [{"role": "user", "content": [(1, 2)]}]]
)
def test_python_only_values_are_refused(history: list[Any]) -> None:
    with pytest.raises(UnfingerprintableError):
        StimulusFingerprint("s", [], history, b"").digest()


def test_lone_surrogates_and_the_character_they_would_form_are_apart() -> None:
    pair, whole = ({"messages": [{"role": "tool", "content": text}]} for text in ("\ud83d" + "\ude00", "\U0001f600"))
    assert fingerprint(pair).stimulus[-1] != fingerprint(whole).stimulus[-1]


TEXT = st.text(st.characters(), max_size=12)
CALL = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b", None]),
        "name": TEXT,
        "arguments": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2) | TEXT,
    }
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": TEXT | st.none(), "tool_calls": st.lists(CALL, max_size=2)}
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": st.sampled_from(["a", "b", None])}),
)
STIMULUS = st.fixed_dictionaries(
    {
        "system": TEXT | st.none(),
        "tools": st.lists(
            st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.integers(0, 9), max_size=2),
            max_size=2,
        ),
        "opts": st.just({}),
        "messages": st.lists(MESSAGE, max_size=6),
    }
)


@given(STIMULUS, st.data())
def test_every_part_of_the_stimulus_changes_the_fingerprint(stimulus: dict[str, Any], data: st.DataObject) -> None:
    changed = copy.deepcopy(stimulus)
    places = ["system", "tools", "opts", *range(len(changed["messages"]))]
    place = data.draw(st.sampled_from(places))
    if place == "system":
        changed["system"] = (changed["system"] or "") + "!"
    elif place == "tools":
        changed["tools"].append({"new": 1})
    elif place == "opts":
        changed["opts"] = {"tool_choice": "required"}
    else:
        message = changed["messages"][place]
        message["content"] = (message["content"] or "") + "!"
    try:
        before, after = fingerprint(stimulus), fingerprint(changed)
    except UnfingerprintableError:
        return  # a lone surrogate inside JSON arguments has no canonical form: refused, not hashed
    assert before.stimulus[-1] != after.stimulus[-1]
    verdict = compare(before, after)
    assert not verdict
    if isinstance(place, int):
        assert verdict.first_message == place
        assert verdict.by == ("agent" if stimulus["messages"][place]["role"] == "assistant" else "harness")
    else:
        assert verdict.first_message is None
        assert verdict.by == "harness"


@given(STIMULUS)
def test_call_ids_matter_only_as_links(stimulus: dict[str, Any]) -> None:
    renamed = copy.deepcopy(stimulus)
    for message in renamed["messages"]:
        for call in message.get("tool_calls", []):
            call["id"] = call["id"] and f"other-{call['id']}"
        if message.get("tool_call_id"):
            message["tool_call_id"] = f"other-{message['tool_call_id']}"
    try:
        assert fingerprint(stimulus) == fingerprint(renamed)
    except UnfingerprintableError:
        return


def transcript_of(
    messages: list[Message], inputs: list[tuple[tuple[int, int], ...]], contexts: list[Context] | None = None
) -> Transcript:
    contexts = contexts or [Context(system="s")] * len(inputs)
    calls = tuple(
        ModelCall(turn=i, context=c, delivered=r, proposed=None)
        for i, (r, c) in enumerate(zip(inputs, contexts, strict=True), 1)
    )
    return Transcript(messages=tuple(messages), calls=calls)


RANGE = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda pair: (min(pair), max(pair)))


@given(
    st.lists(st.lists(RANGE, max_size=3).map(tuple), min_size=1, max_size=5),
    st.lists(st.sampled_from([Context(system="s"), Context(system="t")]), min_size=5, max_size=5),
)
def test_incremental_fingerprints_equal_fresh_ones(inputs: list[tuple[tuple[int, int], ...]], contexts: list[Context]) -> None:
    pool = [
        Message(role="user", content="u"),
        Message(role="assistant", tool_calls=(ToolCall(name="f", arguments={"n": 1}, id="a"),)),
        Message(role="tool", content="x", tool_call_id="a"),
        Message(role="tool", content="y", tool_call_id="a"),
        Message(role="assistant", tool_calls=(ToolCall(name="f", arguments={"n": 1}), ToolCall(name="g", arguments="{}"))),
        Message(role="tool", content="z"),
        Message(role="tool", content=b"\xff", error="boom"),
        Message(role="user", content=[{"type": "text", "text": "t"}]),
    ]
    transcript = transcript_of(pool, inputs, contexts[: len(inputs)])
    for turn in fingerprint_turns(transcript):
        fresh = fingerprint(transcript, turn=turn.turn)
        assert (turn.stimulus, turn.chain, turn.env) == (fresh.stimulus[-1], fresh.chain[-1], fresh.env[-1])
        assert turn.messages == len(fresh.msg)


def test_unlogged_parts_equal_nothing_logged() -> None:
    call = ModelCall(turn=1, context=Context(system="s"), delivered=(), proposed=None)
    known = fingerprint(Transcript(messages=(), calls=(call,)))
    unknown = fingerprint(Transcript(messages=(), calls=(call,), unlogged=frozenset({"tools"})))
    assert known.tools != unknown.tools
    assert unknown.unlogged == ("tools",)
    assert known.stimulus != unknown.stimulus


def test_unlogged_delivery_is_refused_not_guessed() -> None:
    call = ModelCall(turn=1, context=Context(), delivered=None, proposed=None)
    transcript = Transcript(messages=(), calls=(call,))
    with pytest.raises(UnfingerprintableError, match="not logged"):
        fingerprint(transcript)
    assert fingerprint_turns(transcript)[0].stimulus is None


def test_dropped_names_are_recorded_and_do_not_count() -> None:
    plain = {"messages": [{"role": "user", "content": "x"}], "opts": {}}
    noisy = {"messages": [{"role": "user", "content": "x", "id": "m1"}], "opts": {"temperature": 1}, "run_id": "r"}
    assert fingerprint(noisy).dropped == ("messages.id", "opts.temperature", "run_id")
    assert fingerprint(plain).stimulus == fingerprint(noisy).stimulus
    assert fingerprint({**plain, "decode": {"temperature": 1}}).decode != fingerprint(plain).decode


def test_turn_selects_the_model_call() -> None:
    transcript = transcript_of([Message(role="user", content="a"), Message(role="user", content="b")], [((0, 1),), ((0, 2),)])
    assert fingerprint(transcript, turn=1).stimulus[-1] == fingerprint(transcript).stimulus[1]
    for turn in (0, 3):
        with pytest.raises(InputError, match=r"1\.\.2"):
            fingerprint(transcript, turn=turn)
    with pytest.raises(InputError):
        fingerprint({"messages": []}, turn=1)


@pytest.mark.parametrize(
    ("stimulus", "place"),
    [
        ({"messages": [{"role": "user", "content": 3}]}, "$.messages[0].content"),
        ({"messages": [{"role": "tool", "content_b64": "*"}]}, "$.messages[0].content_b64"),
        ({"messages": [{"content": "x"}]}, "$.messages[0]"),
        ({"messages": ["x"]}, "$.messages[0]"),
        ({"messages": {}}, "$.messages"),
        ({"system": 1}, "$.system"),
        ({"tools": [{"a": float("nan")}]}, "$.tools[0].a"),
        ({"tools": [{"a": 2**53}]}, "$.tools[0].a"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": [float("inf")]}}]}]},
            "$.messages[0].tool_calls[0].arguments.x[0]",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{"name": "f"}]}]}, "$.messages[0].tool_calls[0].arguments"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"arguments": {}}]}]}, "$.messages[0].tool_calls[0]"),
        ({"messages": [{"role": "tool", "content": "", "tool_call_id": 7}]}, "$.messages[0].tool_call_id"),
    ],
)
def test_bad_stimuli_are_refused_with_their_path(stimulus: dict[str, Any], place: str) -> None:
    with pytest.raises(UnfingerprintableError) as caught:
        fingerprint(stimulus)
    assert caught.value.where == place


def test_compare_localises_tools() -> None:
    f, g, h = ({"name": name} for name in "fgh")
    reordered = compare({"tools": [f, g]}, {"tools": [g, f]})
    assert [(d.component, d.detail) for d in reordered.differences] == [("tools", "order only")]
    changed = compare({"tools": [f, g]}, {"tools": [f, h]})
    assert [(d.component, d.index) for d in changed.differences] == [("tool", 1)]
    shorter = compare({"tools": [f, g]}, {"tools": [f]})
    assert [(d.index, d.detail) for d in shorter.differences] == [(1, "removed: g is only in the left")]


def tool(name: str, says: str = "", wrapped: bool = False) -> dict[str, Any]:
    inner = {"name": name, "description": says}
    return {"type": "function", "function": inner} if wrapped else inner


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ("f g h", "x f g h", [(0, "inserted: x is only in the right")]),
        ("f g h", "f x g h", [(1, "inserted: x is only in the right")]),
        ("f g h", "g h", [(0, "removed: f is only in the left")]),
        ("f g h", "f g! h", [(1, "changed: schema of g differs")]),
        ("f g h", "x f g! h", [(1, "changed: schema of g differs"), (0, "inserted: x is only in the right")]),
        ("f g h i", "g h i f!", [(0, "moved: f is at 3 in the right; changed: schema of f differs")]),
        ("f g h i", "x g h f i", [(0, "moved: f is at 3 in the right"), (0, "inserted: x is only in the right")]),
        ("f g h", "f x h", [(1, "replaced: g in the left, x in the right")]),
        ("f f g", "f! g", [(1, "changed: schema of f differs"), (0, "removed: f is only in the left")]),
        ("", "f", [(0, "inserted: f is only in the right")]),
    ],
)
def test_tools_are_compared_by_name_wherever_they_stand(left: str, right: str, told: list[Any], wrapped: bool) -> None:
    sides = [{"tools": [tool(n.strip("!"), "!" * n.count("!"), wrapped) for n in names.split()]} for names in (left, right)]
    assert [(d.index, d.detail) for d in compare(*sides).differences if d.component == "tool"] == told
    assert {d.component for d in compare(*sides).differences} == {"tool"}
    prints = [fingerprint(side) for side in sides]
    assert {d.left for d in compare(*sides).differences} <= {*prints[0].tool, None}
    assert {d.right for d in compare(*sides).differences} <= {*prints[1].tool, None}


def test_tools_of_bare_fingerprints_are_compared_by_digest() -> None:
    f, g, x = (fingerprint({"tools": [tool(name)]}).tool[0] for name in "fgx")
    before, after = ({"tools": [tool(name) for name in names]} for names in ("fg", "xfg"))
    for pair in ((fingerprint(before), fingerprint(after)), (before, fingerprint(after)), (fingerprint(before), after)):
        assert [(d.index, d.left, d.right, d.detail[:8]) for d in compare(*pair).differences] == [(0, None, x, "inserted")]
    anew = compare(fingerprint(before), fingerprint({"tools": [tool("f", "new"), tool("g")]}))
    assert [(d.index, d.left, d.detail[:8]) for d in anew.differences] == [(0, f, "replaced")]
    assert g not in {anew.differences[0].left, anew.differences[0].right}


def test_a_tool_that_is_no_object_stands_for_itself() -> None:
    (found,) = compare({"tools": ["search"], "messages": []}, {"tools": ["fetch"], "messages": []}).differences
    assert (found.component, found.index, found.detail.partition(":")[0]) == ("tool", 0, "replaced")


def test_a_tool_without_a_name_stands_for_itself() -> None:
    found = compare({"tools": [{"a": 1}, {"b": 2}]}, {"tools": [{"c": 3}, {"a": 1}, {"b": 2}]})
    assert [(d.index, d.detail[:8]) for d in found.differences] == [(0, "inserted")]


def test_compare_finds_the_first_message_by_bisection() -> None:
    base = [{"role": "user", "content": str(i)} for i in range(100)]
    for place in (0, 1, 50, 99):
        other = copy.deepcopy(base)
        other[place]["content"] = "changed"
        assert compare({"messages": base}, {"messages": other}).first_message == place
    longer = compare({"messages": base}, {"messages": [*base, {"role": "assistant", "content": "x"}]})
    assert (longer.first_message, longer.by) == (100, "agent")
    assert compare({"messages": base}, {"messages": copy.deepcopy(base)})


def test_compare_names_rebinding() -> None:
    calls = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "name": "f", "arguments": {}}, {"id": "b", "name": "f", "arguments": {}}],
    }
    left, right = ({"messages": [calls, {"role": "tool", "tool_call_id": i, "content": "x"}]} for i in "ab")
    assert "bound to another call" in compare(left, right).differences[0].detail


def test_parse_message_accepts_the_provider_shape() -> None:
    plain = parse_message({"role": "assistant", "tool_calls": [{"id": "a", "name": "f", "arguments": "{}"}]}, "$")
    provider = parse_message(
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        "$",
    )
    assert plain == provider


@pytest.mark.parametrize("part", ["system", "tools", "opts"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_compare_says_what_only_one_side_logged(part: str, swapped: bool, bare: bool) -> None:
    user = Message(role="user", content="hi")
    for context in (Context(), Context(system="s", tools=({"name": "a"},), opts={"tool_choice": "auto"})):
        call = ModelCall(turn=1, context=context, delivered=((0, 1),), proposed=None)
        pair = [Transcript(messages=(user,), calls=(call,), unlogged=frozenset(names)) for names in ((), (part,))]
        if swapped:
            pair.reverse()
        found = compare(*(map(fingerprint, pair) if bare else pair)).differences
        assert [(d.component, d.detail) for d in found] == [(part, "not logged on one side")]
