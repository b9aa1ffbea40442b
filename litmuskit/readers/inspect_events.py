"""One Inspect sample's events as a transcript.

The stimulus of a model call is ``ModelEvent.input``, or the ranges ``input_refs`` into the sample's message pool; never
``sample.messages``, which solvers rewrite after the fact. Calls, tool events and replies are joined by id and, because ids
recur, in order. A sub-agent's model calls are turns as well, in the order of the log; a judge's and a tool's own are not.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from litmuskit.canonical import is_same_json
from litmuskit.errors import LogFormatError
from litmuskit.readers.inspect_archive import decode_json
from litmuskit.readers.inspect_samples import LoggedMessage, MessagePool, Output, Sample, SampleEvent, Texts, dig, read_error
from litmuskit.records import Context, Event, Message, ModelCall, Observation, Ranges, ToolCall, Transcript, Truncation

__all__ = ["Reading", "read_surroundings", "read_tools", "read_transcript"]

SPEC = "litmuskit-fp/1"
VOUCHED = (0, 3, 284)  # from here on a model's input is logged as it was, not by reference
EXECUTED = (0, 3, 276)  # from here on a tool event holds the arguments as executed
_RUN = {"max_tool_output", "cache", "max_retries", "timeout", "attempt_timeout", "max_connections", "batch"}
_OPTS = {"parallel_tool_calls": "parallel_tool_calls", "response_schema": "response_format"}
_STOPS = {name: name for name in ("stop", "tool_calls", "max_tokens", "content_filter")} | {"model_length": "max_tokens"}
_MOVED = ("Image content is included below.", "Document content is included below.")  # to a user message
_TOOLS, _CONFIG = list[dict[str, Any]] | None, dict[str, Any] | None
_SCOPES = {"scorer": "judge", "scorers": "judge", "tool": "tool"}  # of a span or a step, by type


class Reading(NamedTuple):
    """A transcript and what else the events say; ``caps`` are the logged limits of tool output."""

    transcript: Transcript
    declared: tuple[Event, ...]
    live: tuple[str | None, ...] | None
    caps: tuple[int, ...]


class _Turn(msgspec.Struct, gc=False):
    event: SampleEvent
    ranges: Ranges
    said: LoggedMessage | None
    stop: str | None
    error: str | None
    live: str | None
    tools: list[tuple[str | None, SampleEvent]] = []
    modified: dict[str | None, ToolCall] = {}


def read_transcript(sample: Sample, version: tuple[int, ...], where: object) -> Reading:
    """The agent's model calls of a sample, in order.

    Raises `LogFormatError` for what Inspect itself shows as an empty input: dangling ranges, missing texts, no input.
    """
    texts = Texts(sample, where)
    pool = MessagePool(sample, texts)
    turns, declared = _collect(sample.events, pool)
    final = _read_final(sample, pool, turns)
    context = Context()
    around: tuple[Any, ...] | None = None
    calls, caps = list[ModelCall](), set[int]()
    later = _list_later(turns, final or ())
    for number, turn in enumerate(turns, 1):
        event, (system, delivered) = turn.event, pool.split_system(turn.ranges)
        asked = (event.tools, event.tool_choice, event.config)
        surroundings = marshal.dumps(asked, 2) if type(event) is SampleEvent else asked  # equality would take 1 for True
        before, around = around, (system, event.model, surroundings)
        if around != before:
            context, cap = read_surroundings(event, system, texts, number)
            caps |= {cap} if isinstance(cap, int) else set()
        proposed: Message | None = None
        observations: tuple[Observation, ...] = ()
        if turn.said is not None:
            proposed = pool.read(turn.said)
            replies = pool.list_replies(later[number - 1], turn.said.id, proposed) if proposed.tool_calls else []
            if not replies and turn.tools:
                replies = pool.list_replies(_find_view(turns[number:], pool.find(turn.said)), turn.said.id, proposed)
            if replies or turn.tools:
                observations = _observe(turn, proposed.tool_calls, replies, texts)
        calls.append(
            ModelCall(
                turn=number,
                context=context,
                delivered=delivered,
                proposed=proposed,
                observations=observations,
                stop="error" if turn.error else _STOPS.get(turn.stop or "", "unknown"),
                cached=event.cache == "read",
                error=turn.error,
            )
        )
    live = tuple(turn.live for turn in turns)
    told = all(result.executed is not None or result.delivered is None for call in calls for result in call.observations)
    logged = {"delivered": bool(calls) and (version >= VOUCHED or all(live)), "executed": told and version >= EXECUTED}
    logged |= {"returned": told, "final": final is not None}
    shown, unlogged = final and pool.split_system(final)[1], frozenset(name for name, held in logged.items() if not held)
    transcript = Transcript(messages=tuple(pool.shown), calls=tuple(calls), final=shown, unlogged=unlogged)
    return Reading(transcript, declared, live if any(live) else None, tuple(sorted(caps)))


def read_tools(event: SampleEvent, where: object) -> list[dict[str, Any]]:
    """The tools that a model call was offered."""
    return decode_json(event.tools, _TOOLS, f"{where} tools") or []


def read_surroundings(event: SampleEvent, system: str | None, texts: Texts, number: int = 1) -> tuple[Context, Any]:
    """System prompt, tools as offered, options and sampling settings of one model call; and its limit of tool output."""
    where = f"{texts.where} model call {number}"
    config, tools = decode_json(event.config, _CONFIG, f"{where} config") or {}, read_tools(event, where)
    opts = {"tool_choice": event.tool_choice} | {name: config.get(key) for key, name in _OPTS.items()}
    decode = {"model": event.model} | {key: value for key, value in config.items() if key not in _RUN | _OPTS.keys()}
    context = Context(
        system=system,
        tools=tuple({k: texts.resolve(v) if k == "description" else v for k, v in tool.items()} for tool in tools),
        opts={name: value for name, value in opts.items() if value is not None},
        decode={name: value for name, value in decode.items() if value is not None},
    )
    return context, config.get("max_tool_output")


def _collect(events: Iterable[SampleEvent], pool: MessagePool) -> tuple[list[_Turn], tuple[Event, ...]]:
    """The agents' turns, and the compactions the harness declared."""
    turns: list[_Turn] = []
    declared: list[Event] = []
    spans, last, live = dict[str | None, str | None](), dict[str | None, _Turn](), dict[str | None, str | None]()
    asked = dict[tuple[str | None, str | None], _Turn]()  # the turns whose calls are open
    steps, compacted = list[str | None](["agent"]), False
    for event in events:
        kind, span = event.event, event.span_id
        if kind == "model":
            if (scope := spans.get(span, steps[-1])) == "agent" or (scope == "tool" and read_tools(event, pool.texts.where)):
                turn = last[span] = _read_turn(event, pool, len(turns) + 1, live.pop(span, None))
                turns.append(turn)
                for call in (turn.said and turn.said.tool_calls) or ():
                    asked[span, call.id] = turn
                if compacted:
                    declared.append(Event(kind="late-edit", turn=len(turns), detail="the harness compacted the history"))
                compacted = False
        elif kind == "tool":
            if span in last and spans.get(span, steps[-1]) != "judge":  # conversations side by side may share a span
                asked.pop((span, event.id), last[span]).tools.append((event.id, event))
        elif kind == "span_end" or kind == "state" or kind == "store":  # noqa: PLR1714  # the most frequent, in a tight loop
            continue
        elif kind in {"span_begin", "step"}:
            outer, kept = spans.get(event.parent_id, steps[-1]), _SCOPES.get(event.type or "")
            inner = outer if outer == "judge" else kept or outer
            if kind == "span_begin":
                spans[event.id] = inner
            else:
                steps = [*steps, inner] if event.action == "begin" else steps[:-1] or steps
        elif kind == "info" and dig(event.told, "spec") == SPEC:
            digest = dig(event.told, "stimulus")
            live[span] = None if digest is None else str(digest)
        elif kind == "approval" and event.modified and turns:
            call = event.modified
            turns[-1].modified[call.id] = ToolCall(name=call.function, arguments=pool.texts.resolve(call.arguments), id=call.id)
        elif kind == "compaction":
            compacted = True
    return turns, tuple(declared)


