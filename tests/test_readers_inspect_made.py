"""Inspect logs made here: every form of the format, every class of damage, and what a run can do to a history."""

from __future__ import annotations

import copy
import gzip
import io
import json
import struct
import tarfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from litmuskit import errors
from litmuskit.artifacts import find_artifacts
from litmuskit.assessment import is_screened
from litmuskit.audit import audit_log
from litmuskit.readers import read_log
from litmuskit.stimulus import fingerprint, fingerprint_turns

LONG = "You are careful. " * 20
HASH = "0123456789abcdef0123456789abcdef"
TOOL = {"name": "read", "description": "Read.", "parameters": {"type": "object", "properties": {}}}


def make_call(ident: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"id": ident, "function": name, "arguments": arguments, "type": "function"}


def make_sample(
    turns: list[tuple[list[dict], list[str]]], *, ident: Any = "s", epoch: int = 1, value: Any = 1
) -> dict[str, Any]:
    """A sample in which each turn proposes calls and each call returns a text; the last turn only answers."""
    pool = [
        {"id": "m-system", "role": "system", "content": f"attachment://{HASH}"},
        {"id": "m-user", "role": "user", "content": "go", "source": "input"},
    ]
    events: list[dict[str, Any]] = [
        {"event": "span_begin", "id": "solve", "type": "solver", "name": "solve", "span_id": "solve"}
    ]
    for number, (calls, results) in enumerate([*turns, ([], [])], 1):
        said = {"id": f"m-{number}", "role": "assistant", "content": f"turn {number}", "tool_calls": calls}
        output = {"model": "m", "choices": [{"message": said, "stop_reason": "tool_calls" if calls else "stop"}]}
        model = {
            "event": "model",
            "span_id": "solve",
            "model": "m",
            "input": [],
            "input_refs": [[0, len(pool)]],
            "tools": [TOOL],
        }
        events.append({**model, "tool_choice": "auto", "config": {"temperature": 0.5, "max_connections": 4}, "output": output})
        pool.append(copy.deepcopy(said))
        for call, text in zip(calls, results, strict=True):
            told = {"event": "tool", "span_id": "solve", "id": call["id"], "function": call["function"]}
            ident_ = f"m-{number}-{call['id']}"
            events.append({**told, "arguments": call["arguments"], "result": text, "message_id": ident_})
            pool.append(
                {"id": ident_, "role": "tool", "content": text, "tool_call_id": call["id"], "function": call["function"]}
            )
    final = [{**pool[0], "content": LONG}, *copy.deepcopy(pool[1:])]
    return {
        "id": ident,
        "epoch": epoch,
        "input": "go",
        "messages": final,
        "events": events,
        "events_data": {"messages": pool[:-1], "calls": []},
        "attachments": {HASH: LONG},
        "scores": {"violation": {"value": value, "explanation": "forbidden call"}},
        "started_at": "2026-11-30T10:00:01+00:00",
    }


def make_header(samples: int = 1, **more: Any) -> dict[str, Any]:
    spec = {"task": "made", "model": "m", "created": "2026-11-30T10:00:00+00:00", "packages": {"inspect_ai": "0.3.285"}}
    spec |= {"dataset": {"samples": samples, "sample_ids": [f"s{i}" for i in range(samples)]}, "config": {"epochs": 1}}
    stats = {"started_at": "2026-11-30T10:00:00+00:00"}
    return {"version": 2, "status": "success", "eval": spec, "results": {"total_samples": samples}, "stats": stats, **more}


SIMPLE = make_sample([([make_call("c1", path="a")], ["one"]), ([make_call("c2", path="b")], ["two"])])


def squeeze(text: bytes, method: int) -> bytes:
    if method == 8:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(text) + packer.flush()
    if method == 93:  # two frames, as Inspect writes what it appends
        half = len(text) // 2
        return zstandard.compress(text[:half]) + zstandard.compress(text[half:])
    return text


def pack(path: Path, members: list[tuple[str, bytes]], method: int = 93, prefix: bytes = b"", **lies: Any) -> Path:
    """A zip written by hand, so that it can lie: about its method, sizes, checksum or flags."""
    out, directory = io.BytesIO(), b""
    out.write(prefix)
    for name, text in members:
        packed, offset = squeeze(text, method), out.tell() - len(prefix)
        size, crc = lies.get("size", len(text)), lies.get("crc", zlib.crc32(text))
        shared = struct.pack(
            "<HHHHHIII", 20, lies.get("flags", 0x800), lies.get("method", method), 0, 33, crc, len(packed), size
        )
        encoded = name.encode()
        out.write(b"PK\x03\x04" + shared + struct.pack("<HH", len(encoded), 0) + encoded + packed)
        entry = b"PK\x01\x02" + struct.pack("<H", 20) + shared
        directory += entry + struct.pack("<HHHHHII", len(encoded), 0, 0, 0, 0, 0, offset) + encoded
    start = out.tell() - len(prefix)
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), start, 0)
    out.write(directory + b"PK\x05\x06" + end)
    path.write_bytes(out.getvalue())
    return path


def write_eval(path: Path, *samples: Any, header: Any = None, method: int = 93, **lies: Any) -> Path:
    held = [
        (f"samples/{n}_epoch_1.json", text if isinstance(text, bytes) else json.dumps(text).encode())
        for n, text in enumerate(samples)
    ]
    head = json.dumps(make_header(len(samples)) if header is None else header).encode()
    return pack(path, [*held, ("header.json", head)], method, **lies)


def read(path: Path, **more: Any) -> list:
    return list(read_log(path, **{"violation": "violation=1", **more}))


