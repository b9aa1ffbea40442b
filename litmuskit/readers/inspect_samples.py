"""What is read of an Inspect sample, and its messages as the model was shown them.

Long texts stand once, as ``attachment://<hash>``. A tool, a user or the model can *write* such a text too, so a reference is
literal where a field that Inspect never moves (a tool's result, the sample's input, the completion) shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from litmuskit.canonical import is_same_json
from litmuskit.errors import LogFormatError
from litmuskit.records import Message, Ranges, ToolCall

__all__ = [
    "ChunkedSample", "LoggedMessage", "MessagePool", "Output", "Sample", "SampleEvent", "Texts", "VerbatimSample", "dig",
    "read_error",
]  # fmt: skip

_PROTOCOLS = ("attachment://", "tc://")
_HASH, _NUMBER = re.compile("[0-9a-f]{32}"), re.compile("[0-9]+")


class _LoggedCall(msgspec.Struct, gc=False):
    function: str
    arguments: dict[str, Any] | str
    id: str | None = None
    parse_error: str | None = None

    def to_record(self) -> ToolCall:
        return ToolCall(name=self.function, arguments=self.arguments, id=self.id, parse_error=self.parse_error)


class LoggedMessage(msgspec.Struct, gc=False):
    """What is read of a chat message; usage and provider fields are left behind."""

    role: str
    content: str | list[Any] | None = None
    id: str | None = None
    tool_calls: list[_LoggedCall] | None = None
    tool_call_id: str | list[str] | None = None  # several of a user message that carries what tools returned
    error: Any = None
    tool_error: Any = None


class _Choice(msgspec.Struct, gc=False):
    message: LoggedMessage
    stop_reason: str | None = None


class Output(msgspec.Struct, gc=False):
    """What a model returned."""

    choices: list[_Choice] = []
    completion: str | None = None
    error: str | None = None


class SampleEvent(msgspec.Struct, gc=False):
    """What is read of any event; the rest is skipped unparsed."""

    event: str
    span_id: str | None = None
    parent_id: str | None = None
    id: str | None = None
    type: str | None = None
    action: str | None = None
    model: str | None = None
    input: list[LoggedMessage] | dict[str, Any] | str | None = None
    input_refs: list[tuple[int, int]] | None = None
    tools: Any = None
    tool_choice: Any = None
    config: Any = None
    output: Output | str | None = None
    cache: str | None = None
    error: Any = None
    function: str | None = None
    arguments: dict[str, Any] | str | None = None
    result: Any = None
    truncated: tuple[int, int] | None = None
    message_id: str | None = None
    modified: _LoggedCall | None = None
    told: Any = msgspec.field(name="data", default=None)


class _Pool(msgspec.Struct, gc=False):
    messages: list[LoggedMessage]


class Sample(msgspec.Struct):
    """What is read of a sample; a benchmark's own truth in its metadata never is."""

    id: int | str
    epoch: int
    uuid: Any = None
    input: Any = None
    messages: list[LoggedMessage] = []
    message_refs: list[tuple[int, int]] = []
    events: Sequence[SampleEvent] = []
    events_data: _Pool | None = None
    message_pool: list[LoggedMessage] = []
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


class _VerbatimEvent(SampleEvent, gc=False):
    tools: msgspec.Raw = msgspec.Raw(b"null")
    config: msgspec.Raw = msgspec.Raw(b"null")


class ChunkedSample(Sample):
    """A sample whose events, messages and texts stand beside it; references number the texts."""


class VerbatimSample(Sample):
    """A sample whose events keep tools and settings as bytes: each call repeats them, and they are parsed where they change."""

    events: Sequence[_VerbatimEvent] = []


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
        self.stored, self.where = sample.attachments, where
        self.key = _NUMBER if isinstance(sample, ChunkedSample) else _HASH
        self.own: dict[tuple[Any, str], str] = {}
        for owner, text in _list_own(sample):
            self.own[owner, text] = self.own[owner, self.stored.get(text.partition("://")[2], text)] = text

    def resolve(self, value: Any, *owners: Any) -> Any:
        """A JSON value, each reference replaced by its text: one object, however often it is shown."""
        if isinstance(value, str):
            return self.resolve_text(value, owners) if self.own or value.startswith(_PROTOCOLS) else value
        if isinstance(value, dict):
            return {key: self.resolve(item, *owners) for key, item in value.items()}
        return [self.resolve(item, *owners) for item in value] if isinstance(value, list) else value

    def resolve_text(self, text: str, owners: tuple[Any, ...]) -> str:
        """A text, or the one it refers to unless one of ``owners`` wrote just this."""
        for owner in owners if self.own else ():
            if (owner, text) in self.own:
                return self.own[owner, text]
        if not text.startswith(_PROTOCOLS):
            return text
        key = text.partition("://")[2]
        if (found := self.stored.get(key)) is None and self.key.fullmatch(key):
            raise LogFormatError("a text is missing from the log", where=self.where, expected="its attachment", found=text)
        return text if found is None else found

    def read(self, logged: LoggedMessage) -> Message:
        """A message as the model was shown it."""
        content, calls = logged.content, logged.tool_calls
        if isinstance(content, str):
            if self.own or content.startswith(_PROTOCOLS):
                content = self.resolve_text(content, _list_owners(logged) if self.own else ())
        elif content is not None:
            content = self.resolve(content, *_list_owners(logged))
            if calls:  # only then does Inspect move long arguments to the attachments
                calls = [msgspec.structs.replace(call, arguments=self.resolve(call.arguments)) for call in calls]
        if logged.role == "tool":
            error, reply_to = logged.error or logged.tool_error, logged.tool_call_id
            reply_to, error = reply_to if isinstance(reply_to, str) else None, None if error is None else read_error(error)
            return Message(role="tool", content=content, tool_call_id=reply_to, error=error)
        told = tuple(map(_LoggedCall.to_record, calls)) if calls else ()
        return Message(role=logged.role, content=content, tool_calls=told)