def _read_turn(event: SampleEvent, pool: MessagePool, number: int, live: str | None) -> _Turn:
    output = event.output if isinstance(event.output, Output) else Output()
    choice, error = output.choices[0] if output.choices else None, event.error or output.error
    ranges: Ranges = ()
    if event.input_refs:
        ranges = pool.check(event.input_refs, "model call", number)
    elif isinstance(event.input, list):
        ranges = pool.add(event.input)
    if not ranges:
        where = f"{pool.texts.where} model call {number}"
        raise LogFormatError("the model's input is not in the log", where=where, expected="messages or input_refs")
    said, stop = (choice.message, choice.stop_reason) if choice else (None, None)
    return _Turn(event, ranges, said, stop, error, live)


def _list_later(turns: Sequence[_Turn], final: Ranges) -> list[Ranges]:
    """What the same agent was shown next, per turn; the final list is that of the agent who spoke last."""
    later, following = list[Ranges](), {turns[-1].event.span_id: final} if turns else {}
    for turn in reversed(turns):
        later.append(following.get(turn.event.span_id, ()))
        following[turn.event.span_id] = turn.ranges
    return later[::-1]


def _find_view(turns: Sequence[_Turn], index: int | None) -> Ranges:
    """What was shown to the first of ``turns`` that was shown the message at ``index``."""
    held = (turn.ranges for turn in turns if index is not None and any(start <= index < stop for start, stop in turn.ranges))
    return next(held, ())