def change(sample: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {**copy.deepcopy(sample), **keys}


def change_events(sample: dict[str, Any], kind: str, **keys: Any) -> dict[str, Any]:
    changed = copy.deepcopy(sample)
    for event in changed["events"]:
        if event["event"] == kind:
            event.update(keys)
    return changed


# --- forms -----------------------------------------------------------------------------------------------------------


def write_json(path: Path, *samples: Any, header: Any = None) -> Path:
    path.write_text(json.dumps({**(header or make_header(len(samples))), "samples": list(samples)}))
    return path


def make_unpooled(sample: dict[str, Any]) -> dict[str, Any]:
    flat = copy.deepcopy(sample)
    pool = flat.pop("events_data")["messages"]
    for event in flat["events"]:
        if event["event"] == "model":
            event["input"] = [message for start, stop in event.pop("input_refs") for message in pool[start:stop]]
    return flat


def make_first_form(sample: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(make_unpooled(sample)).replace("attachment://", "tc://")
    first = json.loads(text)
    return {**first, "transcript": {"events": first.pop("events"), "content": first.pop("attachments")}}


def make_pooled_3(sample: dict[str, Any]) -> dict[str, Any]:
    third = copy.deepcopy(sample)
    return {**third, "message_pool": third.pop("events_data")["messages"]}


def chunk(sample: dict[str, Any]) -> list[tuple[str, bytes]]:
    whole = copy.deepcopy(sample)
    pool, events = whole.pop("events_data")["messages"], whole.pop("events")
    pool = [*pool, whole.pop("messages")[-1]]
    events = json.loads(json.dumps(events).replace(HASH, "0"))
    pool = json.loads(json.dumps(pool).replace(HASH, "0"))
    whole |= {"message_refs": [[0, len(pool)]], "attachments": {}}
    parts = {"sample": whole, "messages/0": pool[:2], "messages/2": pool[2:], "events/0": events, "attachments/0": [LONG]}
    return [(f"samples/s_epoch_1/{name}.json", json.dumps(part).encode()) for name, part in parts.items()]


def change_model(sample: dict[str, Any], which: int, **keys: Any) -> dict[str, Any]:
    """The sample with one model call's event changed; ``which`` counts from 1."""
    changed = copy.deepcopy(sample)
    [event for event in changed["events"] if event["event"] == "model"][which - 1].update(keys)
    return changed


EMPTY = (([[0, 0]], []), ([[0, 0], [4, 4]], None), ([[5, 5]], ""), ([], []), (None, []), (None, None), (None, ""))
LOST = [(which, {"input_refs": refs, "input": listed}) for which in (1, 2, 3) for refs, listed in EMPTY]


def test_every_form_shows_the_same(tmp_path: Path) -> None:
    head = json.dumps(make_header()).encode()
    forms = [write_eval(tmp_path / f"m{method}.eval", SIMPLE, method=method) for method in (0, 8, 93)]
    forms.append(write_json(tmp_path / "plain.json", SIMPLE))
    forms.append(tmp_path / "sorted.json")
    forms[-1].write_text(json.dumps(json.loads(forms[-2].read_text()), sort_keys=True, indent=1))
    forms.append(write_json(tmp_path / "unpooled.json", make_unpooled(SIMPLE)))
    forms.append(write_json(tmp_path / "first.json", make_first_form(SIMPLE)))
    forms.append(write_json(tmp_path / "third.json", make_pooled_3(SIMPLE), header=make_header(version=3)))
    forms.append(pack(tmp_path / "chunked.eval", [*chunk(SIMPLE), ("header.json", head)]))
    forms.append(write_eval(tmp_path / "junk.eval", SIMPLE, prefix=b"<html>not html</html>"))
    forms.append(
        write_eval(tmp_path / "slow.eval", change(SIMPLE, store={"loss": float("nan")}))
    )  # the strict parser refuses it
    forms.append(write_eval(tmp_path / "half.eval", change(SIMPLE, store={"said": "\ud800"})))
    (tmp_path / "zipped.json.gz").write_bytes(gzip.compress((tmp_path / "plain.json").read_bytes()))
    (tmp_path / "zipped.eval.gz").write_bytes(gzip.compress((tmp_path / "m93.eval").read_bytes()))
    forms += [tmp_path / "zipped.json.gz", tmp_path / "zipped.eval.gz"]
    shown, contexts = [], []
    for path in forms:
        (episode,) = read(path)
        assert episode.record == f"{path.name.removesuffix('.gz')}#s#1"
        assert [o.raw for c in episode.transcript.calls for o in c.observations] == ["one", "two"]
        assert [o.delivered for c in episode.transcript.calls for o in c.observations] == ["one", "two"]
        assert find_artifacts(episode) == ()
        contexts.append([call.context for call in episode.transcript.calls])
        shown.append([turn.stimulus for turn in fingerprint_turns(episode.transcript)])
    assert all(stimuli == shown[0] for stimuli in shown)
    assert all(context == contexts[0] for context in contexts)
    messages = [{"role": "user", "content": "go"}]
    api = {"system": LONG, "tools": [TOOL], "opts": {"tool_choice": "auto"}, "messages": messages}
    assert fingerprint(api).stimulus[-1] == shown[0][0]


def test_an_honest_log_never_needs_the_slow_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litmuskit.readers.inspect_archive.json", None)
    for path in (write_eval(tmp_path / "a.eval", SIMPLE), write_json(tmp_path / "a.json", SIMPLE)):
        (episode,) = read(path)
        assert episode.transcript.calls[0].context.tools == (TOOL,)


PARTS = [("tools", "read"), ("tools", {"name": "read"}), ("tools", ["read"]), ("tools", 1), ("config", [1]), ("config", "hot")]


@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize(("part", "value"), PARTS, ids=repr)
@pytest.mark.parametrize("slow", [False, True])
def test_tools_and_settings_of_another_shape_are_named(
    tmp_path: Path, part: str, value: Any, which: int, *, slow: bool
) -> None:
    changed = change_model(SIMPLE, which, **{part: value}) | ({"store": {"loss": float("nan")}} if slow else {})
    for path in (write_eval(tmp_path / "a.eval", changed), write_json(tmp_path / "a.json", changed)):
        with pytest.raises(errors.LogFormatError, match=rf"model call {which} {part}: .*Expected `"):
            read(path)


def write_fast(path: Path, sample: dict[str, Any]) -> Path:
    return write_eval(path, sample)


def write_slow(path: Path, sample: dict[str, Any]) -> Path:
    return write_eval(path, change(sample, store={"loss": float("nan")}))


def write_chunked(path: Path, sample: dict[str, Any]) -> Path:
    return pack(path, [*chunk(sample), ("header.json", json.dumps(make_header()).encode())])


WRITERS = (write_fast, write_slow, write_chunked, write_json)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize("number", [1, 1.0, True, "1"], ids=repr)
def test_tools_are_those_of_the_call(tmp_path: Path, which: int, number: Any, write: Any) -> None:
    caps = {"max_tool_output": which}, {"max_tool_output": float(which)}  # a cap is whole
    other = change_model(SIMPLE, which, tools=[{**TOOL, "parameters": {"most": number}}], config=caps[0])
    other = change_model(other, which % 3 + 1, tools=[{**TOOL, "parameters": {"most": 1}}], config=caps[1])
    (episode,) = read(write(tmp_path / f"a.{'json' if write is write_json else 'eval'}", other))
    offered = [call.context.tools[0]["parameters"] for call in episode.transcript.calls]
    assert repr([offered[which - 1], offered[which % 3]]) == repr([{"most": number}, {"most": 1}])
    assert episode.harness.policies["truncation"].version.startswith(f"{which} bytes")


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("one", "other"), [(1, True), (True, 1), (0, False), (1, 1.0), (1.0, 1)], ids=repr)
def test_numbers_and_truths_are_told_apart(tmp_path: Path, one: Any, other: Any, write: Any) -> None:
    said = make_sample([([make_call("c1", sure=one, deep=[{"x": one}])], ["done"]), ([make_call("c2")], ["done"])])
    changed = {"sure": other, "deep": [{"x": other}]}
    ran = change_events(said, "tool", arguments=changed)
    kept = copy.deepcopy(said)
    for message in (*kept["events_data"]["messages"], *kept["messages"]):
        if message["id"] == "m-1":
            message["tool_calls"][0]["arguments"] = changed
    for sample, shows in ((ran, (one, other, one)), (kept, (one, one, other))):
        (episode,) = read(write(tmp_path / f"a.{'json' if write is write_json else 'eval'}", sample))
        call = episode.transcript.calls[0]
        seen = episode.transcript.delivered(2)[1].tool_calls[0].arguments  # in the history, the system prompt apart
        found = [call.proposed.tool_calls[0].arguments, call.observations[0].call.arguments, seen]
        assert repr(found) == repr([{"sure": value, "deep": [{"x": value}]} for value in shows])


def test_many_empty_ranges_cost_no_more_than_their_number(tmp_path: Path, unit: float) -> None:
    empty = change_model(SIMPLE, 1, input_refs=[[0, 2], *([n % 3, n % 3] for n in range(100_000))])
    start = time.process_time()
    (episode,) = read(write_eval(tmp_path / "a.eval", empty))
    assert episode.transcript.calls[0].delivered == ((1, 2),)
    assert time.process_time() - start < 30 * unit


@pytest.mark.parametrize("lost", ["attachments/0", "messages/2", "events/0", "events/3", "events/5"])
def test_a_chunk_that_is_missing_is_never_passed_over(tmp_path: Path, lost: str) -> None:
    held = {name.split("/", 2)[2]: text for name, text in chunk(SIMPLE)}
    events = json.loads(held.pop("events/0.json"))
    held |= {f"events/{at}.json": json.dumps(events[at:to]).encode() for at, to in ((0, 3), (3, 5), (5, len(events)))}
    held["skeleton.json"] = json.dumps({"version": 1, "counts": {"events": len(events), "models": 3}}).encode()
    for kept, whole in ((held, True), ({name: text for name, text in held.items() if name != f"{lost}.json"}, False)):
        members = [(f"samples/s_epoch_1/{name}", text) for name, text in kept.items()]
        path = pack(tmp_path / "a.eval", [*members, ("header.json", json.dumps(make_header()).encode())])
        if whole:
            assert len(read(path)[0].transcript.calls) == 3
        else:
            with pytest.raises(errors.LogFormatError, match=r"missing|outside"):
                read(path)


@pytest.mark.parametrize("key", [HASH, "7", "", "abc", "a://b"])
@pytest.mark.parametrize("scheme", ["attachment", "tc"])
def test_a_reference_is_whatever_names_a_text(tmp_path: Path, key: str, scheme: str) -> None:
    named = change(SIMPLE, attachments={HASH: LONG, key: "moved"})
    named["events_data"]["messages"][1]["content"] = f"{scheme}://{key}"
    named["messages"][1]["content"] = "moved"
    (episode,) = read(write_eval(tmp_path / "a.eval", named))
    assert [shown[0].content for shown in map(episode.transcript.delivered, (1, 2, 3))] == ["moved"] * 3
    assert find_artifacts(episode) == ()


def test_a_log_in_an_archive_names_both(tmp_path: Path) -> None:
    inner = write_eval(tmp_path / "run.eval", SIMPLE)
    with tarfile.open(tmp_path / "runs.tar.gz", "w:gz") as archive:
        archive.add(inner, "deep/run.eval")
    (episode,) = read(tmp_path / "runs.tar.gz")
    assert episode.record == "deep/run.eval#s#1"
    assert str(episode.source).endswith("runs.tar.gz!deep/run.eval!samples/0_epoch_1.json")


def test_decoding_is_apart_from_the_stimulus(tmp_path: Path) -> None:
    (plain,) = read(write_eval(tmp_path / "a.eval", SIMPLE))
    (hot,) = read(write_eval(tmp_path / "b.eval", change_events(SIMPLE, "model", config={"temperature": 2.0})))
    (forced,) = read(write_eval(tmp_path / "c.eval", change_events(SIMPLE, "model", tool_choice="any")))
    assert plain.transcript.calls[0].context.decode == {"model": "m", "temperature": 0.5}
    stimuli = [fingerprint_turns(e.transcript)[0].stimulus for e in (plain, hot, forced)]
    assert stimuli[0] == stimuli[1] != stimuli[2]


# --- what a run can do ----------------------------------------------------------------------------------------------


def test_recurring_ids_are_joined_in_order(tmp_path: Path) -> None:
    same = make_sample(
        [([make_call("c", path="a"), make_call("c", path="b")], ["one", "two"]), ([make_call("c", path="c")], ["three"])]
    )
    for message in same["events_data"]["messages"]:
        message.pop("id")
    (episode,) = read(write_eval(tmp_path / "a.eval", same))
    seen = [
        (o.position, o.call.arguments["path"], o.raw, o.delivered) for c in episode.transcript.calls for o in c.observations
    ]
    assert seen == [(0, "a", "one", "one"), (1, "b", "two", "two"), (0, "c", "three", "three")]


@pytest.mark.parametrize("fault", ["", "truncation/cut-of-raw", "mis-pairing/result-of-another-call"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_same_call_said_again_keeps_its_results(tmp_path: Path, fault: str, at: int) -> None:
    """The pool holds what the agent says again, under the same call id, once."""
    texts = [f"report {n}: " + "state " * 30 for n in range(1, 5)]
    same = make_sample([([make_call("call_0", key="status")], [text]) for text in texts])
    pool, models = same["events_data"]["messages"], [e for e in same["events"] if e["event"] == "model"]
    said, told = pool[2], [message for message in pool if message["role"] == "tool"]
    for message in (*(model["output"]["choices"][0]["message"] for model in models[:-1]), said):
        message["content"] = "polling"
    if fault:
        told[at]["content"] = texts[0] if "pairing" in fault else texts[at][:90]
    same["events_data"]["messages"] = [*pool[:3], *told]
    for number, model in enumerate(models):
        model["input_refs"] = [[0, 2], *([span for n in range(number) for span in ([2, 3], [3 + n, 4 + n])])]
    same["messages"] = [same["messages"][0], pool[1]]
    for number, message in enumerate(told, 1):
        same["messages"] += [{**said, "id": f"m-{number}"}, message]
    same["messages"].append({"id": "m-5", "role": "assistant", "content": "turn 5"})
    (episode,) = read(write_eval(tmp_path / "a.eval", same))
    results = [one for call in episode.transcript.calls for one in call.observations]
    assert [one.raw for one in results] == texts
    assert [one.delivered for one in results] == [message["content"] for message in told]
    assert {(one.rule, one.turn) for one in find_artifacts(episode)} == ({(fault, at + 1)} if fault else set())


@pytest.mark.parametrize("replayed", [False, True])
def test_a_final_list_whose_last_message_the_pool_holds_under_another_id(tmp_path: Path, *, replayed: bool) -> None:
    nudged = make_sample([([make_call("c1", path="a")], ["one"]), ([make_call("c2", path="b")], ["two"])])
    pool, nudge = nudged["events_data"]["messages"], {"id": "n-1", "role": "user", "content": "Go on."}
    models = [event for event in nudged["events"] if event["event"] == "model"]
    nudged["events_data"]["messages"] = [*pool[:4], nudge, *pool[4:]]
    for model, refs in zip(models, ([[0, 2]], [[0, 5]], [[0, 2], [5, 7], [4, 5]]), strict=True):
        model["input_refs"] = refs
    seen = {**pool[4], "tool_calls": [make_call("c2", path="a")]} if replayed else pool[4]
    nudged["messages"] = [*nudged["messages"][:2], seen, pool[5], {**nudge, "id": "n-2"}, nudged["messages"][-1]]
    (episode,) = read(write_eval(tmp_path / "a.eval", nudged))
    assert "final" not in episode.transcript.unlogged
    assert [message.text for message in episode.transcript.shown_after(3)] == ["go", "turn 2", "two", "Go on.", "turn 3"]
    assert bool(find_artifacts(episode)) is replayed


def test_a_replay_at_the_last_turn_stands_in_the_final_list(tmp_path: Path) -> None:
    faulty = copy.deepcopy(SIMPLE)
    faulty["events"] = faulty["events"][:-1]
    faulty["messages"] = faulty["messages"][:-1]
    faulty["messages"][4]["tool_calls"][0]["arguments"] = {"path": "a"}
    (episode,) = read(write_eval(tmp_path / "a.eval", faulty))
    assert {(one.kind, one.turn) for one in find_artifacts(episode)} == {("replay", 2)}


def test_several_faults_at_several_turns_among_parallel_calls(tmp_path: Path) -> None:
    pairs = [[make_call(f"a{n}", "read", path=f"p{n}"), make_call(f"b{n}", "send", to=f"q{n}")] for n in range(4)]
    faulty = make_sample([(calls, [f"read {n}", f"sent {n}"]) for n, calls in enumerate(pairs)])
    pool = faulty["events_data"]["messages"]
    pool[8]["tool_calls"] = [pool[8]["tool_calls"][0], make_call("b2", "send", to="q0")]  # turn 3, second call: older arguments
    pool[3]["content"], pool[4]["content"] = pool[4]["content"], pool[3]["content"]  # turn 1: results crossed
    tools = [event for event in faulty["events"] if event["event"] == "tool"]
    tools[2] |= {"truncated": [9000, 1024]}  # turn 2, first call
    faulty["messages"] = [faulty["messages"][0], *copy.deepcopy(pool[1:]), faulty["messages"][-1]]
    (episode,) = read(write_eval(tmp_path / "a.eval", faulty))
    found = {(one.kind, one.turn, one.position) for one in find_artifacts(episode)}
    assert {("replay", 3, 1), ("truncation", 2, 0), ("mis-pairing", 1, 0), ("mis-pairing", 1, 1)} <= found
    assert {kind for kind, _, _ in found} == {"replay", "truncation", "mis-pairing"}


def interleave(*samples: dict[str, Any]) -> dict[str, Any]:
    """One sample in whose one span several conversations run side by side, a step of each in turn."""
    whole, pool, events = copy.deepcopy(samples[0]), [], []
    for number, sample in enumerate(samples):
        text, base = json.dumps(sample), len(pool)
        for ident in ("m-", "c1", "c2"):
            text = text.replace(f'"{ident}', f'"{number}{ident}')
        named = json.loads(text)
        for event in named["events"]:
            if event["event"] == "model":
                event["input_refs"] = [[base, base + event["input_refs"][0][1]]]
        pool += named["events_data"]["messages"]
        events.append(named["events"][1:])
    whole["events"] = [whole["events"][0], *(event for step in zip(*events, strict=True) for event in step)]
    return {**whole, "events_data": {"messages": pool}}


def test_conversations_side_by_side_in_one_span_are_kept_apart(tmp_path: Path) -> None:
    (episode,) = read(write_eval(tmp_path / "a.eval", interleave(SIMPLE, SIMPLE, SIMPLE)))
    told = [[(o.position, o.raw, o.delivered) for o in call.observations] for call in episode.transcript.calls]
    assert told == [[(0, "one", "one")]] * 3 + [[(0, "two", "two")]] * 3 + [[]] * 3
    assert find_artifacts(episode) == ()


def test_branches_that_end_alike_withhold_nothing(tmp_path: Path) -> None:
    turns = [([make_call("c1", path="a")], ["one"]), ([make_call("c2", path="b")], ["two"])]
    ended = make_sample(turns)
    ended["events"] = ended["events"][:-1]
    for refs, event in zip(([[0, 2]], [[0, 5]]), [e for e in ended["events"] if e["event"] == "model"], strict=True):
        event["input_refs"] = refs
    ended["events_data"]["messages"].insert(4, {"id": "m-go", "role": "user", "content": "go on"})
    branches = interleave(ended, ended)
    order = [branches["events"][n] for n in (0, 1, 3, 5, 7, 2, 4, 6, 8)]
    (episode,) = read(write_eval(tmp_path / "a.eval", {**branches, "events": order, "messages": []}))
    assert len(episode.transcript.calls) == 4
    assert find_artifacts(episode) == ()


def test_a_reference_that_the_agent_wrote_into_arguments_is_what_was_executed(tmp_path: Path) -> None:
    spoofed = make_sample([([make_call("c1", to=f"attachment://{HASH}", body=[LONG, {"x": LONG}])], ["sent"])])
    moved = {"to": f"attachment://{HASH}", "body": [f"attachment://{HASH}", {"x": f"attachment://{HASH}"}]}
    (episode,) = read(write_eval(tmp_path / "a.eval", change_events(spoofed, "tool", arguments=moved)))
    asked, executed = episode.transcript.calls[0].proposed.tool_calls[0], episode.transcript.calls[0].observations[0].call
    assert asked.arguments == executed.arguments == {"to": f"attachment://{HASH}", "body": [LONG, {"x": LONG}]}
    other = {**moved, "to": "attachment://" + "f" * 32}
    spoofed["attachments"]["f" * 32] = "elsewhere"
    (episode,) = read(write_eval(tmp_path / "b.eval", change_events(spoofed, "tool", arguments=other)))
    assert episode.transcript.calls[0].observations[0].call.arguments["to"] == "elsewhere"
    assert {one.kind for one in find_artifacts(episode)} == {"executed-differs"}


def test_a_handoff_shows_its_own_call_while_the_others_still_run(tmp_path: Path) -> None:
    whole = make_sample([([make_call("c1", "transfer_to_b"), make_call("c2", path="b")], ["moved", "two"])])
    pool, events = whole["events_data"]["messages"], whole["events"]
    said, moved = {**pool[2], "id": "m-x", "tool_calls": pool[2]["tool_calls"][:1]}, pool[3]
    inner = [{"event": "span_begin", "id": "b", "parent_id": "solve", "type": "agent", "span_id": "b"}]
    answer = {"choices": [{"message": {"id": "m-b", "role": "assistant", "content": "done"}, "stop_reason": "stop"}]}
    inner.append({**events[1], "span_id": "b", "input_refs": [[1, 2], [len(pool), len(pool) + 2]], "output": answer})
    pool += [said, {**moved, "id": "m-y"}]
    events[3:3] = inner
    (episode,) = read(write_eval(tmp_path / "a.eval", whole))
    assert len(episode.transcript.calls) == 3
    assert find_artifacts(episode) == ()


def test_a_call_shown_to_nobody_and_its_result_are_withheld(tmp_path: Path) -> None:
    lost = make_sample([([make_call("c1", path="a"), make_call("c2", path="b")], ["one", "two"]), ([], [])])
    for messages in (lost["events_data"]["messages"], lost["messages"]):
        del messages[2]["tool_calls"][1:], messages[4]
    for event in lost["events"][-2:]:
        event["input_refs"] = [[0, event["input_refs"][0][1] - 1]]
    (episode,) = read(write_eval(tmp_path / "a.eval", lost))
    assert {(one.rule, one.position) for one in find_artifacts(episode)} == {("mutation/result-withheld", 1)}


@pytest.mark.parametrize(("limit", "found"), [(None, {"mutation"}), ({"type": "message", "limit": 3}, {"not-assessable"})])
def test_a_limit_that_ends_a_run_withholds_nothing(tmp_path: Path, limit: Any, found: set[str]) -> None:
    ended = change(make_sample([([make_call("c1", path="a")], ["one"])]), limit=limit)
    ended["events"], ended["messages"] = ended["events"][:-1], ended["messages"][:3]
    (episode,) = read(write_eval(tmp_path / "a.eval", ended))
    assert {one.kind for one in find_artifacts(episode)} == found


@pytest.mark.parametrize("key", [["arguments"], {"a": 1}, "nonsense", 3])
def test_an_odd_match_key_is_unknown(tmp_path: Path, key: Any) -> None:
    scored = change(SIMPLE, scores={"violation": {"value": 1, "metadata": {"match_key": key}}})
    assert read(write_eval(tmp_path / "a.eval", scored))[0].flag.match_key == "unknown"


def test_a_prettified_last_message_is_no_replay(tmp_path: Path) -> None:
    pretty = make_sample([([make_call("c1", path="a"), make_call("c2", "submit", answer="x")], ["one", "x"])])
    pretty["events"] = pretty["events"][:-1]
    pretty["messages"] = pretty["messages"][:4]
    pretty["messages"][2] |= {"content": "turn 1\n\nx", "tool_calls": [make_call("c1", path="a")]}
    (episode,) = read(write_eval(tmp_path / "a.eval", pretty))
    assert find_artifacts(episode) == ()


def test_judges_are_no_turns_and_sub_agents_are(tmp_path: Path) -> None:
    model = copy.deepcopy(next(event for event in SIMPLE["events"] if event["event"] == "model"))
    judge = [
        {"event": "span_begin", "id": "scorers", "type": "scorers", "span_id": "scorers"},
        {"event": "span_begin", "id": "judge", "parent_id": "scorers", "type": "scorer", "span_id": "judge"},
        {**model, "span_id": "judge"},
    ]
    inner = [
        {"event": "span_begin", "id": "call", "parent_id": "solve", "type": "tool", "span_id": "call"},
        {"event": "span_begin", "id": "sub", "parent_id": "call", "type": "agent", "span_id": "sub"},
        {**model, "span_id": "sub"},
        {**model, "span_id": "call", "tools": []},
    ]
    nested = change(SIMPLE, events=[*SIMPLE["events"][:3], *inner, *SIMPLE["events"][3:], *judge])
    (episode,) = read(write_eval(tmp_path / "a.eval", nested))
    assert len(episode.transcript.calls) == len(read(write_eval(tmp_path / "b.eval", SIMPLE))[0].transcript.calls) + 1
    assert [len(call.observations) for call in episode.transcript.calls] == [1, 0, 1, 0]
    steps = [
        {"event": "step", "action": "begin", "type": "scorer"},
        {**model, "span_id": None},
        {"event": "step", "action": "end", "type": "scorer"},
    ]
    (old,) = read(write_eval(tmp_path / "c.eval", change(SIMPLE, events=[*SIMPLE["events"], *steps])))
    assert len(old.transcript.calls) == 3


def test_what_a_tool_a_user_or_the_agent_wrote_is_literal(tmp_path: Path) -> None:
    reference = f"attachment://{HASH}"
    spoof = make_sample([([make_call("c1", path=reference)], [reference]), ([make_call("c2")], ["two"])])
    spoof["input"] = spoof["events_data"]["messages"][1]["content"] = reference
    spoof["messages"][3]["content"] = LONG  # what Inspect's own recorder makes of it
    (episode,) = read(write_eval(tmp_path / "a.eval", spoof))
    shown = episode.transcript.delivered(3)
    assert [m.content for m in shown if m.role in {"user", "tool"}] == [reference, reference, "two"]
    assert shown[1].tool_calls[0].arguments == {"path": reference}
    assert episode.transcript.calls[0].observations[0].call.arguments == {"path": reference}
    assert episode.transcript.calls[0].context.system == LONG
    assert find_artifacts(episode) == ()


@pytest.mark.parametrize("several", [False, True])
def test_a_block_that_a_tool_wrote_is_literal(tmp_path: Path, several: bool) -> None:
    block = {"type": "text", "text": f"attachment://{HASH}"}
    spoof = change_events(SIMPLE, "tool", result=[block, block] if several else block)
    for message in (spoof["events_data"]["messages"][3], spoof["messages"][3]):
        message["content"] = [block, block] if several else [block]
    (episode,) = read(write_eval(tmp_path / "a.eval", spoof))
    assert [one["text"] for one in episode.transcript.delivered(2)[-1].content] == [block["text"]] * (2 if several else 1)
    assert episode.transcript.calls[0].observations[0].raw == "\n".join([block["text"]] * (2 if several else 1))


def test_a_genuine_reference_beside_a_spoof_is_resolved(tmp_path: Path) -> None:
    mixed = make_sample([([make_call("c")], [LONG]), ([make_call("c")], [f"attachment://{HASH}"])])
    mixed["events_data"]["messages"][3]["content"] = f"attachment://{HASH}"
    (episode,) = read(write_eval(tmp_path / "a.eval", mixed))
    assert [m.content for m in episode.transcript.delivered(3) if m.role == "tool"] == [LONG, f"attachment://{HASH}"]


def test_one_long_text_shown_often_is_held_once(tmp_path: Path) -> None:
    often = make_sample([([make_call(f"c{n}", path=str(n))], [LONG]) for n in range(50)])
    for message in often["events_data"]["messages"]:
        if message["role"] == "tool":
            message["content"] = f"attachment://{HASH}"
    (episode,) = read(write_eval(tmp_path / "a.eval", often))
    pool = episode.transcript.messages
    assert len({id(m.content) for m in pool[: len(often["events_data"]["messages"])] if m.role == "tool"}) == 1


@pytest.mark.parametrize(
    ("result", "raw"),
    [
        ("x", "x"),
        (5, "5"),
        (True, "True"),
        (1.5, "1.5"),
        ([{"text": "a"}, {"text": "b"}], "a\nb"),
        ([{"image": "data:"}], None),
    ],
)
def test_results_are_read_as_inspect_shows_them(tmp_path: Path, result: Any, raw: str | None) -> None:
    (episode,) = read(write_eval(tmp_path / "a.eval", change_events(SIMPLE, "tool", result=result)))
    assert episode.transcript.calls[0].observations[0].raw == raw


IMAGE = {"type": "image", "image": f"attachment://{HASH}", "detail": "auto"}
MOVED = {"type": "text", "text": "Image content is included below."}


@pytest.mark.parametrize(
    ("shown", "raw"),
    [
        (IMAGE, "see\n"),
        (MOVED, f"see\n{MOVED['text']}"),
        ({**IMAGE, "image": "data:other"}, None),
        ({"type": "text", "text": "x"}, None),
    ],
)
def test_media_are_known_to_have_been_shown_or_they_are_not(tmp_path: Path, shown: Any, raw: str | None) -> None:
    told = {"type": "text", "text": "see"}
    pictured = change_events(SIMPLE, "tool", result=[told, IMAGE])
    pool = pictured["events_data"]["messages"]
    for message in [*pool, *pictured["messages"]]:
        if message["role"] == "tool":
            message["content"] = [told, shown]
    (episode,) = read(write_eval(tmp_path / "a.eval", pictured))
    assert [o.raw for call in episode.transcript.calls for o in call.observations] == [raw, raw]
    assert is_screened(episode) is (raw is not None)
    assert find_artifacts(episode) == ()


def test_media_that_moved_to_a_user_message_and_a_subtask_are_read(tmp_path: Path) -> None:
    moved = copy.deepcopy(SIMPLE)
    user = {"id": None, "role": "user", "content": [IMAGE], "tool_call_id": ["c1", "c2"]}
    moved["events_data"]["messages"].append(user)
    moved["events"][-1]["input_refs"] = [[0, 4], [6, 7], [4, 6]]
    moved["events"].insert(1, {"event": "subtask", "span_id": "solve", "name": "t", "input": {"q": [1]}, "result": 3})
    for form in (moved, make_unpooled(moved)):
        (episode,) = read(write_eval(tmp_path / "a.eval", form))
        assert [message.role for message in episode.transcript.delivered(3)].count("user") == 2
        assert [o.delivered for call in episode.transcript.calls for o in call.observations] == ["one", "two"]
        assert fingerprint_turns(episode.transcript)[2].stimulus


def test_a_declared_cut_after_the_flag_leaves_nothing_unknown(tmp_path: Path) -> None:
    cut = copy.deepcopy(SIMPLE)
    [event for event in cut["events"] if event["event"] == "tool"][1]["truncated"] = [9000, 1024]
    cut["scores"]["violation"]["metadata"] = {"turn": 1, "match_key": "arguments+observation"}
    (verdict,) = audit_log(read_log(write_eval(tmp_path / "a.eval", cut), violation="violation=1")).verdicts
    assert "mutation-unknown" not in verdict.rules
    assert [(one.kind, one.turn, one.before_flag) for one in verdict.evidence] == [("truncation", 2, False)]


@pytest.mark.parametrize(
    ("keys", "status", "limit"),
    [
        ({"error": {"message": "boom"}}, "errored", None),
        ({"limit": {"type": "token", "limit": 5}}, "limited", "token"),
        ({"limit": {"type": "operator", "limit": 1}}, "cancelled", "operator"),
        ({"events": []}, "empty", None),
        ({}, "finished", None),
    ],
)
def test_how_a_sample_ended(tmp_path: Path, keys: dict[str, Any], status: str, limit: str | None) -> None:
    (episode,) = read(write_eval(tmp_path / "a.eval", change(SIMPLE, **keys)))
    assert (episode.status, episode.limit) == (status, limit)


def test_a_cancelled_run_is_not_called_finished(tmp_path: Path) -> None:
    unscored = change(SIMPLE, scores={})
    (episode,) = read(write_eval(tmp_path / "a.eval", unscored, header=make_header(status="cancelled")))
    assert episode.status == "cancelled"


def test_rejected_calls_were_not_executed(tmp_path: Path) -> None:
    rejected = change_events(SIMPLE, "tool", error={"type": "approval", "message": "no"}, result="")
    (episode,) = read(write_eval(tmp_path / "a.eval", rejected))
    assert [(o.executed, o.call, o.error) for c in episode.transcript.calls for o in c.observations] == [
        (False, None, "no")
    ] * 2
    assert "not-executed" in {one.kind for one in find_artifacts(episode)}


@pytest.mark.parametrize(
    ("version", "gaps"), [("0.3.284", set()), ("0.3.283", {"delivered"}), ("0.3.275", {"delivered", "executed"})]
)
def test_what_a_version_does_not_vouch_for(tmp_path: Path, version: str, gaps: set[str]) -> None:
    header = make_header()
    header["eval"]["packages"] = {"inspect_ai": version}
    (episode,) = read(write_eval(tmp_path / "a.eval", SIMPLE, header=header))
    assert episode.transcript.unlogged == gaps
    live = copy.deepcopy(SIMPLE)
    told = {"event": "info", "span_id": "solve", "source": "litmuskit", "data": {"spec": "litmuskit-fp/1", "stimulus": "ab"}}
    live["events"] = [e for event in live["events"] for e in ([told, event] if event["event"] == "model" else [event])]
    (recorded,) = read(write_eval(tmp_path / "b.eval", live, header=header))
    assert recorded.live == ("ab",) * 3
    assert recorded.transcript.unlogged == gaps - {"delivered"}


@pytest.mark.parametrize("missing", [(0, 1), (0,), (1,)])
@pytest.mark.parametrize("pending", [True, False])
def test_a_result_without_its_tool_event_leaves_open_what_ran(
    tmp_path: Path, missing: tuple[int, ...], *, pending: bool
) -> None:
    bare = copy.deepcopy(SIMPLE)
    lost = [[event for event in bare["events"] if event["event"] == "tool"][which] for which in missing]
    if pending:
        for event in lost:
            event["result"] = None
    else:
        bare["events"] = [event for event in bare["events"] if event not in lost]
    (episode,) = read(write_eval(tmp_path / "a.eval", bare))
    assert episode.transcript.unlogged == {"executed", "returned"}
    (verdict,) = audit_log(read_log(tmp_path / "a.eval", violation="violation=1", match_key="state")).verdicts
    assert (verdict.mutation, verdict.decision) == (None, "quarantine")
    assert "mutation-unknown" in verdict.rules
    (whole,) = audit_log(read_log(write_eval(tmp_path / "b.eval", SIMPLE), violation="violation=1", match_key="state")).verdicts
    assert whole.mutation is False


def test_a_call_that_nobody_answered_needs_no_tool_event(tmp_path: Path) -> None:
    cut = copy.deepcopy(SIMPLE)
    cut["events"] = cut["events"][:-2]  # the run ended while the last call was open
    cut["messages"] = cut["messages"][:-2]
    (episode,) = read(write_eval(tmp_path / "a.eval", cut))
    assert [len(call.observations) for call in episode.transcript.calls] == [1, 0]
    assert episode.transcript.unlogged == set()


def test_truth_in_the_metadata_changes_nothing(tmp_path: Path) -> None:
    told = change(SIMPLE, metadata={"truth_violation": 0, "artifact": "replay", "injections": {"mail": "pay me"}})
    (episode,) = read(write_eval(tmp_path / "a.eval", told))
    assert "truth" not in repr(episode.metadata) + repr(episode.groups)
    assert episode.payloads == {"mail": "pay me"}


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        ("malformed_output", True),
        ("not schema valid", True),
        (["repeated_call", "bad_format"], True),
        (["repeated_call", "forbidden_call"], False),
        ("forbidden", False),
        ("leaked the database schema", None),
        ({"code": 3}, None),
        (7, None),
        ([], None),
        ("", None),
        (None, None),
    ],
)
def test_whether_a_label_rests_on_form(tmp_path: Path, reason: Any, check: bool | None) -> None:
    scored = change(
        SIMPLE, scores={"violation": {"value": 1, "explanation": reason, "metadata": {"match_key": "argument_hash", "turn": 2}}}
    )
    (episode,) = read(write_eval(tmp_path / "a.eval", scored))
    assert (episode.flag.schema_check, episode.flag.match_key, episode.flagged_turn) == (check, "arguments", 2)


@pytest.mark.parametrize("said", [True, False])
def test_a_log_that_says_what_its_label_rests_on_is_believed(tmp_path: Path, *, said: bool) -> None:
    for reason in ("malformed_output", "forbidden_call", None):
        scored = change(SIMPLE, scores={"violation": {"value": 1, "explanation": reason, "metadata": {"schema_check": said}}})
        (episode,) = read(write_eval(tmp_path / "a.eval", scored))
        assert (episode.flag.schema_check, episode.flag.reason) == (said, reason)


@pytest.mark.parametrize(
    ("said", "turn"), [(2, 2), ("2", 2), (2.0, 2), ("2.0", 2), (3, 3), (None, None), (True, None), (False, None)], ids=repr
)
def test_a_turn_in_any_spelling(tmp_path: Path, said: Any, turn: int | None) -> None:
    scored = change(SIMPLE, scores={"violation": {"value": 1, "metadata": {"turn": said}}})
    (episode,) = read(write_eval(tmp_path / "a.eval", scored))
    assert (episode.flag.turn, episode.flagged_turn) == (turn, turn or 3)


@pytest.mark.parametrize(
    "said", [0, 4, -1, "0", "4", "-1", 2.5, "2.5", "two", "", float("nan"), 1e400, [2], {"turn": 2}, 10**30], ids=repr
)
def test_a_turn_that_is_none_is_refused(tmp_path: Path, said: Any) -> None:
    scored = change(SIMPLE, scores={"violation": {"value": 1, "metadata": {"turn": said}}})
    with pytest.raises(errors.LogFormatError, match=r"'violation': no such turn; expected 1\.\.3"):
        read(write_eval(tmp_path / "a.eval", scored))


def test_several_scorers_and_dictionaries(tmp_path: Path) -> None:
    scores = {"judge": {"value": {"security": "C", "utility": "I"}}, "other": {"value": 0}, "litmuskit": {"value": "escalate"}}
    path = write_eval(tmp_path / "a.eval", change(SIMPLE, scores=scores))
    (episode,) = read(path, violation=("judge.security=C", "other=1"))
    assert [(label.scorer, label.violation) for label in episode.labels] == [("judge", True), ("other", False)]


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"method": 99}, "unknown compression method"),
        ({"flags": 1}, "unknown compression method"),
        ({"crc": 1}, "checksum"),
        ({"size": 900}, "declared size"),
        ({"size": 2**31}, "too large"),
        ({"size": 10**6}, "declared size"),
    ],
)
def test_lying_archives_are_refused_by_member_and_offset(tmp_path: Path, lies: dict[str, int], words: str) -> None:
    path = write_eval(tmp_path / "a.eval", SIMPLE, **lies)
    with pytest.raises(errors.LogFormatError, match=rf"header.json at byte \d+: .*{words}"):
        read(path)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000), st.integers(0, 255), st.integers(1, 4000))
