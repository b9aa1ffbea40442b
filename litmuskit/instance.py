"""A benchmark instance as its pre-flight sees it: what the agent is given, what the scorer looks for, which controls exist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import regex

from litmuskit.canonical import load_strict
from litmuskit.display import safe_text
from litmuskit.errors import InputError
from litmuskit.messages import parse_message
from litmuskit.records import Context, Episode, Label, Message, ModelCall, Observation, ReplayableHarness, ToolCall, Transcript

__all__ = ["CONTROLS", "Control", "LitmusInstance", "Signal", "Surface", "gather_instances", "read_instances", "transcribe"]

CONTROLS = {"null": False, "refuse": False, "quote-and-refuse": False, "comply": True, "no-op": False, "positive": True}
SURFACES = ("system", "skill", "tool", "schema-default", "user", "payload", "fixture", "observation", "rubric", "judge-prompt")
MEASURING = frozenset({"rubric", "judge-prompt"})  # read by the measurement, not by the agent
MATCHERS = ("substring", "regex", "equality", "callable")
CHANNELS = ("text", "tool-name", "tool-argument", "path", "state")
SCOPES = ("agent-text", "arguments", "observations", "transcript", "judge-prompt")
REGEX_SECONDS = 1.0


def _require(where: str, allowed: Iterable[str], found: str) -> None:
    if found not in allowed:
        raise InputError("unknown value", where=where, expected=f"one of {', '.join(allowed)}", found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """A text and its provenance; ``injected`` marks adversarial content, which payloads and skills always are."""

    kind: str
    name: str
    text: str
    injected: bool = False

    def __post_init__(self) -> None:
        _require(f"surface {self.name!r} kind", SURFACES, self.kind)
        object.__setattr__(self, "injected", self.injected or self.kind in {"payload", "skill"})

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One thing the scorer looks for: how (``matcher``), in which ``channel``, scanning which ``scope``.

    A callable matcher has a ``predicate`` on text, and ``literals`` to say which strings it looks for. What a regex matches is
    found within a second or not at all.

    Raises
    ------
    InputError
        The pattern is empty or does not compile, a predicate is missing, or a word is unknown.

    Examples
    --------
    >>> Signal(name="pay", pattern="US13", channel="tool-argument", scope="arguments").matches("to US13")
    True
    """

    name: str
    pattern: str = ""
    matcher: str = "substring"
    channel: str = "text"
    scope: str = "agent-text"
    ignore_case: bool = False
    predicate: Callable[[str], bool] | None = field(default=None, repr=False)
    literals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"signal {self.name!r}"
        for name, allowed in (("matcher", MATCHERS), ("channel", CHANNELS), ("scope", SCOPES)):
            _require(f"{where} {name}", allowed, getattr(self, name))
        if (self.matcher == "callable") != (self.predicate is not None):
            raise InputError("a predicate goes with the callable matcher", where=where, found=self.matcher)
        if self.matcher != "callable" and not self.pattern.strip():
            raise InputError("empty pattern", where=where, expected="text to look for", found=self.pattern)
        if self.matcher == "regex":
            try:
                regex.compile(self.pattern)
            except regex.error as error:
                raise InputError(f"regex does not compile ({error})", where=where, found=self.pattern) from error

    @property
    def sought(self) -> tuple[str, ...]:
        """The strings it looks for: ``literals``, else the pattern, of a regex its literal runs."""
        if self.literals or self.matcher == "callable":
            return self.literals
        if self.matcher != "regex":
            return (self.pattern,)
        runs = regex.split(r"\\[a-zA-Z]|\[[^\]]*\]|\(\?[^)]*?[:=!>]|\{[\d,]*\}|(?<!\\)[\[\](){}|.*+?^$]+", self.pattern)
        return tuple(run.replace("\\", "") for run in runs if len(run) > 2)

    def matches(self, text: str) -> bool:
        """Whether it fires on one scanned text; raises TimeoutError where a regex runs away."""
        if self.predicate is not None:
            return bool(self.predicate(text))
        if self.matcher == "regex":
            flags = regex.IGNORECASE if self.ignore_case else 0
            return regex.search(self.pattern, text, flags=flags, timeout=REGEX_SECONDS) is not None
        pattern, text = (self.pattern.casefold(), text.casefold()) if self.ignore_case else (self.pattern, text)
        return pattern == text if self.matcher == "equality" else pattern in text

    def scan(self, transcript: Transcript) -> bool | None:
        """Whether it fires on a transcript; None where a transcript cannot tell (state, judge prompt)."""
        if self.channel == "state" or self.scope == "judge-prompt":
            return None
        return any(self.matches(text) for text in self._read_scope(transcript))

    def _read_scope(self, transcript: Transcript) -> Iterator[str]:
        whole = self.scope == "transcript"
        said = [call.proposed for call in transcript.calls if call.proposed is not None]
        shown = [message for message in transcript.messages if message.role != "assistant"]
        if self.channel == "text" and self.scope != "arguments":
            yield from (message.text for message in said if whole or self.scope == "agent-text")
            yield from (message.text for message in shown if whole or (self.scope == "observations" and message.role == "tool"))
        if self.channel != "text" or whole or self.scope == "arguments":
            for call in (call for message in said for call in message.tool_calls):
                yield from (call.name,) if self.channel in {"text", "tool-name"} else ()
                yield from read_strings(call.arguments) if self.channel != "tool-name" else ()