def _read_final(sample: Sample, pool: MessagePool, turns: Sequence[_Turn]) -> Ranges | None:
    """The message list after the last turn; None where it does not continue what the agent was shown."""
    refs = pool.check(sample.message_refs, "message list")
    messages = sample.messages or [pool.logged[i] for start, stop in refs for i in range(start, stop)]
    ids = {logged.id for logged in messages} | {None}
    last = turns[-1].ranges[-1][1] - 1 if turns else None
    if last is not None and pool.logged[last].id not in ids and pool.shown[last] not in map(pool.texts.read, messages):
        return None
    return pool.add(messages) if messages else None


def _observe(
    turn: _Turn, calls: Sequence[ToolCall], replies: Sequence[tuple[str | None, Message]], texts: Texts
) -> tuple[Observation, ...]:
    tools = turn.tools
    if len(calls) == len(tools) == len(replies) == 1 and calls[0].id == tools[0][0] == replies[0][0]:  # nearly every turn
        return (_read_observation(0, calls[0], tools[0][1], replies[0][1], turn, texts),)
    events, strays = _join(calls, tools)
    shown, lost = _join(calls, replies)
    joined = [(place, call, events.get(place), shown.get(place)) for place, call in enumerate(calls)]
    found = [_read_observation(*one, turn, texts) for one in joined if one[2:] != (None, None)]
    found += [_read_observation(None, None, event, None, turn, texts) for event in strays]
    return (*found, *(_read_observation(None, None, None, message, turn, texts) for message in lost))


def _join(calls: Sequence[ToolCall], items: Sequence[tuple[str | None, Any]]) -> tuple[dict[int, Any], list[Any]]:
    """Items by the position of the first open call of their id; those that answer none."""
    placed: dict[int, Any] = {}
    strays: list[Any] = []
    for ident, item in items:
        for position, call in enumerate(calls):
            if position not in placed and (ident is None or ident == call.id):
                placed[position] = item
                break
        else:
            strays.append(item)
    return placed, strays


def _read_observation(
    position: int | None, call: ToolCall | None, event: SampleEvent | None, message: Message | None, turn: _Turn, texts: Texts
) -> Observation:
    shown = message.content if message else None
    if event is None:
        return Observation(position=position, delivered=shown, error=message.error if message else None)
    failed, cut = event.error, event.truncated
    ran = turn.modified.get(event.id) if turn.modified else None
    if ran is None and call and event.function == call.name and is_same_json(event.arguments, call.arguments):
        ran = call
    elif ran is None:
        arguments = _resolve_beside(event.arguments, call and call.arguments, texts)
        ran = ToolCall(name=str(event.function), arguments=arguments or {}, id=event.id)
    refused = failed is not None and dig(failed, "type") in {"parsing", "approval"}
    executed = None if event.result is None else not refused
    return Observation(
        position=position,
        call=ran if executed else None,
        executed=executed,
        raw=_read_result(event.result, shown, texts) if cut is None and failed is None else None,
        delivered=shown,
        error=None if failed is None else read_error(failed),
        truncation=None if cut is None else Truncation(raw_size=cut[0], cap=cut[1]),
    )


def _resolve_beside(value: Any, proposed: Any, texts: Texts) -> Any:
    """Arguments as executed; a reference that stands in the proposal as well is one that the agent wrote."""
    if isinstance(value, dict) and isinstance(proposed, dict):
        return {key: _resolve_beside(item, proposed.get(key), texts) for key, item in value.items()}
    if isinstance(value, list) and isinstance(proposed, list) and len(value) == len(proposed):
        return [_resolve_beside(*pair, texts) for pair in zip(value, proposed, strict=True)]
    return value if value == proposed else texts.resolve(value)


def _read_result(result: Any, shown: Any, texts: Texts) -> str | None:
    """A tool's result as text, as Inspect shows it: numbers by ``str``, media as they are or moved; None where they are not."""
    if isinstance(result, str):
        return result
    told = []
    for place, block in enumerate(result if isinstance(result, list) else [result]):
        text, seen = dig(block, "text") if isinstance(block, dict) else block, dig(shown, place)
        if text is None and dig(block, "type") in {"image", "document", "audio", "video"}:
            text = "" if seen == texts.resolve(block) else dig(seen, "text") if dig(seen, "text") in _MOVED else None
        told.append(None if isinstance(text, dict | list) else text)
    return None if None in told else "\n".join(map(str, told))
