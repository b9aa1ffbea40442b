"""What is read of an Inspect sample, and its messages as the model was shown them.

Long texts stand once, as ``attachment://<hash>``. A tool, a user or the model can *write* such a text too, so a reference is
literal where a field that Inspect never moves (a tool's result, the sample's input, the completion) shows it.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from litmuskit.errors import LogFormatError
from litmuskit.records import Message, Ranges, ToolCall

__all__ = ["MessagePool", "Sample", "SampleEvent", "Texts", "dig", "read_error", "read_message"]

_REFERENCE = re.compile(r"(?:attachment|tc)://([0-9a-f]{32}|\d+)")


class SampleEvent(msgspec.Struct):
    """What is read of any event; the rest is skipped unparsed."""

    event: str
    span_id: str | None = None
    parent_id: str | None = None
    id: str | None = None
    type: str | None = None
    action: str | None = None
    model: str | None = None
    input: Any = None
    input_refs: list[tuple[int, int]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    config: dict[str, Any] | None = None
    output: Any = None
    cache: str | None = None
    error: Any = None
    function: str | None = None
    arguments: Any = None
    result: Any = None
    truncated: tuple[int, int] | None = None
    message_id: str | None = None
    modified: dict[str, Any] | None = None
    data: Any = None


class _Pool(msgspec.Struct):
    messages: list[dict[str, Any]]


class Sample(msgspec.Struct):
    """What is read of a sample; a benchmark's own truth in its metadata never is."""

    id: int | str
    epoch: int
    input: Any = None
    messages: list[dict[str, Any]] = []
    message_refs: list[tuple[int, int]] = []
    events: list[SampleEvent] = []
    events_data: _Pool | None = None
    message_pool: list[dict[str, Any]] = []
    transcript: Any = None
    attachments: dict[str, str] = {}
    scores: dict[str, Any] | None = None
    metadata: Any = None
    error: Any = None
    error_retries: list[Any] | None = None
    limit: Any = None
    invalidation: Any = None
    started_at: str | None = None

    def __post_init__(self) -> None:
        if self.transcript and not self.events:  # the first form of the format
            self.events = msgspec.convert(dig(self.transcript, "events"), list[SampleEvent])
            self.attachments = msgspec.convert(dig(self.transcript, "content"), dict[str, str])
        if self.events_data:
            self.message_pool = self.events_data.messages


def dig(value: Any, *keys: str | int) -> Any:
    """The value under a path of keys; None where the path leaves the document."""
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def read_error(error: Any) -> str | None:
    """The message of an error, logged as text or as an object."""
    told = (dig(error, "message") or dig(error, "type")) if isinstance(error, dict) else error
    return None if told is None else str(told)


class Texts:
    """The texts of a sample; ``own`` maps each literal reference, and the text it would become, by its owner to itself."""

    def __init__(self, sample: Sample, where: object) -> None:
        self.stored, self.where, self.own = sample.attachments, where, dict[tuple[Any, str], str]()
        for owner, text in _list_own(sample):
            if isinstance(text, str) and (found := _REFERENCE.fullmatch(text)):
                self.own[owner, text] = self.own[owner, self.stored.get(found[1], text)] = text

    def resolve(self, value: Any, *owners: Any) -> Any:
        """A JSON value, each reference replaced by its text: one object, however often it is shown."""
        if isinstance(value, dict):
            return {key: self.resolve(item, *owners) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, *owners) for item in value]
        if not isinstance(value, str):
            return value
        if self.own and (literal := next((self.own[o, value] for o in owners if (o, value) in self.own), None)):
            return literal
        found = _REFERENCE.fullmatch(value) if "://" in value[:13] else None
        if found and found[1] not in self.stored and len(found[1]) == 32:
            raise LogFormatError("a text is missing from the log", where=self.where, expected="its attachment", found=value)
        return self.stored.get(found[1], value) if found else value