def _list_owners(logged: LoggedMessage) -> tuple[Any, ...]:
    """Who may have written the text of a message."""
    asked = logged.tool_call_id
    return (logged.id, *(asked if isinstance(asked, list) else (asked,)), logged.role)


def _list_own(sample: Sample) -> list[tuple[Any, str]]:
    """References that somebody wrote, with who did."""
    written: list[tuple[Any, Any]] = [("user", sample.input)]
    for event in sample.events:
        told, said = event.result, event.output
        if told is not None and event.event == "tool":
            owner, blocks = event.message_id or event.id, [told] if isinstance(told, dict) else told
            written += [(owner, dig(block, "text")) for block in blocks] if isinstance(blocks, list) else ((owner, told),)
        elif said is not None and event.event == "model" and isinstance(said, Output) and said.choices:
            written.append((said.choices[0].message.id, said.completion))
    return [(owner, text) for owner, text in written if isinstance(text, str) and text.startswith(_PROTOCOLS)]


def _identify(logged: LoggedMessage) -> tuple[str, str, str]:
    """What a message without an id goes by."""
    return logged.role, str(logged.content), str(logged.tool_call_id)


class MessagePool:
    """The sample's messages, as logged and as shown; logs that repeat whole inputs are folded into it."""

    def __init__(self, sample: Sample, texts: Texts) -> None:
        self.texts, self.logged = texts, list(sample.message_pool)
        self.shown = [texts.read(logged) for logged in self.logged]
        self.latest = {logged.id or _identify(logged): index for index, logged in enumerate(self.logged)}

    def find(self, logged: LoggedMessage) -> int | None:
        """Where an equal message stands, if it is the latest of its id; its text may have moved to the attachments."""
        index = self.latest.get(logged.id or _identify(logged))
        if index is None:
            return None
        known, shown = self.logged[index], self.shown[index]
        if known != logged:
            same = logged.content == shown.content and logged.tool_calls == known.tool_calls and logged.error == known.error
            if not same or logged.role != known.role or logged.tool_call_id != known.tool_call_id:
                return None
        if logged.tool_calls and known.tool_calls:  # equality takes 1 for true
            for position, call in enumerate(logged.tool_calls):
                if not is_same_json(call.arguments, known.tool_calls[position].arguments):
                    return None
        if type(logged.content) is list and not any(is_same_json(logged.content, one.content) for one in (known, shown)):
            return None
        return index

    def read(self, logged: LoggedMessage) -> Message:
        """A message that may stand in the pool."""
        index = self.find(logged)
        return self.texts.read(logged) if index is None else self.shown[index]

    def add(self, messages: Iterable[LoggedMessage]) -> Ranges:
        """The ranges under which messages stand, those that are new appended."""
        ranges: list[tuple[int, int]] = []
        start = stop = 0
        for logged in messages:
            index = self.find(logged)
            if index is None:
                index = self.latest[logged.id or _identify(logged)] = len(self.logged)
                self.logged.append(logged)
                self.shown.append(self.texts.read(logged))
            if index != stop:
                ranges.append((start, stop))
                start = index
            stop = index + 1
        return tuple([pair for pair in (*ranges, (start, stop)) if pair[0] < pair[1]])

    def check(self, ranges: Sequence[tuple[int, int]], *what: object) -> Ranges:
        """Ranges that lie in the pool, empty ones left out; Inspect shows the others as an empty input."""
        size = len(self.shown)
        if len(ranges) == 1 and 0 <= ranges[0][0] < ranges[0][1] <= size:  # nearly every call
            return (ranges[0],)
        for start, stop in ranges:
            if not 0 <= start <= stop <= size:
                allowed, where = f"0..{size}", " ".join(map(str, (self.texts.where, *what)))
                raise LogFormatError("reaches outside the message pool", where=where, expected=allowed, found=(start, stop))
        return tuple([pair for pair in ranges if pair[0] < pair[1]])

    def split_system(self, ranges: Ranges) -> tuple[str | None, Ranges]:
        """The leading system prompt and the rest."""
        first = self.shown[ranges[0][0]] if ranges else None
        if first is None or first.role != "system" or not isinstance(first.content, str):
            return None, ranges
        start, stop = ranges[0][0] + 1, ranges[0][1]
        return first.content, ((start, stop), *ranges[1:]) if start < stop else ranges[1:]

    def list_replies(self, ranges: Ranges, ident: str | None, said: Message) -> list[tuple[str | None, Message]]:
        """The tool messages behind what the agent said under that id (without ids: last), by call id.

        The pool holds messages that differ in their id alone as one, under the first one's id.
        """
        replies: list[tuple[str | None, Message]] = []
        for start, stop in reversed(ranges):
            for index in range(stop - 1, start - 1, -1):
                message = self.shown[index]
                if message.role == "tool":
                    replies.append((message.tool_call_id, message))
                elif message.role == "assistant":
                    if ident is None or self.logged[index].id in (ident, None) or message == said:
                        return replies[::-1]
                    replies = []
        return []