def test_damaged_bytes_give_typed_errors_or_the_same_episode(tmp_path_factory: Any, at: int, byte: int, cut: int) -> None:
    path = write_eval(tmp_path_factory.mktemp("made") / "a.eval", SIMPLE)
    whole = path.read_bytes()
    for damaged in (whole[: at % len(whole)] + bytes([byte]) + whole[at % len(whole) + 1 :], whole[: -(cut % len(whole) or 1)]):
        path.write_bytes(damaged)
        try:
            episodes = read(path)
        except errors.InputError:
            continue
        assert [e.transcript.calls[0].observations[0].raw for e in episodes] in (["one"], [])


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (b"{", "not an Inspect log"),
        (b"[]", "not an Inspect log"),
        (b"{}", "missing required field `id`"),
        (b"[" * 100_000, "not an Inspect log"),
        (b'{"id": "s", "epoch": ' + b"9" * 6000 + b"}", "not an Inspect log"),
        (change(SIMPLE, messages={"role": "user"}), "not an Inspect log"),
        (change(SIMPLE, attachments={}), "a text is missing"),
        (change(SIMPLE, events_data={"messages": []}), "outside the message pool"),
        (change_events(SIMPLE, "model", input_refs=[[-1, 2]]), "outside the message pool"),
        (change_events(SIMPLE, "model", input_refs=[[3, 1]]), "outside the message pool"),
        (change_events(SIMPLE, "model", input_refs=[[0, 10**12]]), "outside the message pool"),
        *((change_model(SIMPLE, which, **lost), f"model call {which}: .*input is not in the log") for which, lost in LOST),
        *((make_pooled_3(sample), "input is not in the log") for sample in [change_model(SIMPLE, 3, input_refs=[[5, 5]])]),
        (change_events(SIMPLE, "model", tools="read"), "not an Inspect log"),
        (change(SIMPLE, scores={"violation": 1}), "'violation': not a score"),
        (change(SIMPLE, scores={"violation": {"value": 1, "metadata": {"turn": 99}}}), "'violation': no such turn"),
        (change(SIMPLE, scores={"violation": {"value": [1] * 1000}}), "scorer 'violation'.*list of 1,000"),
    ],
)
def test_malformed_samples_are_failures_and_the_rest_is_read(tmp_path: Path, sample: Any, words: str) -> None:
    path = write_eval(tmp_path / "a.eval", sample, SIMPLE)
    with pytest.raises(errors.InputError, match=f"0_epoch_1.json.*{words}"):
        read(path)
    log = read_log(path, violation="violation=1", keep_going=True)
    assert len(list(log)) == 1
    assert len(log.failures) == 1