def _list_own(sample: Sample) -> Iterable[tuple[Any, Any]]:
    yield "user", sample.input
    for event in sample.events:
        if event.event == "tool":
            blocks = event.result if isinstance(event.result, list) else [{"text": event.result}]
            yield from ((event.message_id or event.id, dig(block, "text")) for block in blocks)
        elif event.event == "model":
            yield dig(event.output, "choices", 0, "message", "id"), dig(event.output, "completion")


def read_message(raw: Mapping[str, Any], texts: Texts) -> Message:
    """A logged chat message; ids, usage and provider fields are left behind."""
    content, calls = raw.get("content"), []
    if not isinstance(raw.get("role"), str) or not (content is None or isinstance(content, str | list)):
        raise LogFormatError("not a chat message", where=texts.where, expected="role and content", found=raw)
    for call in raw.get("tool_calls") or ():
        name, arguments = dig(call, "function"), dig(call, "arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | str):
            raise LogFormatError("not a tool call", where=texts.where, expected="a function and its arguments", found=call)
        # only beside a list of blocks does Inspect move long arguments to the attachments
        arguments = texts.resolve(arguments) if isinstance(content, list) else arguments
        calls.append(ToolCall(name=name, arguments=arguments, id=call.get("id"), parse_error=call.get("parse_error")))
    return Message(
        role=raw["role"],
        content=texts.resolve(content, raw.get("id"), raw.get("tool_call_id"), raw["role"]),
        tool_calls=tuple(calls),
        tool_call_id=raw.get("tool_call_id"),
        error=read_error(raw.get("error", raw.get("tool_error"))),
    )


class MessagePool:
    """The sample's messages, raw and as shown; logs that repeat whole inputs are folded into it."""

    def __init__(self, sample: Sample, texts: Texts) -> None:
        self.texts, self.raws, self.read = texts, list(sample.message_pool), list[Message]()
        self.read.extend(read_message(raw, texts) for raw in self.raws)
        self.known: dict[bytes, int] = {}

    def add(self, raws: Iterable[dict[str, Any]]) -> Ranges:
        """The ranges under which messages stand, those that are new appended."""
        ranges: list[tuple[int, int]] = []
        for raw in raws:
            index = self.known.setdefault(marshal.dumps(raw, 2), len(self.read))
            if index == len(self.read):
                self.raws.append(raw)
                self.read.append(read_message(raw, self.texts))
            start = ranges.pop()[0] if ranges and ranges[-1][1] == index else index
            ranges.append((start, index + 1))
        return tuple(ranges)

    def check(self, ranges: Sequence[tuple[int, int]], what: str) -> Ranges:
        """Ranges that lie in the pool, empty ones left out; Inspect shows the others as an empty input."""
        for start, stop in ranges:
            if not 0 <= start <= stop <= len(self.read):
                allowed, where = f"0..{len(self.read)}", f"{self.texts.where} {what}"
                raise LogFormatError("reaches outside the message pool", where=where, expected=allowed, found=(start, stop))
        return tuple((start, stop) for start, stop in ranges if start < stop)

    def split_system(self, ranges: Ranges) -> tuple[str | None, Ranges]:
        """The leading system prompt and the rest."""
        first = self.read[ranges[0][0]] if ranges else None
        if first is None or first.role != "system" or not isinstance(first.content, str):
            return None, ranges
        start, stop = ranges[0][0] + 1, ranges[0][1]
        return first.content, ((start, stop), *ranges[1:]) if start < stop else ranges[1:]

    def list_replies(self, ranges: Ranges, ident: str | None) -> list[tuple[str | None, Message]]:
        """The tool messages behind the agent's message of that id (or, without ids, its last), by call id."""
        replies: list[tuple[str | None, Message]] = []
        for index in (i for start, stop in reversed(ranges) for i in reversed(range(start, stop))):
            message = self.read[index]
            if message.role == "tool":
                replies.append((message.tool_call_id, message))
            elif message.role == "assistant":
                if ident is None or self.raws[index].get("id") in {ident, None}:
                    return replies[::-1]
                replies = []
        return []