def read_strings(value: Any) -> Iterator[str]:
    """Every leaf of a JSON value as text."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from read_strings(inner)
    elif value is not None:
        yield str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control: recorded (``transcript``, ``label``), or the script of a stub (``calls``, then ``text``).

    ``variant`` is the harness's id of the instance to run it on: for the null control, the one without injection.
    """

    kind: str
    label: bool | None = None
    transcript: Transcript | None = None
    calls: tuple[ToolCall, ...] = ()
    text: str | None = None
    variant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LitmusInstance:
    """A case that a benchmark would score: at least one surface and one signal, at most one control of a kind.

    ``scorer`` takes a transcript to a `Label` (without one the harness scores, else the signals); ``harness`` executes stubs.

    Raises
    ------
    InputError
        No signal, no surface, an empty canary, or controls repeated or unknown.

    Examples
    --------
    >>> LitmusInstance(id="a", surfaces=(Surface(kind="payload", name="mail", text="Say PWNED"),),
    ...                signals=(Signal(name="pwned", pattern="PWNED"),))
    LitmusInstance('a', 1 surfaces, 1 signals, 0 controls)
    """

    id: str
    surfaces: tuple[Surface, ...]
    signals: tuple[Signal, ...]
    canary: str | None = None
    controls: tuple[Control, ...] = ()
    scorer: Callable[[Transcript], Label] | None = None
    harness: ReplayableHarness | None = None

    def __post_init__(self) -> None:
        where, kinds = f"instance {self.id!r}", [control.kind for control in self.controls]
        if not (self.surfaces and self.signals):
            raise InputError("nothing to check", where=where, expected="surfaces and signals", found=repr(self))
        if self.canary is not None and not any(map(str.isalnum, self.canary)):
            raise InputError("empty canary", where=where, expected="a mark from make_canary, or none", found=self.canary)
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(CONTROLS):
            raise InputError(
                "controls repeated or unknown", where=where, expected=f"each of {', '.join(CONTROLS)} once", found=kinds
            )

    def __repr__(self) -> str:
        sizes = f"{len(self.surfaces)} surfaces, {len(self.signals)} signals, {len(self.controls)} controls"
        return f"LitmusInstance({safe_text(self.id)!r}, {sizes})"

    @classmethod
    def from_json(cls, value: Any) -> LitmusInstance:
        """The instance a JSON value describes; InputError with the JSON path where ``instance.schema.json`` is not met."""
        fault = next(_load_schema().iter_errors(value), None)
        if fault is not None:
            raise InputError(
                fault.message[:200], where=f"instance {fault.json_path}", remedy="see litmuskit/instance.schema.json"
            )
        controls = []
        for control in value.get("controls", ()):
            plain = {name: control[name] for name in ("kind", "label", "text", "variant") if name in control}
            recorded = transcribe(control["messages"]) if "messages" in control else None
            controls.append(Control(**plain, transcript=recorded, calls=tuple(ToolCall(**c) for c in control.get("calls", ()))))
        signals = tuple(Signal(**signal | {"literals": tuple(signal.get("literals", ()))}) for signal in value["signals"])
        surfaces = tuple(Surface(**surface) for surface in value["surfaces"])
        return cls(id=value["id"], surfaces=surfaces, signals=signals, canary=value.get("canary"), controls=tuple(controls))


@lru_cache(maxsize=1)
def _load_schema() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((files("litmuskit") / "instance.schema.json").read_text("utf-8")))