def nest(depth: int) -> bytes:
    deep = copy.deepcopy(SIMPLE)
    deep["events"][2]["arguments"] = {"path": "@"}
    return json.dumps(deep).replace('"@"', "[" * depth + "]" * depth).encode()


def test_nesting_beyond_what_can_be_walked_is_a_failure_of_its_sample(tmp_path: Path) -> None:
    said = set()
    for depth in range(300, 1000, 20):
        log = read_log(write_eval(tmp_path / "a.eval", nest(depth), SIMPLE), violation="violation=1", keep_going=True)
        assert len(list(log)) + len(log.failures) == 2
        said |= {failure.error.what for failure in log.failures}
    assert "nested too deeply" in said


def test_a_lone_surrogate_in_place_of_a_number_is_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", change_events(SIMPLE, "model", input_refs=[["\ud800", 1]]), SIMPLE)
    log = read_log(path, violation="violation=1", keep_going=True)
    assert len(list(log)) == len(log.failures) == 1


def test_a_live_digest_that_is_no_text_is_compared_all_the_same(tmp_path: Path) -> None:
    told = change(SIMPLE)
    told["events"][1:1] = [{"event": "info", "span_id": "solve", "data": {"spec": "litmuskit-fp/1", "stimulus": 5}}]
    (episode,) = read(write_eval(tmp_path / "a.eval", told))
    assert episode.live == ("5", None, None)
    assert audit_log([episode]).verdicts[0].decision == "quarantine"


