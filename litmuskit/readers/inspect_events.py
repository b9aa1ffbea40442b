"""One Inspect sample's events as a transcript.

The stimulus of a model call is ``ModelEvent.input``, or the ranges ``input_refs`` into the sample's message pool; never
``sample.messages``, which solvers rewrite after the fact. Calls, tool events and replies are joined by id and, because ids
recur, in order. A judge's model calls are no turns; a sub-agent's are none either, and leave the transcript unvouched.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from litmuskit.errors import LogFormatError
from litmuskit.readers.inspect_samples import MessagePool, Sample, SampleEvent, Texts, dig, read_error, read_message
from litmuskit.records import Context, Event, Message, ModelCall, Observation, Ranges, ToolCall, Transcript, Truncation

__all__ = ["Reading", "read_surroundings", "read_transcript"]

SPEC = "litmuskit-fp/1"
VOUCHED = (0, 3, 284)  # from here on a model's input is logged as it was, not by reference
EXECUTED = (0, 3, 276)  # from here on a tool event holds the arguments as executed
_RUN = {"max_tool_output", "cache", "max_retries", "timeout", "attempt_timeout", "max_connections", "batch"}
_OPTS = {"parallel_tool_calls": "parallel_tool_calls", "response_schema": "response_format"}
_STOPS = {name: name for name in ("stop", "tool_calls", "max_tokens", "content_filter")} | {"model_length": "max_tokens"}
_SCOPES = {"scorer": "judge", "scorers": "judge", "tool": "tool"}


class Reading(NamedTuple):
    """A transcript and what else the events say; ``caps`` are the logged limits of tool output."""

    transcript: Transcript
    declared: tuple[Event, ...]
    live: tuple[str | None, ...] | None
    caps: tuple[int, ...]


class _Turn(NamedTuple):
    event: SampleEvent
    ranges: Ranges
    raw: dict[str, Any] | None
    live: str | None
    tools: list[SampleEvent]
    modified: dict[str | None, dict[str, Any]]


def read_transcript(sample: Sample, version: tuple[int, ...], where: object) -> Reading:
    """The agent's model calls of a sample, in order.

    Raises `LogFormatError` for what Inspect itself shows as an empty input: dangling ranges, missing texts, no input.
    """
    texts = Texts(sample, where)
    pool = MessagePool(sample, texts)
    turns, declared, hidden = _collect(sample.events, pool)
    final = _read_final(sample, pool, turns)
    contexts: dict[bytes, Context] = {}
    runs_tools = any(turn.tools for turn in turns)
    calls = []
    for number, turn in enumerate(turns, 1):
        event, (system, delivered) = turn.event, pool.split_system(turn.ranges)
        key = marshal.dumps((system, event.tools, event.tool_choice, event.config, event.model), 2)
        context = contexts[key] = contexts.get(key) or read_surroundings(event, system, texts)
        proposed = read_message(turn.raw, texts) if turn.raw else None
        shown = (turns[number].ranges if number < len(turns) else final) or ()
        replies = pool.list_replies(shown, turn.raw.get("id")) if turn.raw else []
        error = read_error(event.error or dig(event.output, "error"))
        calls.append(
            ModelCall(
                turn=number,
                context=context,
                delivered=delivered,
                proposed=proposed,
                observations=tuple(
                    _observe(turn, proposed.tool_calls if proposed else (), replies, texts, runs_tools=runs_tools)
                ),
                stop="error" if error else _STOPS.get(dig(event.output, "choices", 0, "stop_reason"), "unknown"),
                cached=event.cache == "read",
                error=error,
            )
        )
    live = tuple(turn.live for turn in turns)
    logged = {"delivered": bool(calls) and not hidden and (version >= VOUCHED or all(live)), "final": final is not None}
    logged |= {"executed": version >= EXECUTED}
    transcript = Transcript(
        messages=tuple(pool.read),
        calls=tuple(calls),
        final=final and pool.split_system(final)[1],
        unlogged=frozenset(name for name, held in logged.items() if not held),
    )
    caps = {dig(turn.event.config, "max_tool_output") for turn in turns}
    return Reading(
        transcript, declared, live if any(live) else None, tuple(sorted(cap for cap in caps if isinstance(cap, int)))
    )


def read_surroundings(event: SampleEvent, system: str | None, texts: Texts) -> Context:
    """System prompt, tools as offered, options and sampling settings of one model call."""
    config = event.config or {}
    opts = {"tool_choice": event.tool_choice} | {name: config.get(key) for key, name in _OPTS.items()}
    decode = {"model": event.model} | {key: value for key, value in config.items() if key not in _RUN | _OPTS.keys()}
    return Context(
        system=system,
        tools=tuple({k: texts.resolve(v) if k == "description" else v for k, v in tool.items()} for tool in event.tools or ()),
        opts={name: value for name, value in opts.items() if value is not None},
        decode={name: value for name, value in decode.items() if value is not None},
    )


def _collect(events: Iterable[SampleEvent], pool: MessagePool) -> tuple[list[_Turn], tuple[Event, ...], bool]:
    """The agent's turns, the alterations the harness declared, and whether a sub-agent worked unseen."""
    turns: list[_Turn] = []
    declared: list[Event] = []
    spans: dict[str | None, str] = {}
    steps, live, hidden, compacted = ["agent"], None, False, False
    for event in events:
        kind, outer = event.event, spans.get(event.parent_id if event.event == "span_begin" else event.span_id, steps[-1])
        inner = _SCOPES.get(event.type or "", outer) if outer == "agent" else outer
        if kind == "span_begin":
            spans[event.id] = inner
        elif kind == "step" and event.action == "begin":
            steps.append(inner)
        elif kind == "step":
            steps = steps[:-1] or steps
        elif kind == "approval" and event.modified and turns:
            turns[-1].modified[event.modified.get("id")] = event.modified
            declared.append(Event(kind="executed-differs", turn=len(turns), detail="an approver modified the call"))
        elif outer != "agent":
            hidden |= kind == "model" and outer == "tool" and bool(event.tools)
        elif kind == "info" and dig(event.data, "spec") == SPEC:
            live = str(event.data.get("stimulus"))
        elif kind == "compaction":
            compacted = True
        elif kind == "tool" and turns:
            turns[-1].tools.append(event)
        elif kind == "model":
            turns.append(_Turn(event, _read_input(event, pool, len(turns) + 1), _read_choice(event, pool), live, [], {}))
            if compacted:
                declared.append(Event(kind="late-edit", turn=len(turns), detail="the harness compacted the history"))
            live, compacted = None, False
    return turns, tuple(declared), hidden