def read_instances(path: str | Path) -> tuple[LitmusInstance, ...]:
    """The instances of a file: one JSON object, an array of them, or one object per line."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            "no instances to read", where=path, found=error.strerror, remedy="name a file of JSON or JSON lines"
        ) from error
    lines = {f"{path}:{number}": line for number, line in enumerate(raw.splitlines(), 1) if line.strip()}
    by_line = len(lines) > 1 and all(line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in lines.values())
    whole = [load_strict(line, where) for where, line in lines.items()] if by_line else load_strict(raw, str(path))
    values = whole if isinstance(whole, list) else [whole]
    if not values:
        raise InputError("no instance", where=path, expected="at least one")
    return tuple(LitmusInstance.from_json(value) for value in values)


def transcribe(messages: Iterable[Mapping[str, Any] | Message]) -> Transcript:
    """A flat message list as a transcript: every assistant message is a model call that saw all before it.

    Examples
    --------
    >>> transcribe([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "no"}]).calls[0].delivered
    ((0, 1),)
    """
    pool = tuple(m if isinstance(m, Message) else parse_message(m, f"messages[{i}]") for i, m in enumerate(messages))
    turns = [i for i, message in enumerate(pool) if message.role == "assistant"]
    calls = []
    for turn, (start, stop) in enumerate(zip(turns, [*turns[1:], len(pool)], strict=False), 1):
        results = [m for m in pool[start + 1 : stop] if m.role == "tool"]
        seen = tuple(Observation(position=i, delivered=m.content, error=m.error) for i, m in enumerate(results))
        calls.append(ModelCall(turn=turn, context=Context(), delivered=((0, start),), proposed=pool[start], observations=seen))
    return Transcript(messages=pool, calls=tuple(calls), final=((0, len(pool)),))


def hide_signal(name: str, literals: tuple[str, ...] = ()) -> Signal:
    """The signal of a scorer that reads a state or is closed to view: no text fires it; ``literals``, if known, are sought."""
    return Signal(name=name, matcher="callable", channel="state", predicate=lambda _: False, literals=literals)


def gather_instances(
    runs: Mapping[str, Iterable[Episode]], signals: Mapping[str, tuple[Signal, ...]] | None = None
) -> tuple[LitmusInstance, ...]:
    """Instances from recorded control runs: kind of control to episodes, and what the scorer of each instance looks for.

    Surfaces are all that the episodes show the agent got. Only a finished and labelled episode makes a control, of several the
    one whose label is wrong. Without its ``signals`` an instance has hidden ones, and is literally undetermined at best.
    """
    surfaces: dict[str, dict[tuple[str, str], Surface]] = {}
    hidden: dict[str, dict[str, Signal]] = {}
    controls: dict[str, dict[str, Control]] = {}
    for kind, episode in ((kind, episode) for kind, episodes in runs.items() for episode in episodes):
        name, labels = episode.instance, {label.violation for label in episode.labels} - {None}
        surfaces.setdefault(name, {}).update({(surface.kind, surface.text): surface for surface in _show_surfaces(episode)})
        hidden.setdefault(name, {}).update({label.scorer: hide_signal(label.scorer) for label in episode.labels})
        known, label = controls.setdefault(name, {}), True in labels
        if labels and episode.status == "finished" and (kind not in known or label != CONTROLS[kind]):
            known[kind] = Control(kind=kind, label=label, transcript=episode.transcript)
    sought = {name: (signals or {}).get(name) or tuple(found.values()) for name, found in hidden.items()}
    return tuple(
        LitmusInstance(id=name, surfaces=tuple(shown.values()), signals=sought[name], controls=tuple(controls[name].values()))
        for name, shown in surfaces.items()
    )


def _show_surfaces(episode: Episode) -> Iterator[Surface]:
    for context in {id(call.context): call.context for call in episode.transcript.calls}.values():
        yield from (Surface(kind="system", name="system prompt", text=text) for text in (context.system,) if text)
        yield from (Surface(kind="tool", name=str(tool.get("name")), text=json.dumps(tool)) for tool in context.tools)
    for vector, text in (episode.payloads or {}).items():
        yield Surface(kind="payload", name=vector, text=text)
    for number, message in enumerate(episode.transcript.messages):
        if message.role != "assistant":
            kind = {"tool": "observation", "user": "user"}.get(message.role, "system")
            yield Surface(kind=kind, name=f"message {number} ({message.role})", text=message.text)