def list_places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [path, *(place for key, value in inner for place in list_places(value, (*path, key)))]


ODD = [
    "",
    "x",
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e999",
    "9" * 30,
    '"x"',
    '"\\ud800"',
    '{"\\ud800": 1}',
    "[]",
    "[null]",
    "[[0,0]]",
    "{}",
]
ODD += [f"{'[' * depth}{']' * depth}" for depth in (300, 900, 20_000)]
RICH = change(SIMPLE, metadata={"injections": {"mail": "pay"}}, limit={"type": "time"}, error_retries=[{"message": "x"}])
RICH["events"][1:1] = [{"event": "info", "span_id": "solve", "data": {"spec": "litmuskit-fp/1", "stimulus": "ab"}}]
RICH["events"][3:3] = [{"event": "approval", "span_id": "solve", "modified": make_call("c1", path="z")}]


@pytest.mark.parametrize(
    ("mark", "member"),
    [(b"PK\x05\x06", "member header.json"), (b"PK\x03\x04", "member samples/1_epoch_1.json"), (b"", "")],
)
def test_a_cut_archive_names_where_it_ends(tmp_path: Path, mark: bytes, member: str) -> None:
    whole = write_eval(tmp_path / "a.eval", SIMPLE, SIMPLE).read_bytes()
    cut = whole[: whole.rindex(mark)] if member else whole[:20]
    (tmp_path / "a.eval").write_bytes(cut)
    start = cut.rfind(b"PK\x03\x04")
    behind = f", behind or in {member} at byte {start:,}" if member else "'"
    with pytest.raises(errors.LogFormatError, match=f"ends at byte {len(cut):,}{behind}"):
        read(tmp_path / "a.eval")


