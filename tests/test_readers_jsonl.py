"""``litmuskit-log/1``: what is written is what is read, the schema says the same, and nothing loose is let in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litmuskit import records
from litmuskit.audit import audit_log
from litmuskit.errors import InputError, LogFormatError
from litmuskit.readers import read_log
from litmuskit.readers.jsonl import encode_episode, sniff, write_log
from litmuskit.records import (
    COMPONENTS,
    MATCH_KEYS,
    STATUSES,
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
from litmuskit.transcript import ROLES

VECTORS = Path(__file__).parent / "vectors/0.1.0"
SCHEMA = json.loads(files("litmuskit.readers").joinpath("log.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

TEXT = st.text(st.characters(), max_size=12)  # lone surrogates, NUL and controls included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
maybe = st.none().__or__
small = st.integers(0, 3)
call = st.builds(ToolCall, name=TEXT, arguments=OBJECT | TEXT, id=maybe(TEXT), parse_error=maybe(TEXT))
calls = st.lists(call, max_size=2).map(tuple)
blocks = st.lists(OBJECT | TEXT, max_size=2)
CONTENT = st.none() | TEXT | st.binary(max_size=8) | blocks
message = st.builds(
    Message, role=st.sampled_from(ROLES), content=CONTENT, tool_calls=calls, tool_call_id=maybe(TEXT), error=maybe(TEXT)
)
cut = st.builds(Truncation, raw_size=maybe(small), cap=maybe(small), unit=st.sampled_from(["bytes", "characters"]))
observation = st.builds(
    Observation,
    position=maybe(small),
    call=maybe(call),
    executed=maybe(st.booleans()),
    raw=maybe(TEXT | st.binary(max_size=8)),
    delivered=CONTENT,
    error=maybe(TEXT),
    truncation=maybe(cut),
)
context = st.builds(Context, system=maybe(TEXT), tools=st.lists(OBJECT, max_size=2).map(tuple), opts=OBJECT, decode=OBJECT)
label = st.builds(
    Label,
    scorer=TEXT,
    violation=maybe(st.booleans()),
    match_key=st.sampled_from(MATCH_KEYS),
    value=JSON,
    turn=maybe(small),
    position=maybe(small),
    reason=maybe(TEXT),
    schema_check=maybe(st.booleans()),
)
policy = st.builds(Policy, name=TEXT, version=TEXT, digest=TEXT, seed=maybe(TEXT), deterministic=maybe(st.booleans()))
harness = st.builds(
    Harness,
    name=TEXT,
    version=maybe(TEXT),
    model=maybe(TEXT),
    source=maybe(OBJECT),
    policies=st.dictionaries(TEXT, policy, max_size=2),
)
event = st.builds(Event, kind=TEXT, turn=maybe(small), position=maybe(small), policy=maybe(TEXT), detail=TEXT)


@st.composite
def transcripts(draw) -> Transcript:
    pool = draw(st.lists(message, max_size=4).map(tuple))
    ends = st.integers(0, len(pool))
    ranges = maybe(st.lists(st.tuples(ends, ends).map(lambda pair: tuple(sorted(pair))), max_size=2).map(tuple))
    turns = tuple(
        ModelCall(
            turn=turn,
            context=draw(context),
            delivered=draw(ranges),
            proposed=draw(maybe(message)),
            observations=draw(st.lists(observation, max_size=2).map(tuple)),
            stop=draw(maybe(TEXT)),
            cached=draw(maybe(st.booleans())),
            error=draw(maybe(TEXT)),
        )
        for turn in range(1, draw(st.integers(0, 2)) + 1)
    )
    unlogged = draw(st.frozensets(st.sampled_from(COMPONENTS)))
    return Transcript(messages=pool, calls=turns, final=draw(ranges), unlogged=unlogged)


FACTS = {
    "record": TEXT,
    "instance": TEXT,
    "transcript": transcripts(),
    "labels": st.lists(label, max_size=2).map(tuple),
    "harness": harness,
    "epoch": st.integers(1, 9),
    "run": maybe(TEXT),
    "attacked": st.booleans(),
    "status": st.sampled_from(STATUSES),
    "error": maybe(TEXT),
    "payloads": maybe(st.dictionaries(TEXT, TEXT, max_size=2)),
    "carriers": maybe(st.frozensets(TEXT, max_size=2)),
    "events": maybe(st.lists(event, max_size=2).map(tuple)),
    "live": maybe(st.lists(maybe(TEXT), max_size=2).map(tuple)),
    "limit": maybe(TEXT),
    "retries": small,
    "copied": maybe(st.booleans()),
    "invalidated": st.booleans(),
    "edited": st.booleans(),
    "groups": st.dictionaries(TEXT, TEXT, max_size=2),
    "metadata": OBJECT,
}


def build_episode(**facts):
    """An episode whose labels and events name turns that its transcript holds."""
    last = len(facts["transcript"].calls)

    def place(one):
        turn = None if one.turn is None or not last else 1 + one.turn % last
        return replace(one, turn=turn, position=None if one.position is None else 0)

    labels, events = (tuple(map(place, facts[name] or ())) for name in ("labels", "events"))
    return Episode(**{**facts, "labels": labels, "events": facts["events"] and events})


episode = st.builds(build_episode, source=st.just(Source(path="x")), **FACTS)
laws = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def test_the_law_below_draws_every_field():
    assert set(FACTS) | {"source"} == {field.name for field in fields(Episode)}


@laws
@given(st.lists(episode, min_size=1, max_size=3))
def test_what_is_written_is_what_is_read(tmp_path_factory, episodes):
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    write_log(path, episodes)
    back = list(read_log(path))
    assert [replace(found, source=Source(path="x")) for found in back] == episodes
    assert [found.source.line for found in back] == list(range(2, len(episodes) + 2))
    for line in path.read_bytes().splitlines():
        VALIDATOR.validate(json.loads(line))


def make_episode(**facts) -> Episode:
    user = Message(role="user", content="Read my mail")
    asks = Message(role="assistant", content=None, tool_calls=(ToolCall(name="read", arguments={"n": 1}, id="c1"),))
    answer = Message(role="tool", content=b"\xff\x00mail", tool_call_id="c1")
    around = Context(system="You help.", tools=({"name": "read"},), opts={"tool_choice": "auto"})
    seen = Observation(position=0, call=asks.tool_calls[0], executed=True, raw="mail", delivered=b"\xff\x00mail")
    turns = (
        ModelCall(turn=1, context=around, delivered=((0, 1),), proposed=asks, observations=(seen,)),
        ModelCall(turn=2, context=around, delivered=((0, 3),), proposed=None, stop="stop"),
    )
    base = {
        "record": "r",
        "source": Source(path="x"),
        "instance": "i",
        "transcript": Transcript(messages=(user, asks, answer), calls=turns, final=((0, 3),)),
        "labels": (Label(scorer="s", violation=True, value=1, turn=1),),
        "harness": Harness(name="h", policies={"mutation": Policy(name="m", version="1", digest="sha256:0")}),
        "events": (Event(kind="mutation", turn=1),),
    }
    return Episode(**base | facts)


def lines_of(*episodes: Episode) -> list[dict]:
    head = episodes[0].harness
    entries = [json.loads(encode_episode(found, head)) for found in episodes]
    plain = {"name": "h", "policies": {"mutation": {"name": "m", "version": "1", "digest": "sha256:0"}}}
    return [{"type": "litmuskit-log/1", "harness": plain}, *entries, {"type": "end", "episodes": len(entries)}]


def write_lines(path: Path, lines: list) -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
    return path


def read_failures(path: Path) -> list[str]:
    log = read_log(path, keep_going=True)
    list(log)
    return [str(failure.error) for failure in log.failures]


def test_contexts_and_messages_stand_once():
    entry = lines_of(make_episode())[1]
    assert len(entry["transcript"]["contexts"]) == 1
    assert [turn["context"] for turn in entry["transcript"]["calls"]] == [0, 0]
    assert entry["transcript"]["messages"][2]["content"] == {"b64": "/wBtYWls"}


def test_contexts_that_python_calls_equal_are_kept_apart(tmp_path):
    pair = [Context(opts={"x": 1}), Context(opts={"x": True})]
    turns = tuple(ModelCall(turn=i, context=c, delivered=None, proposed=None) for i, c in enumerate(pair, 1))
    write_log(tmp_path / "a.jsonl", [make_episode(transcript=Transcript(messages=(), calls=turns))])
    (back,) = read_log(tmp_path / "a.jsonl")
    assert [type(turn.context.opts["x"]) for turn in back.transcript.calls] == [int, bool]


def test_an_episode_of_another_harness_carries_its_own(tmp_path):
    other = make_episode(record="q", harness=Harness(name="other"))
    write_log(tmp_path / "a.jsonl", [make_episode(), other])
    assert [found.harness.name for found in read_log(tmp_path / "a.jsonl")] == ["h", "other"]
    write_log(tmp_path / "a.jsonl", [other], header=Harness(name="third"))
    assert json.loads((tmp_path / "a.jsonl").read_bytes().splitlines()[0])["harness"] == {"name": "third"}
    assert [found.harness.name for found in read_log(tmp_path / "a.jsonl")] == ["other"]


@pytest.mark.parametrize(
    "metadata",
    [{"a": b"bytes"}, {"a": (1, 2)}, {1: "key"}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": object()}],
    ids=["bytes", "tuple", "key", "nan", "inf", "set", "object"],
)
def test_what_would_not_read_back_equal_is_not_written(metadata, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("before")
    with pytest.raises(InputError, match="'r'"):
        write_log(path, [make_episode(record="ok"), make_episode(metadata=metadata)])
    assert path.read_text() == "before"  # whole or not at all
    assert list(tmp_path.iterdir()) == [path]


def test_read_only_mappings_are_written(tmp_path):
    write_log(tmp_path / "a.jsonl", [make_episode(metadata=MappingProxyType({"a": MappingProxyType({"b": 1})}))])
    assert [found.metadata for found in read_log(tmp_path / "a.jsonl")] == [{"a": {"b": 1}}]


def test_a_log_needs_an_episode(tmp_path):
    with pytest.raises(InputError, match="needs an episode"):
        write_log(tmp_path / "a.jsonl", [])
    assert list(tmp_path.iterdir()) == []


def change(entry: dict, path: str, value: object) -> dict:
    """A deep copy with the value at a dotted path replaced, added, or (with `...`) removed."""
    entry = json.loads(json.dumps(entry))
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at = entry
    for step in steps:
        at = at[step]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return entry


LOOSE = [
    ("surprise", 1, "$", "surprise"),
    ("transcript.surprise", 1, "$.transcript", "surprise"),
    ("transcript.messages.0.name", "x", "$.transcript.messages[0]", "name"),
    ("transcript.messages.1.tool_calls.0.type", "function", "$.transcript.messages[1].tool_calls[0]", "type"),
    ("transcript.contexts.0.temperature", 1, "$.transcript.contexts[0]", "temperature"),
    ("transcript.calls.0.observations.0.call.x", 1, "$.transcript.calls[0].observations[0].call", "'x'"),
    ("labels.0.verdict", 1, "$.labels[0]", "verdict"),
    ("events.0.seed", 1, "$.events[0]", "seed"),
    ("record", ..., "$", "record"),
    ("transcript", ..., "$", "transcript"),
    ("labels", ..., "$.labels", "a list"),
    ("transcript.messages", ..., "$.transcript", "messages"),
    ("transcript.messages.0.role", ..., "$.transcript.messages[0]", "role"),
    ("transcript.calls.0.delivered", ..., "$.transcript.calls[0]", "delivered"),
    ("transcript.calls.0.context", ..., "$.transcript.calls[0]", "context"),
    ("labels.0.scorer", ..., "$.labels[0]", "scorer"),
    ("record", 7, "$.record", "text"),
    ("epoch", "1", "$.epoch", "an integer"),
    ("epoch", True, "$.epoch", "an integer"),
    ("attacked", 1, "$.attacked", "true or false"),
    ("attacked", "true", "$.attacked", "true or false"),
    ("status", "done", "$.status", "finished"),
    ("payloads", ["x"], "$.payloads", "an object"),
    ("payloads", {"a": 1}, "$.payloads.a", "text"),
    ("live", "x", "$.live", "a list"),
    ("groups", {"a": None}, "$.groups.a", "text"),
    ("metadata", None, "$.metadata", "an object"),
    ("labels.0.violation", "yes", "$.labels[0].violation", "true or false"),
    ("labels.0.violation", 1, "$.labels[0].violation", "true or false"),
    ("labels.0.match_key", "args", "$.labels[0].match_key", "arguments+observation"),
    ("labels", {"s": 1}, "$.labels", "a list"),
    ("transcript", [], "$.transcript", "an object"),
    ("transcript.messages", {}, "$.transcript.messages", "a list"),
    ("transcript.messages.0", None, "$.transcript.messages[0]", "an object"),
    ("transcript.messages.0.role", "robot", "$.transcript.messages[0]", "user"),
    ("transcript.messages.0.content", 5, "$.transcript.messages[0].content", "text"),
    ("transcript.messages.2.content", {"b64": "!!"}, "$.transcript.messages[2].content.b64", "base64"),
    ("transcript.messages.2.content", {"base64": "aa"}, "$.transcript.messages[2].content", "b64"),
    ("transcript.messages.1.tool_calls.0.arguments", None, "$.transcript.messages[1].tool_calls[0].arguments", "an object"),
    ("transcript.contexts", {}, "$.transcript.contexts", "a list"),
    ("transcript.contexts.0.tools", ["read"], "$.transcript.contexts[0].tools[0]", "an object"),
    ("transcript.calls", None, "$.transcript.calls", "a list"),
    ("transcript.calls.0.context", -1, "$.transcript.calls[0].context", "an index"),
    ("transcript.calls.0.context", {}, "$.transcript.calls[0].context", "an index"),
    ("transcript.calls.0.delivered", [0, 1], "$.transcript.calls[0].delivered[0]", "a list"),
    ("transcript.calls.0.delivered", [[0]], "$.transcript.calls[0].delivered[0]", "[start, stop]"),
    ("transcript.calls.0.delivered", [[0, "1"]], "$.transcript.calls[0].delivered[0]", "[start, stop]"),
    ("transcript.unlogged", ["weather"], "$.transcript", "delivered"),
    ("harness", {"version": "1"}, "$.harness", "name"),
    ("source", {"path": "x"}, "$", "source"),
    ("type", "espisode", "$.type", "episode or end"),
]
BEYOND_SCHEMA = [  # what a schema cannot say
    ("transcript.calls.0.context", 7, "$.transcript.calls[0].context", "an index"),
    ("transcript.calls.0.delivered", [[0, 99]], "$.transcript", "0..3"),
    ("transcript.calls.0.delivered", [[2, 1]], "$.transcript", "0..3"),
    ("transcript.calls.0.delivered", [[0, 10**12]], "$.transcript", "0..3"),
    ("transcript.calls.1.turn", 7, "$.transcript", "2"),
]


@pytest.mark.parametrize(("path", "value", "where", "names"), LOOSE + BEYOND_SCHEMA)
def test_what_does_not_fit_is_named_by_line_and_json_path(path, value, where, names, tmp_path, request):
    head, entry, end = lines_of(make_episode())
    loose = change(entry, path, value)
    log = write_lines(tmp_path / "a.jsonl", [head, entry, loose, {**end, "episodes": 2}])
    (said,) = read_failures(log)
    assert f"a.jsonl:3 {where}" in said
    assert names in said
    assert VALIDATOR.is_valid(entry)
    assert VALIDATOR.is_valid(loose) == ((path, value, where, names) in BEYOND_SCHEMA)
    assert len(list(read_log(log, keep_going=True))) == 1  # the sound line is read


def test_the_schema_names_exactly_the_fields_of_the_records():
    for name, shape in SCHEMA["$defs"].items():
        if name != "bytes":
            names = {field.name for field in fields(getattr(records, name))}
            extra = {"Episode": {"type"}, "Transcript": {"contexts"}}.get(name, set())
            assert set(shape["properties"]) == names - ({"source"} if name == "Episode" else set()) | extra
            assert shape["additionalProperties"] is False
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


STRICT = [
    (lambda line: line.replace(b'"record"', b'"record": "twice", "record"'), "duplicate key"),
    (lambda line: line.replace(b'"value": 1', b'"value": NaN'), "NaN"),
    (lambda line: line.replace(b'"value": 1', b'"value": -Infinity'), "Infinity"),
    (lambda line: line.replace(b'"value": 1', b'"value": 1e999'), "not finite"),
    (lambda line: line.replace(b"Read my mail", b"\xff\xfe"), "not UTF-8"),
    (lambda line: b"\xef\xbb\xbf" + line, "byte order mark"),
    (lambda line: line[: len(line) // 2], "not JSON"),
    (lambda line: line + b" {}", "Extra data"),
    (lambda line: b"[" * 100_000, "nested too deeply"),
    (lambda line: b"[]", "no object"),
]


SAMPLE = [json.dumps(line).encode() for line in lines_of(make_episode())]
STRUCK = [(damage, names, at) for damage, names in STRICT for at in (0, 1) if damage(SAMPLE[at]) != SAMPLE[at]]


@pytest.mark.parametrize(("damage", "names", "at"), STRUCK, ids=[f"{names} in line {at + 1}" for _, names, at in STRUCK])
def test_loose_json_is_refused_with_its_line(damage, names, at, tmp_path):
    lines = list(SAMPLE)
    lines[at] = damage(lines[at])
    log = read_log(write_lines(tmp_path / "a.jsonl", lines), keep_going=True)
    assert list(log) == []
    said = str(log.failures[0].error)
    assert "a.jsonl" in said
    assert f"a.jsonl:{at + 1}" in said or "unknown format" in said
    assert names in said or "unknown format" in said


def test_the_words_nan_and_infinity_in_text_are_text(tmp_path):
    write_log(tmp_path / "a.jsonl", [make_episode(metadata={"NaN": "Infinity 1e999"})])
    assert [found.metadata for found in read_log(tmp_path / "a.jsonl")] == [{"NaN": "Infinity 1e999"}]


def test_a_cut_log_is_never_a_shorter_one(tmp_path):
    whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines_of(make_episode(), make_episode(record="q")))
    path = tmp_path / "a.jsonl"
    for size in [*range(1, len(whole) - 1, 211), *(i + 1 for i, byte in enumerate(whole[:-1]) if byte == 10)]:
        path.write_bytes(whole[:size])
        with pytest.raises(LogFormatError, match=r"a\.jsonl"):
            list(read_log(path))
    path.write_bytes(whole[:-1])  # the last line feed carries nothing
    assert len(list(read_log(path))) == 2


@pytest.mark.parametrize("end", [{"type": "end", "episodes": 2}, {"type": "end"}, {"type": "end", "episodes": 1, "x": 1}])
def test_an_end_that_counts_otherwise_is_a_failure(end, tmp_path):
    lines = lines_of(make_episode())
    (said,) = read_failures(write_lines(tmp_path / "a.jsonl", [*lines[:-1], end]))
    assert "a.jsonl:3 $: " in said
    assert "an end after 1 episodes" in said


def test_logs_written_one_after_another_are_read_one_after_another(tmp_path):
    lines = lines_of(make_episode())
    path = write_lines(tmp_path / "a.jsonl", [*lines, b"", *lines])
    assert [found.source.line for found in read_log(path)] == [2, 6]
    assert "a header" in read_failures(write_lines(path, [*lines, lines[1]]))[0]
    assert "episode or end" in read_failures(write_lines(path, [*lines[:2], *lines]))[0]


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ({"type": "litmuskit-log/2", "harness": {"name": "h"}}, "litmuskit-log/1"),
        ({"type": "litmuskit-log/1"}, "harness"),
        ({"type": "litmuskit-log/1", "harness": {"name": "h"}, "x": 1}, "'x'"),
        ({"type": "litmuskit-log/1", "harness": {"name": 1}}, "$.harness.name"),
        ({"type": "litmuskit-log/1", "harness": {"name": "h", "policies": {"m": {"name": "x"}}}}, "$.harness.policies.m"),
    ],
)
def test_a_wrong_header_refuses_the_file(header, names, tmp_path):
    log = read_log(write_lines(tmp_path / "a.jsonl", [header, *lines_of(make_episode())[1:]]), keep_going=True)
    assert list(log) == []
    (failure,) = log.failures
    assert "a.jsonl:1" in str(failure.error)
    assert names in str(failure.error)


def test_labels_without_violation_need_a_rule(tmp_path):
    head, entry, end = lines_of(make_episode())
    path = write_lines(tmp_path / "a.jsonl", [head, change(entry, "labels.0.violation", ...), end])
    assert "s: 1" in read_failures(path)[0]
    assert "--violation" in read_failures(path)[0]
    assert [found.flagged for found in read_log(path, violation="s=1")] == [True]
    assert [found.flagged for found in read_log(path, violation="s=2")] == [False]
    assert [found.labels[0].match_key for found in read_log(path, violation="s=1", match_key="state")] == ["state"]
    assert [found.labels[0].turn for found in read_log(path, violation="s=1")] == [1]


def test_a_typed_rule_overrides_the_logs_own_word(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", lines_of(make_episode()))
    assert [found.flagged for found in read_log(path)] == [True]
    assert [found.flagged for found in read_log(path, violation="s=0")] == [False]
    assert "no scorer that the rules name" in str(read_log(path, violation="z=0", keep_going=True).failures[0].error)


def test_a_rule_for_labels_that_state_violation_and_no_value_is_to_be_dropped(tmp_path):
    head, entry, end = lines_of(make_episode())
    path = write_lines(tmp_path / "a.jsonl", [head, change(entry, "labels.0.value", ...), end])
    remedy = "drop --violation for labels that state it"
    assert remedy in str(audit_log(read_log(path, violation="s=1")).gate.to_table().to_text())
    assert [found.flagged for found in read_log(path)] == [True]
    seen = write_lines(tmp_path / "b.jsonl", lines_of(make_episode()))
    assert remedy not in audit_log(read_log(seen, violation="s=2")).gate.to_table().to_text()


def test_reading_stops_where_the_reader_stops(tmp_path):
    lines = lines_of(make_episode(), make_episode(record="q"))
    path = write_lines(tmp_path / "a.jsonl", [lines[0], lines[1], b"broken"])
    assert next(iter(read_log(path))).record == "r"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"type":"litmuskit-log/1","harness":{"name":"x"}}\n{', True),
        (b' { "harness": {"name": "x"}, "type" : "litmuskit-log/9"}', True),
        (b'\xef\xbb\xbf{"type":"litmuskit-log/1"', True),
        (b'{"text":"\\"type\\":\\"litmuskit-log/1\\""}', False),
        (b'{"a":1}\n{"type":"litmuskit-log/1"}', False),
        (b"PK\x03\x04", False),
        (b"", False),
    ],
)
def test_sniffing(head, expected):
    assert sniff(head, "any.name") is expected


GOLDEN = {  # written by release 0.1.0; never edited
    "log_minimal.jsonl": "78dd67e3448355229379828ac8c7a0e67e0e782f4bfe194f09720d309f1c7aa7",
    "log_full.jsonl": "9db1ec365371eb68ef1ee0245517e9b25ec15bbd9f7113cb35d831ee6d971dfc",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_logs_still_read_and_write_back(name, tmp_path):
    assert hashlib.sha256((VECTORS / name).read_bytes()).hexdigest() == GOLDEN[name]
    episodes = list(read_log(VECTORS / name))
    write_log(tmp_path / name, episodes)
    assert [replace(e, source=Source(path="")) for e in read_log(tmp_path / name)] == [
        replace(e, source=Source(path="")) for e in episodes
    ]


def test_what_the_golden_logs_say():
    (minimal,) = read_log(VECTORS / "log_minimal.jsonl")
    assert (minimal.record, minimal.status, minimal.flagged, minimal.events) == ("tiny#1", "finished", False, None)
    full, errored = read_log(VECTORS / "log_full.jsonl")
    assert (full.flagged_turn, full.flag.match_key, full.live) == (2, "arguments+observation", (None, "sha256:aa"))
    assert full.transcript.delivered(1)[0].content == "Grüße \ud800 \x00"
    assert full.transcript.delivered(2)[2].content == b"\xff\x00\x01"
    assert full.transcript.calls[0].observations[0].truncation == Truncation(raw_size=5900, cap=1024)
    assert full.transcript.calls[0].observations[0].call.arguments == {"n": 10**30, "x": 0.1}
    assert full.harness.policies["mutation"].seed == "00017"
    assert full.carriers == {"read_mail"}
    assert (errored.status, errored.labels[0].violation, errored.harness.name) == ("errored", None, "other")
    assert isinstance(full.metadata, Mapping)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            {"labels": [{"scorer": "s", "violation": True, "turn": 99}]},
            "label 's': flags a turn that",
        ),
        ({"events": [{"kind": "mutation", "turn": 99}]}, "event 'mutation': declares a turn that"),
        ({"status": "over"}, "status"),
    ],
)
def test_a_record_that_contradicts_its_transcript_is_named_with_file_and_line(part, said, tmp_path):
    write_log(tmp_path / "a.jsonl", [make_episode()])
    head, line, end = (tmp_path / "a.jsonl").read_text().splitlines()
    (tmp_path / "b.jsonl").write_text("\n".join([head, json.dumps(json.loads(line) | part), end]) + "\n")
    with pytest.raises(InputError) as caught:
        list(read_log(tmp_path / "b.jsonl"))
    assert f"{tmp_path / 'b.jsonl'}:2" in str(caught.value)
    assert said in str(caught.value)