def _read_input(event: SampleEvent, pool: MessagePool, number: int) -> Ranges:
    if event.input_refs:
        return pool.check(event.input_refs, f"model call {number}")
    if not isinstance(event.input, list) or not event.input or not all(isinstance(raw, dict) for raw in event.input):
        where = f"{pool.texts.where} model call {number}"
        raise LogFormatError("the model's input is not in the log", where=where, expected="messages or input_refs")
    return pool.add(event.input)


def _read_choice(event: SampleEvent, pool: MessagePool) -> dict[str, Any] | None:
    message = dig(event.output, "choices", 0, "message")
    if not (isinstance(message, dict) or (message is None and not dig(event.output, "choices"))):
        raise LogFormatError("model output is not choices of messages", where=pool.texts.where, found=event.output)
    return message


def _read_final(sample: Sample, pool: MessagePool, turns: Sequence[_Turn]) -> Ranges | None:
    """The message list after the last turn; None where it does not continue what the agent was shown.

    Solvers prettify the agent's last message (append the answer, drop the submit call): that one is taken as proposed.
    """
    refs = pool.check(sample.message_refs, "message list")
    raws = sample.messages or [raw for start, stop in refs for raw in pool.raws[start:stop]]
    ids = {raw.get("id") for raw in raws} | {None}
    if not raws or (turns and pool.raws[turns[-1].ranges[-1][1] - 1].get("id") not in ids):
        return None
    said = turns[-1].raw if turns else None
    calls = (said or {}).get("tool_calls") or []
    answered = {raw.get("tool_call_id") for raw in raws if raw.get("role") == "tool"}
    for index, raw in enumerate(raws):
        kept = raw.get("tool_calls") or []
        dropped = [call for call in calls if call not in kept]
        pretty = dropped and all(call in calls for call in kept) and not any(call.get("id") in answered for call in dropped)
        if said and pretty and raw.get("id") == said.get("id") is not None:
            raws = [*raws[:index], said, *raws[index + 1 :]]
    return pool.add(raws)


def _observe(
    turn: _Turn, calls: Sequence[ToolCall], replies: Iterable[tuple[str | None, Message]], texts: Texts, *, runs_tools: bool
) -> Iterator[Observation]:
    events, strays = _join(calls, ((event.id, event) for event in turn.tools))
    shown, lost = _join(calls, replies)
    for position, call in enumerate(calls):
        event, message = events.get(position), shown.get(position)
        if event is None and message is None:
            yield Observation(position=position, executed=False if runs_tools else None)
        else:
            yield _read_observation(position, call, event, message, turn, texts)
    for event in strays:
        yield _read_observation(None, None, event, None, turn, texts)
    for message in lost:
        yield _read_observation(None, None, None, message, turn, texts)


def _join(calls: Sequence[ToolCall], items: Iterable[tuple[str | None, Any]]) -> tuple[dict[int, Any], list[Any]]:
    """Items by the position of the first open call of their id; those that answer none."""
    placed, strays = dict[int, Any](), []
    for ident, item in items:
        position = next((p for p, call in enumerate(calls) if p not in placed and ident in {call.id, None}), None)
        if position is None:
            strays.append(item)
        else:
            placed[position] = item
    return placed, strays


def _read_observation(
    position: int | None, call: ToolCall | None, event: SampleEvent | None, message: Message | None, turn: _Turn, texts: Texts
) -> Observation:
    shown = message.content if message else None
    if event is None:
        return Observation(position=position, delivered=shown, error=message.error if message else None)
    ran = turn.modified.get(event.id) or {"function": event.function, "arguments": event.arguments}
    arguments = ran["arguments"] if call and ran["arguments"] == call.arguments else texts.resolve(ran["arguments"])
    executed = None if event.result is None else dig(event.error, "type") not in {"parsing", "approval"}
    return Observation(
        position=position,
        call=ToolCall(name=str(ran["function"]), arguments=arguments or {}, id=event.id) if executed else None,
        executed=executed,
        raw=_read_result(event.result) if event.truncated is None and event.error is None else None,
        delivered=shown,
        error=read_error(event.error),
        truncation=Truncation(raw_size=event.truncated[0], cap=event.truncated[1]) if event.truncated else None,
    )


def _read_result(result: Any) -> str | None:
    """A tool's result as text: Inspect shows numbers by ``str`` and leaves texts where they are."""
    texts = [dig(block, "text") for block in result] if isinstance(result, list) else [result]
    return None if any(text is None or isinstance(text, dict) for text in texts) else "\n".join(map(str, texts))