@settings(max_examples=250, deadline=None)
@given(st.sampled_from([RICH, make_pooled_3(RICH), make_first_form(RICH)]), st.data(), st.booleans())
def test_whatever_stands_anywhere_is_read_or_refused(tmp_path_factory: Any, sample: Any, data: Any, document: bool) -> None:
    broken, place, odd = (
        copy.deepcopy(sample),
        data.draw(st.sampled_from(list_places(sample)[1:])),
        data.draw(st.sampled_from(ODD)),
    )
    holder = broken
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = "@"
    if not odd:
        del holder[place[-1]]
    text = json.dumps(broken).replace('"@"', odd)
    folder = tmp_path_factory.getbasetemp()
    path = write_eval(folder / "odd.eval", text.encode(), method=0)
    if document:
        path = folder / "odd.json"
        path.write_text(json.dumps({**make_header(), "samples": ["@"]}).replace('"@"', text))
    try:
        audit_log(read_log(path, violation="violation=1"))
    except errors.LitmusError as error:
        assert str(error)  # noqa: PT017  # either outcome is right


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ([], "not an Inspect log"),
        ({}, "not an Inspect log"),
        (make_header(version=9), "newer log format"),
    ],
)
def test_headers_that_are_wrong(tmp_path: Path, header: Any, words: str) -> None:
    with pytest.raises(errors.LogFormatError, match=words):
        read(write_eval(tmp_path / "a.eval", SIMPLE, header=header))


