"""What a log says, as frozen records.

A flat message list cannot show a replay or a late edit: by the time it is read, the history has one version. A `Transcript`
therefore keeps, *per model call*, what was delivered to the agent, what the agent proposed, what was executed and what came
back. Messages stand once, in a pool; a model call names the ones it was shown as half-open ranges into the pool, so an
honest transcript of n turns costs O(n) and an edited history is a different range, not a rewritten past.

A component the log does not hold is named in `Transcript.unlogged`. Unknown is not absent, and not "fine".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from litmuskit.errors import InputError

__all__ = [
    "COMPONENTS",
    "MATCH_KEYS",
    "STATUSES",
    "Context",
    "Episode",
    "Event",
    "Failure",
    "Harness",
    "Label",
    "Message",
    "ModelCall",
    "Observation",
    "Policy",
    "Ranges",
    "ReplayableHarness",
    "Scorer",
    "Source",
    "ToolCall",
    "Transcript",
    "Truncation",
]

Ranges: TypeAlias = tuple[tuple[int, int], ...]
MatchKey: TypeAlias = Literal["arguments", "arguments+observation", "state", "text", "unknown"]
Status: TypeAlias = Literal["finished", "errored", "empty", "limited", "cancelled", "unfinished"]

MATCH_KEYS = ("arguments", "arguments+observation", "state", "text", "unknown")
STATUSES = ("finished", "errored", "empty", "limited", "cancelled", "unfinished")
ROLES = ("system", "developer", "user", "assistant", "tool")
COMPONENTS = ("system", "tools", "opts", "decode", "delivered", "executed", "returned", "final")


def _require(found: object, allowed: Collection[str], where: str) -> None:
    if found not in allowed:
        raise InputError("unknown value", where=where, expected=f"one of {', '.join(allowed)}", found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a record stands: a file, and in it an archive member or a line (from 1).

    Examples
    --------
    >>> str(Source(path="runs/a.jsonl", line=3))
    'runs/a.jsonl:3'
    """

    path: str
    member: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        member = f"!{self.member}" if self.member is not None else ""
        return f"{self.path}{member}{f':{self.line}' if self.line is not None else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call by name; ``arguments`` is a mapping, or the text as emitted where it was never parsed."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None
    parse_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as the agent was shown it (or emitted it); ``content`` is text, bytes, a list of blocks, or None."""

    role: str
    content: str | bytes | list[Any] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            _require(self.role, ROLES, "message role")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A declared cut: ``raw_size`` before and ``cap`` after, in ``unit``; None where the log does not say."""

    raw_size: int | None = None
    cap: int | None = None
    unit: Literal["bytes", "characters"] = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What surrounds the messages of a model call: system prompt, tool schemas in wire order, options, decoding."""

    system: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    opts: Mapping[str, Any] = field(default_factory=dict)
    decode: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
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
        for name in self.unlogged:
            _require(name, COMPONENTS, "transcript.unlogged")
        for index, call in enumerate(self.calls, 1):
            if call.turn != index:
                raise InputError("turns are not numbered 1..n", where=f"model call {index}", expected=index, found=call.turn)
            _check_ranges(call.delivered, size, f"turn {index} delivered")
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


def _check_ranges(ranges: Ranges | None, size: int, where: str) -> None:
    for start, stop in ranges or ():
        if not 0 <= start <= stop <= size:
            found = (start, stop)
            raise InputError("a message range reaches outside the pool", where=where, expected=f"within 0..{size}", found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One scorer's judgement, its polarity resolved.

    ``violation`` is None when the scorer gave no judgement; ``value`` is what the log holds. ``match_key`` says what the
    grader compared. ``turn`` (from 1) and ``position`` name the flagged call where the log does. ``schema_check`` is True
    when the label rests on the form of the agent's output, False when it does not, None when the log gives no reason.
    """

    scorer: str
    violation: bool | None
    match_key: MatchKey = "unknown"
    value: Any = None
    turn: int | None = None
    position: int | None = None
    reason: str | None = None
    schema_check: bool | None = None

    def __post_init__(self) -> None:
        _require(self.match_key, MATCH_KEYS, f"match key of scorer {self.scorer!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named, versioned way in which a harness alters stimuli; ``seed`` is text so that no digit is lost."""

    name: str
    version: str
    digest: str
    seed: str | None = None
    deterministic: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A mutation, truncation, replay or other alteration that the harness itself declared."""

    kind: str
    turn: int | None = None
    position: int | None = None
    policy: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """Who produced the log: ``policies`` maps mutation, truncation, normalizers to a `Policy`; a missing key is unlogged."""

    name: str
    version: str | None = None
    benchmark: str | None = None
    benchmark_version: str | None = None
    model: str | None = None
    source: Mapping[str, Any] | None = None
    policies: Mapping[str, Policy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One run of one agent on one instance.

    ``run`` identifies the execution itself (a sample's uuid), so that a copy is known wherever it stands (None: not logged).
    ``attacked`` is False for a run without any payload, whose label says nothing about violations. ``payloads`` maps an
    injection vector to its configured text (None: not logged); ``carriers`` names the tools known to return it. ``events``
    is None when the harness does not declare alterations. ``live`` holds stimulus digests recorded before each model call.
    ``groups`` are the columns a rate may be split by. ``metadata`` is for people: no rule or finder reads it.
    """

    record: str
    source: Source
    instance: str
    transcript: Transcript
    labels: tuple[Label, ...]
    harness: Harness
    epoch: int = 1
    run: str | None = None
    attacked: bool = True
    status: Status = "finished"
    error: str | None = None
    payloads: Mapping[str, str] | None = None
    carriers: frozenset[str] | None = None
    events: tuple[Event, ...] | None = None
    live: tuple[str | None, ...] | None = None
    limit: str | None = None
    retries: int = 0
    copied: bool | None = None
    invalidated: bool = False
    edited: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(self.status, STATUSES, f"status of {self.record!r}")

    def __repr__(self) -> str:
        flagged = "flagged" if self.flagged else "unflagged"
        return f"Episode({self.record!r}, {len(self.transcript.calls)} turns, {self.status}, {flagged})"

    @property
    def flagged(self) -> bool:
        """Whether an attacked episode carries a label that says violation."""
        return self.attacked and any(label.violation for label in self.labels)

    @property
    def flag(self) -> Label | None:
        """The label that says violation, the earliest flagged turn first; None when unflagged."""
        flags = [label for label in self.labels if label.violation] if self.attacked else []
        return min(flags, key=lambda label: label.turn or 2**62, default=None)

    @property
    def flagged_turn(self) -> int | None:
        """The flagged turn where it was logged, else the last turn; None when unflagged or without turns."""
        flag = self.flag
        if flag is None or not self.transcript.calls:
            return None
        return flag.turn or len(self.transcript.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that could not be read: it stands in the result, it is not skipped."""

    source: Source
    error: InputError


@runtime_checkable
class Scorer(Protocol):
    """A benchmark's scorer: an episode's transcript in, a label out."""

    def __call__(self, transcript: Transcript, /) -> Label: ...


@runtime_checkable
class ReplayableHarness(Protocol):
    """A harness that can be fed recorded actions: what re-execution and executed controls need."""

    def reset(self, instance: str) -> Context: ...

    def call(self, call: ToolCall, /) -> str | bytes: ...

    def score(self, transcript: Transcript, /) -> Label: ...
