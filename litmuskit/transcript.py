"""What was shown, proposed, executed and returned, per model call.

A flat message list cannot show a replay or a late edit: by the time it is read, the history has one version. A `Transcript`
therefore keeps, *per model call*, what was delivered to the agent, what the agent proposed, what was executed and what came
back. Messages stand once, in a pool; a model call names the ones it was shown as half-open ranges into the pool, so an
honest transcript of n turns costs O(n) and an edited history is a different range, not a rewritten past.

A component the log does not hold is named in `Transcript.unlogged`. Unknown is not absent, and not "fine".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from litmuskit.errors import InputError

__all__ = [
    "COMPONENTS", "Context", "Message", "ModelCall", "Observation", "Ranges", "ToolCall", "Transcript", "Truncation",
    "require_one_of",
]  # fmt: skip

Ranges: TypeAlias = tuple[tuple[int, int], ...]

ROLES = ("system", "developer", "user", "assistant", "tool")
COMPONENTS = ("system", "tools", "opts", "decode", "delivered", "executed", "returned", "final")


def require_one_of(found: object, allowed: Collection[str], where: str) -> None:
    """Raise where a value is not one of the allowed."""
    if found not in allowed:
        raise InputError("unknown value", where=where, expected=f"one of {', '.join(allowed)}", found=found)


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A frozen record, made at the speed of C because logs hold millions; `dataclasses` reads it as one of its own."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = {}


R = TypeVar("R", bound=Record)


def describe_fields(kind: type[R]) -> type[R]:
    """Tell `dataclasses.fields`, ``replace`` and ``asdict`` the fields of a record."""
    told: list[tuple[str, Any, Any]] = []
    for one in msgspec.structs.fields(kind):
        known = {"default": one.default, "default_factory": one.default_factory}
        kept = {name: value for name, value in known.items() if value is not msgspec.NODEFAULT}
        told.append((one.name, one.type, dataclasses.field(**kept)))
    kind.__dataclass_fields__ = vars(dataclasses.make_dataclass(kind.__name__, told, kw_only=True))["__dataclass_fields__"]
    return kind


@describe_fields
class ToolCall(Record, frozen=True, kw_only=True):
    """A call by name; ``arguments`` is a mapping, or the text as emitted where it was never parsed."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None
    parse_error: str | None = None


@describe_fields
class Message(Record, frozen=True, kw_only=True):
    """One message as the agent was shown it (or emitted it); ``content`` is text, bytes, a list of blocks, or None."""

    role: str
    content: str | bytes | list[Any] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            require_one_of(self.role, ROLES, "message role")

    @property
    def text(self) -> str:
        """All text of the content, blocks joined by a line feed; bytes as UTF-8 with escapes."""
        content = self.content
        if isinstance(content, str):
            return content
        if content is None:
            return ""
        if isinstance(content, bytes):
            return content.decode("utf-8", "backslashreplace")
        return "\n".join(block_text(block) for block in content)


def block_text(block: Any) -> str:
    """The text of one content block (``text``, ``content`` or ``reasoning``), else the empty string."""
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping):
        for key in ("text", "content", "reasoning"):
            if isinstance(block.get(key), str):
                return str(block[key])
    return ""


@describe_fields
class Truncation(Record, frozen=True, kw_only=True):
    """A declared cut: ``raw_size`` before and ``cap`` after, in ``unit``; None where the log does not say."""

    raw_size: int | None = None
    cap: int | None = None
    unit: Literal["bytes", "characters"] = "bytes"


@describe_fields
class Observation(Record, frozen=True, kw_only=True):
    """What came back from one tool call of a turn.

    ``position`` is the call's index in the turn's proposal (None: the log joins it to none); ``call`` is the call *as
    executed* (None: not logged); ``executed`` is False when it was rejected or never run, None when the log does not say;
    ``raw`` is what the tool returned, ``delivered`` what the harness put into the history (None: not logged).
    """

    position: int | None
    call: ToolCall | None = None
    executed: bool | None = None
    raw: str | bytes | None = None
    delivered: str | bytes | list[Any] | None = None
    error: str | None = None
    truncation: Truncation | None = None


@describe_fields
class Context(Record, frozen=True, kw_only=True):
    """What surrounds the messages of a model call: system prompt, tool schemas in wire order, options, decoding."""

    system: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    opts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    decode: Mapping[str, Any] = msgspec.field(default_factory=dict)


@describe_fields
class ModelCall(Record, frozen=True, kw_only=True):
    """One turn: shown, proposed, executed, returned. ``turn`` counts from 1.

    ``delivered`` names pool messages as half-open ranges (None: not logged); ``proposed`` is None when the model returned
    nothing; ``stop`` is the provider's reason in the words stop, tool_calls, max_tokens, content_filter, error or unknown.
    """

    turn: int
    context: Context
    delivered: Ranges | None
    proposed: Message | None
    observations: tuple[Observation, ...] = ()
    stop: str | None = None
    cached: bool | None = None
    error: str | None = None


@describe_fields
class Transcript(Record, frozen=True, kw_only=True):
    """All model calls of an episode over one pool of messages.

    ``final`` is the message list as it stood after the last turn (None: not logged). ``unlogged`` names the `COMPONENTS`
    the log does not hold.

    Examples
    --------
    >>> user = Message(role="user", content="hi")
    >>> call = ModelCall(turn=1, context=Context(), delivered=((0, 1),), proposed=Message(role="assistant", content="hello"))
    >>> Transcript(messages=(user,), calls=(call,)).delivered(1) == (user,)
    True
    """

    messages: tuple[Message, ...]
    calls: tuple[ModelCall, ...]
    final: Ranges | None = None
    unlogged: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        size = len(self.messages)
        if not isinstance(self.unlogged, frozenset | set):
            raise InputError("not a set of names", where="transcript.unlogged", expected="a frozenset", found=self.unlogged)
        for name in self.unlogged.difference(COMPONENTS):
            require_one_of(name, COMPONENTS, "transcript.unlogged")
        for index, call in enumerate(self.calls, 1):
            if call.turn != index:
                raise InputError("turns are not numbered 1..n", where=f"model call {index}", expected=index, found=call.turn)
            _check_ranges(call.delivered, size, "turn", index, "delivered")
        _check_ranges(self.final, size, "final")

    def expand(self, ranges: Ranges | None) -> tuple[Message, ...] | None:
        """The messages that ``ranges`` name, or None where nothing was logged."""
        if ranges is None:
            return None
        if len(ranges) == 1:
            return self.messages[ranges[0][0] : ranges[0][1]]
        return tuple(message for start, stop in ranges for message in self.messages[start:stop])

    def delivered(self, turn: int) -> tuple[Message, ...] | None:
        """What model call ``turn`` (from 1) was shown, the system prompt apart; None: not logged."""
        return self.expand(self.calls[turn - 1].delivered)

    def shown_after(self, turn: int) -> tuple[Message, ...] | None:
        """The history as it stood once ``turn`` was over: the next call's input, or the final list."""
        return self.expand(self.calls[turn].delivered if turn < len(self.calls) else self.final)


def _check_ranges(ranges: Ranges | None, size: int, *where: object) -> None:
    for start, stop in ranges or ():
        if not 0 <= start <= stop <= size:
            what, place = "a message range reaches outside the pool", " ".join(map(str, where))
            raise InputError(what, where=place, expected=f"within 0..{size}", found=(start, stop))