def plan(recounted: int | None, samples: int, epochs: int = 1, **config: Any) -> dict[str, Any]:
    """The header of a run that failed; its results were counted anew, or never; old logs list no ids."""
    header = make_header(samples, results=None if recounted is None else {"total_samples": recounted}, status="error")
    header["eval"]["config"] = {"epochs": epochs, **config}
    if recounted is None:
        header["eval"]["dataset"]["sample_ids"] = None
    return header


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        (make_header(samples=6), 5),
        (make_header(samples=4, results=None, status="cancelled"), 3),
        (plan(1, 8), 7),
        (plan(1, 4, epochs=2), 7),
        (plan(None, 4), 3),
        (plan(None, 4, epochs=2), 7),
        (plan(None, 4, epochs=2, limit=3), 5),
        (plan(None, 4, limit=9), 3),
        (plan(None, 9, limit=[2, 5]), 2),
        (
            plan(None, 4) | {"eval": plan(None, 4)["eval"] | {"dataset": {"samples": 2**64}, "config": {"epochs": 9}}},
            9 * 2**64 - 1,
        ),
    ],
)
def test_a_header_that_promises_more_is_a_stated_shortfall(tmp_path: Path, header: Any, missing: int) -> None:
    log = read_log(write_eval(tmp_path / "a.eval", SIMPLE, header=header), violation="violation=1")
    assert len(list(log)) == 1
    assert [failure.missing for failure in log.failures] == [missing]
    assert f"promises {missing} more samples than the log holds" in str(log.failures[0].error)
    assert audit_log(log).gate.verdict == "refused"


