"""What a log says about an episode, as frozen records: ids, labels, declared events, harness identity, status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from litmuskit.errors import InputError
from litmuskit.transcript import (
    COMPONENTS,
    Context,
    Message,
    ModelCall,
    Observation,
    Ranges,
    Record,
    ToolCall,
    Transcript,
    Truncation,
    describe_fields,
    require_one_of,
)

__all__ = [
    "COMPONENTS", "MATCH_KEYS", "STATUSES", "Context", "Episode", "Event", "Failure", "Harness", "Label", "Message",
    "ModelCall", "Observation", "Policy", "Ranges", "ReplayableHarness", "Scorer", "Source", "ToolCall", "Transcript",
    "Truncation",
]  # fmt: skip

MatchKey: TypeAlias = Literal["arguments", "arguments+observation", "state", "text", "unknown"]
Status: TypeAlias = Literal["finished", "errored", "empty", "limited", "cancelled", "unfinished"]

MATCH_KEYS = ("arguments", "arguments+observation", "state", "text", "unknown")
STATUSES = ("finished", "errored", "empty", "limited", "cancelled", "unfinished")


@describe_fields
class Source(Record, frozen=True, kw_only=True):
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


@describe_fields
class Label(Record, frozen=True, kw_only=True):
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
        require_one_of(self.match_key, MATCH_KEYS, f"match key of scorer {self.scorer!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named, versioned way in which a harness alters stimuli; ``seed`` is text so that no digit is lost."""

    name: str
    version: str
    digest: str
    seed: str | None = None
    deterministic: bool | None = None


@describe_fields
class Event(Record, frozen=True, kw_only=True):
    """A mutation, truncation, replay or other alteration that the harness itself declared.

    With a ``position`` it struck that call's result; a mutation without one struck the input of its ``turn``.
    """

    kind: str
    turn: int | None = None
    position: int | None = None
    policy: str | None = None
    detail: str = ""


@describe_fields
class Harness(Record, frozen=True, kw_only=True):
    """Who produced the log: ``policies`` maps mutation, truncation, normalizers to a `Policy`; a missing key is unlogged."""

    name: str
    version: str | None = None
    benchmark: str | None = None
    benchmark_version: str | None = None
    model: str | None = None
    source: Mapping[str, Any] | None = None
    policies: Mapping[str, Policy] = msgspec.field(default_factory=dict)


@describe_fields
class Episode(Record, frozen=True, kw_only=True):
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
    groups: Mapping[str, str] = msgspec.field(default_factory=dict)
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            require_one_of(self.status, STATUSES, f"{self.source} {self.record} status")
        for label in self.labels:
            if label.turn is not None or label.position is not None:
                _check_place(label, self.transcript, f"{self.source} {self.record} label {label.scorer!r}")
        last = len(self.transcript.calls)
        for event in self.events or ():
            if event.turn is not None and (type(event.turn) is not int or not 1 <= event.turn <= last):
                what = "declares a turn that the transcript does not hold"
                where = f"{self.source} {self.record} event {event.kind!r}"
                raise InputError(what, where=where, expected=f"1..{last}", found=event.turn)

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


def _check_place(label: Label, transcript: Transcript, where: str) -> None:
    """A label must name a turn and a call that the transcript holds."""
    turn, calls = label.turn, transcript.calls
    if turn is not None and (type(turn) is not int or not 1 <= turn <= len(calls)):
        raise InputError("flags a turn that the transcript does not hold", where=where, expected=f"1..{len(calls)}", found=turn)
    proposed = calls[turn - 1].proposed if turn is not None else None
    held = max(len(proposed.tool_calls) if proposed is not None else 0, 1)  # an answer in words is at 0
    if label.position is not None and turn is not None and not 0 <= label.position < held:
        expected = f"below {held} at turn {turn}"
        raise InputError("flags a call that the turn does not hold", where=where, expected=expected, found=label.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that could not be read: it stands in the result, it is not skipped.

    ``missing`` counts records that a log promises and does not hold: what it does hold can be read, and never published.
    """

    source: Source
    error: InputError
    missing: int = 0


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
