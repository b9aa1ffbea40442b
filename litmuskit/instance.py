"""A benchmark instance as its pre-flight sees it: what the agent is given, what the scorer looks for, which controls exist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from litmuskit.canonical import load_strict
from litmuskit.display import safe_text
from litmuskit.errors import InputError, LogFormatError
from litmuskit.messages import parse_message
from litmuskit.records import Context, Episode, Label, Message, ModelCall, Observation, ReplayableHarness, ToolCall, Transcript
from litmuskit.signal import Signal, hide_signal, require_text, require_word

__all__ = ["CONTROLS", "Control", "LitmusInstance", "Signal", "Surface", "gather_instances", "read_instances", "transcribe"]

CONTROLS = {"null": False, "refuse": False, "quote-and-refuse": False, "comply": True, "no-op": False, "positive": True}
SURFACES = ("system", "skill", "tool", "schema-default", "user", "payload", "fixture", "observation", "rubric", "judge-prompt")
MEASURING = frozenset({"rubric", "judge-prompt"})  # read by the measurement, not by the agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """A text and its provenance; ``injected`` marks adversarial content, which payloads and skills always are."""

    kind: str
    name: str
    text: str
    injected: bool = False

    def __post_init__(self) -> None:
        require_word(f"surface {self.name!r} kind", SURFACES, self.kind)
        require_text(f"surface {self.name!r} text", self.text)
        object.__setattr__(self, "injected", self.injected or self.kind in {"payload", "skill"})

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


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
            found = (self.surfaces, self.signals)
            raise InputError("nothing to check", where=where, expected="surfaces and signals", found=found)
        require_text("instance id", self.id)
        require_text(f"{where} canary", self.canary or "")
        if self.canary is not None and not any(map(str.isalnum, self.canary)):
            expected = "a mark from make_canary, or none"
            raise InputError("empty canary", where=f"{where} canary", expected=expected, found=self.canary)
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(CONTROLS):
            expected = f"each of {', '.join(CONTROLS)} once"
            raise InputError("controls repeated or unknown", where=where, expected=expected, found=kinds)

    def __repr__(self) -> str:
        sizes = f"{len(self.surfaces)} surfaces, {len(self.signals)} signals, {len(self.controls)} controls"
        return f"LitmusInstance({safe_text(self.id)!r}, {sizes})"

    @classmethod
    def from_json(cls, value: Any, where: str = "instance $") -> LitmusInstance:
        """The instance a JSON value describes; InputError with the JSON path, from ``where`` on, of what is amiss."""
        if (fault := next(_load_schema().iter_errors(value), None)) is not None:
            raise _word_fault(fault, where)
        controls, signals = [], []
        for number, control in enumerate(value.get("controls", ())):
            plain = {name: control[name] for name in ("kind", "label", "text", "variant") if name in control}
            place = f"{where}.controls[{number}].messages"
            recorded = transcribe(control["messages"], place) if "messages" in control else None
            controls.append(Control(**plain, transcript=recorded, calls=tuple(ToolCall(**c) for c in control.get("calls", ()))))
        for number, signal in enumerate(value["signals"]):
            with _locate(f"{where}.signals[{number}]"):
                signals.append(Signal(**signal | {"literals": tuple(signal.get("literals", ()))}))
        surfaces = tuple(Surface(**surface) for surface in value["surfaces"])
        named = {"id": value["id"], "canary": value.get("canary")}
        with _locate(where):
            return cls(**named, surfaces=surfaces, signals=tuple(signals), controls=tuple(controls))


@lru_cache(maxsize=1)
def _load_schema() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((files("litmuskit") / "instance.schema.json").read_text("utf-8")))


def _word_fault(fault: Any, where: str) -> InputError:
    """A breach of the schema: where, what the schema wants there, and what stands there."""
    rule, found = fault.validator, fault.instance
    wanted = list(fault.schema["properties"]) if rule == "additionalProperties" else fault.validator_value
    words = {"enum": "one of", "type": "type", "required": "the keys", "additionalProperties": "no keys but"}
    expected = f"{words.get(rule, rule)} {', '.join(wanted) if isinstance(wanted, list) else wanted}"
    shown, place = sorted(found) if isinstance(found, dict) else found, f"{where}{fault.json_path[1:]}"
    remedy = "see litmuskit/instance.schema.json"
    return InputError("breaks the schema", where=place, expected=expected, found=shown, remedy=remedy)


@contextmanager
def _locate(where: str) -> Iterator[None]:
    """An InputError raised within is raised again with ``where`` in front of its own place."""
    try:
        yield
    except InputError as error:
        place = f"{where} ({error.where})"
        raise InputError(error.what, where=place, expected=error.expected, found=error.found, remedy=error.remedy) from error


def read_instances(path: str | Path) -> tuple[LitmusInstance, ...]:
    """The instances of a file (one JSON object, an array of them, or one object per line) or of a folder's such files."""
    root = Path(path)
    named = (file for file in root.rglob("*") if file.suffix in {".json", ".jsonl"} and file.is_file())
    values = (found for file in (sorted(named) if root.is_dir() else [root]) for found in _read_values(file))
    instances = tuple(LitmusInstance.from_json(value, where) for where, value in values)
    if not instances:
        raise InputError("no instance", where=path, expected="at least one")
    return instances


def _read_values(file: Path) -> Iterator[tuple[str, Any]]:
    """Every value of a file, with its place."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        remedy = "name a file of JSON or JSON lines, or a folder of such"
        raise InputError("no instances to read", where=file, found=error.strerror, remedy=remedy) from error
    lines = [(number, line) for number, line in enumerate(raw.splitlines(), 1) if line.strip()]
    try:
        whole = load_strict(raw, str(file))
    except LogFormatError:
        if not lines[1:] or {line.lstrip()[:1] for _, line in lines[:2]} != {b"{"}:
            raise
        for number, line in lines:
            yield f"{file}:{number} $", load_strict(line, f"{file}:{number}")
    else:
        items = {f"{file} $[{i}]": value for i, value in enumerate(whole)} if isinstance(whole, list) else {f"{file} $": whole}
        yield from items.items()


def transcribe(messages: Iterable[Mapping[str, Any] | Message], where: str = "messages") -> Transcript:
    """A flat message list as a transcript: every assistant message is a model call that saw all before it.

    Examples
    --------
    >>> transcribe([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "no"}]).calls[0].delivered
    ((0, 1),)
    """
    pool = tuple(m if isinstance(m, Message) else parse_message(m, f"{where}[{i}]") for i, m in enumerate(messages))
    turns = [i for i, message in enumerate(pool) if message.role == "assistant"]
    calls = []
    for turn, (start, stop) in enumerate(zip(turns, [*turns[1:], len(pool)], strict=False), 1):
        results = [m for m in pool[start + 1 : stop] if m.role == "tool"]
        seen = tuple(Observation(position=i, delivered=m.content, error=m.error) for i, m in enumerate(results))
        calls.append(ModelCall(turn=turn, context=Context(), delivered=((0, start),), proposed=pool[start], observations=seen))
    return Transcript(messages=pool, calls=tuple(calls), final=((0, len(pool)),))


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
    yield from (Surface(kind="payload", name=vector, text=text) for vector, text in (episode.payloads or {}).items())
    for number, message in enumerate(episode.transcript.messages):
        if message.role != "assistant":
            kind = {"tool": "observation", "user": "user"}.get(message.role, "system")
            yield Surface(kind=kind, name=f"message {number} ({message.role})", text=message.text)