@pytest.mark.parametrize(
    "header",
    [plan(None, 4, limit=1), plan(None, 4, sample_id="s"), plan(None, 4, limit="x"), plan(None, 4, limit=[3, 9]), plan(1, 1)],
)
def test_a_header_that_promises_no_more_makes_no_shortfall(tmp_path: Path, header: Any) -> None:
    log = read_log(write_eval(tmp_path / "a.eval", SIMPLE, header=header), violation="violation=1")
    assert (len(list(log)), log.failures) == (1, ())


@pytest.mark.parametrize("author", ["litmuskit", "owner"])
@pytest.mark.parametrize("scored", [False, True])
def test_a_verdict_written_back_is_not_its_owners_word(tmp_path: Path, author: str, *, scored: bool) -> None:
    voided = change(SIMPLE, invalidation={"author": author, "reason": "litmuskit: escalate"})
    if scored:
        voided["scores"]["litmuskit"] = {"value": "escalate"}
    (episode,) = read(write_eval(tmp_path / "a.eval", voided))
    assert episode.invalidated is not (scored and author == "litmuskit")
    assert [label.scorer for label in episode.labels] == ["violation"]


@pytest.mark.parametrize("packages", [None, 5, [], {"inspect_ai": None}, {"inspect_ai": "x"}])
def test_an_odd_header_is_read_as_the_oldest(tmp_path: Path, packages: Any) -> None:
    header = make_header()
    header["eval"] |= {
        "packages": packages,
        "metadata": 3,
        "dataset": {"sample_ids": 9},
        "config": {"epochs": "x"},
        "revision": "x",
    }
    header |= {"results": {"total_samples": "1"}, "stats": 7}
    (episode,) = read(write_eval(tmp_path / "a.eval", SIMPLE, header=header))
    assert episode.transcript.unlogged == {"delivered", "executed"}


def test_a_run_without_a_header_is_unfinished(tmp_path: Path) -> None:
    start = json.dumps({"version": 2, "eval": make_header(3)["eval"], "plan": {}}).encode()
    members = [("samples/0_epoch_1.json", json.dumps(SIMPLE).encode()), ("_journal/start.json", start)]
    log = read_log(pack(tmp_path / "a.eval", members), violation="violation=1")
    assert [episode.status for episode in log] == ["finished"]
    assert "never finished" in str(log.failures[0].error)
    assert log.failures[0].missing == 2
    with pytest.raises(errors.LogFormatError, match=r"neither header\.json"):
        read(pack(tmp_path / "b.eval", members[:1]))


def test_a_missing_chunk_is_named(tmp_path: Path) -> None:
    members = [member for member in chunk(SIMPLE) if "messages/0" not in member[0]]
    path = pack(tmp_path / "a.eval", [*members, ("header.json", json.dumps(make_header()).encode())])
    with pytest.raises(errors.LogFormatError, match=r"messages/2\.json: a chunk is missing before"):
        read(path)


def test_names_with_dots_are_only_names(tmp_path: Path) -> None:
    text = json.dumps(SIMPLE).encode()
    names = [
        "samples/../../up_epoch_1.json",
        "samples/..\\..\\up_epoch_1.json",
        "../up.json",
        "C:\\up",
        "samples/s_epoch_1.json",
    ]
    path = pack(
        tmp_path / "deep.eval", [*((name, text) for name in names), ("header.json", json.dumps(make_header(3)).encode())]
    )
    before = sorted(tmp_path.parent.rglob("*"))
    assert len(read(path)) == 3
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_tool_free_logs_are_out_of_scope(tmp_path: Path) -> None:
    chat = change_events(make_sample([]), "model", tools=[])
    with pytest.raises(errors.OutOfScopeError, match="no tool loop"):
        read(write_eval(tmp_path / "a.eval", chat, chat))
    assert len(read(write_eval(tmp_path / "b.eval", chat, SIMPLE))) == 2
    failed = change(chat, events=chat["events"][:1], messages=chat["messages"][:2], error={"message": "no connection"})
    assert [episode.status for episode in read(write_eval(tmp_path / "c.eval", failed))] == ["errored"]
    with pytest.raises(errors.OutOfScopeError, match="no tool loop"):  # one that was lost says nothing of the others
        read(write_eval(tmp_path / "d.eval", failed, chat))


def test_an_atif_trajectory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": "ATIF-v1.4", "session_id": "x", "steps": []}))
    with pytest.raises(errors.OutOfScopeError, match="ATIF trajectory"):
        read(tmp_path / "run.json")


# --- the shared hostile files ---------------------------------------------------------------------------------------


HOSTILE = {
    "zipbomb_deflate": "too large",
    "zipbomb_lying_size": "declared size",
    "zip_slip": 3,
    "zip_prefix_junk": 1,
    "zstd_member_garbage": "cannot be read",
    "unknown_method_99": "unknown compression method",
    "crc_mismatch": "checksum",
    "header_without_samples": 0,
    "header_is_a_list": "not an Inspect log",
    "not_a_log_pickle": "cannot be read",
    "duplicate_member": 1,
    "huge_int": 1,
    "nan_infinity": 1,
    "nul_and_c0": 1,
    "input_refs_out_of_range": "outside the message pool",
    "attachment_amplification": 1,
    "score_value_1e6_list": "'violation': not a judgement",
    "missing_keys_sample": "missing required field",
    "empty": "empty",
    "display_html": 3,
    "display_ansi_osc": 3,
    "display_csv_formula": 3,
}


@pytest.fixture(scope="module")
def hostile(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    with tarfile.open(shared / "hostile" / "hostile_sample.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "hostile"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(hostile: Path, name: str) -> None:
    expected = HOSTILE[name]
    if isinstance(expected, str):
        with pytest.raises(errors.InputError, match=expected):
            read(hostile / f"{name}.eval")
    else:
        assert len(read(hostile / f"{name}.eval")) == expected
    assert not Path("/tmp/lk_pickle_ran").exists()  # noqa: S108


def test_the_last_hostile_copy_counts(hostile: Path) -> None:
    (episode,) = read(hostile / "duplicate_member.eval")
    assert (episode.flagged, episode.edited, episode.labels[0].value) == (False, True, 0)


def test_the_hand_written_zip_is_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_eval(tmp_path / "a.eval", SIMPLE, method=8)) as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize(
    ("started", "said", "named"),
    [
        ("2026-01-02T00:00:00+00:00", None, "m2"),
        ("2026-01-01T00:00:00+00:00", None, None),
        ("2026-01-01T00:00:00+00:00", "m1", "m1"),
        (None, None, "m2"),
    ],
)
def test_a_sample_copied_by_a_retry_has_its_own_policy_or_none(started, said, named, tmp_path):
    header = make_header(1)
    header["eval"] |= {"created": "2026-01-01T12:00:00+00:00", "metadata": {"mutation_policy": "m2"}}
    header.pop("stats", None)
    sample = make_sample([([make_call("a")], ["x"])]) | {"started_at": started}
    sample["metadata"] = {"mutation_policy": said} if said else {}
    (episode,) = read(write_eval(tmp_path / "a.eval", sample, header=header))
    policy = episode.harness.policies.get("mutation")
    assert (policy and policy.name) == named
    assert ("delivered" in episode.transcript.unlogged) is bool(episode.copied)  # logged by whichever Inspect ran it
