"""By which a harness's maintainer emits ``litmuskit-log/1``.

Everything is recorded as it is *at the moment of the call*. A message that the harness edits in place afterwards is, when it
is shown again, another message: a late edit stands in the log, it does not rewrite the log's past.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, BinaryIO, Self

from litmuskit import records
from litmuskit.errors import InputError
from litmuskit.messages import parse_message
from litmuskit.readers.jsonl import FORMAT, encode_episode, encode_line
from litmuskit.readers.shapes import parse_at, parse_fields, parse_record

__all__ = ["EpisodeRecorder", "Recorder", "TurnRecorder"]

_BUILT = frozenset({"source", "transcript", "labels", "harness"})  # by the recorder, not by its caller
_NAMED = frozenset({"record", "instance"})
_AROUND = frozenset({"system", "tools", "opts", "decode"})


class Recorder:
    """Write a log while a harness runs: one line per episode, as soon as it ends; episodes may run side by side in threads.

    Parameters
    ----------
    path : path
        A new file; a log is never written over.
    harness : str or Harness
        Who produces the log; ``identity`` are further fields of `Harness` (``version``, ``benchmark``, ``model``,
        ``source``, ``policies`` as a mapping of mutation, truncation, normalizers to `Policy` or its fields).

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with Recorder(path, harness="mine", version="1.0") as rec, rec.episode("case-1", payloads={"mail": "pay me"}) as ep:
    ...     ep.context(system="You are a mail agent.", tools=[{"name": "read", "parameters": {}}], opts={})
    ...     turn = ep.turn([{"role": "user", "content": "What is new?"}])
    ...     call = {"id": "c1", "name": "read", "arguments": {}}
    ...     turn.propose({"role": "assistant", "content": "", "tool_calls": [call]})
    ...     turn.observe(call, raw="pay me", delivered="pay me")
    ...     ep.label("obeyed", violation=False, match_key="state")
    >>> len(path.read_bytes().splitlines())
    3
    """

    def __init__(self, path: str | Path, harness: str | records.Harness, **identity: Any) -> None:
        if isinstance(harness, records.Harness) and identity:
            raise InputError("identity is given twice", where="harness", found=sorted(identity))
        fields = {"name": harness, **identity} if isinstance(harness, str) else harness
        self.path, self._begun, self._count, self._lock = Path(path), 0, 0, Lock()
        self.harness: records.Harness = parse_at("harness", parse_record, records.Harness, fields)
        try:
            self._stream: BinaryIO = self.path.open("xb")
        except FileExistsError:
            raise InputError("a log is never written over", where=self.path, remedy="name a new file") from None
        self._write(encode_line({"type": FORMAT, "harness": self.harness}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._begun == self._count:  # else an episode could not be written, and the log reads as what it is: cut
            self._write(encode_line({"type": "end", "episodes": self._count}))
        self._stream.close()

    @contextmanager
    def episode(self, instance: str, *, epoch: int = 1, **facts: Any) -> Iterator[EpisodeRecorder]:
        """Record one episode; an exception inside it becomes its status and error, and passes on.

        ``facts`` are further fields of `Episode`: ``payloads``, ``carriers``, ``attacked``, ``groups``, ``metadata``, ...;
        ``run``, which tells this execution from every other, is drawn at random unless given;
        ``events=()`` says that the harness declares every alteration it makes, so that none declared means none made.
        """
        named = {"record": f"{instance}#{epoch}", "instance": instance, "epoch": epoch, "run": token_hex(16)}
        with self._lock:
            self._begun += 1
        episode = EpisodeRecorder({**named, **facts})
        try:
            yield episode
        except BaseException as error:
            status = "errored" if isinstance(error, Exception) else "cancelled"
            episode.add_facts(status=status, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            line = encode_episode(episode.build(records.Source(path=str(self.path)), self.harness), self.harness)
            with self._lock:
                self._write(line)
                self._count += 1

    def _write(self, line: bytes) -> None:
        self._stream.write(line)
        self._stream.flush()


class EpisodeRecorder:
    """One episode while it runs; made by `Recorder.episode`."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts: dict[str, Any] = {}
        self._pool: list[records.Message] = []
        self._places: dict[bytes, list[int]] = {}
        self._around: dict[str, Any] = {}
        self._turns: list[TurnRecorder] = []
        self._labels: list[records.Label] = []
        self._final: records.Ranges | None = None
        self._unlogged: set[str] = set()
        self.add_facts(**facts)

    def add_facts(self, **facts: Any) -> None:
        """Set fields of the `Episode`, such as ``status="limited", limit="messages"``."""
        if facts.keys() & _BUILT:
            raise InputError("is recorded, not given", where="episode", found=sorted(facts.keys() & _BUILT))
        self._facts |= parse_at("episode", parse_fields, records.Episode, _list_all(facts), _BUILT | _NAMED)

    def context(self, **around: Any) -> None:
        """What surrounds the messages from here on: ``system``, ``tools``, ``opts``, ``decode``; one left out is not logged."""
        self._around |= parse_at("context", parse_fields, records.Context, _copy(_list_all(around)))

    def turn(self, messages: Sequence[Any] | None, *, cached: bool | None = None) -> TurnRecorder:
        """Begin a model call that is shown ``messages`` (None: not logged); a leading system message is the system prompt."""
        around, delivered = dict(self._around), self._place(messages)
        first = self._pool[delivered[0][0]] if delivered else None
        if delivered and first and first.role == "system" and around.setdefault("system", first.text) == first.text:
            delivered = ((delivered[0][0] + 1, delivered[0][1]), *delivered[1:])
        self._unlogged |= _AROUND - around.keys()
        context = records.Context(**around)
        self._turns.append(TurnRecorder(turn=len(self._turns) + 1, context=context, delivered=delivered, cached=cached))
        return self._turns[-1]

    def final(self, messages: Sequence[Any]) -> None:
        """The history as it stands after the last turn."""
        self._final = self._place(messages)

    def event(self, kind: str, **facts: Any) -> None:
        """Declare an alteration the harness made, in the current turn by default; ``facts`` are further fields of `Event`."""
        found = {"kind": kind, "turn": len(self._turns) or None, **facts}
        self._facts["events"] = (*(self._facts.get("events") or ()), parse_at("event", parse_record, records.Event, found))

    def mutation(self, **facts: Any) -> None:
        """Declare that the stimulus was mutated; ``facts`` as in `event`."""
        self.event("mutation", **facts)

    def label(self, scorer: str, violation: bool | None, **facts: Any) -> None:
        """A scorer's judgement; ``facts`` are further fields of `Label`: ``match_key``, ``turn``, ``value``, ``reason``, ..."""
        found = {"scorer": scorer, "violation": violation, **facts}
        self._labels.append(parse_at("label", parse_record, records.Label, found))

    def build(self, source: records.Source, harness: records.Harness) -> records.Episode:
        """The episode as recorded so far."""
        calls = tuple(turn.build() for turn in self._turns)
        ran = [observed for call in calls for observed in call.observations if observed.executed is not False]
        missing = {
            "delivered": any(call.delivered is None for call in calls),
            "executed": any(observed.executed is None or observed.call is None for observed in ran),
            "returned": any(observed.raw is None and observed.error is None for observed in ran),
            "final": self._final is None,
        }
        unlogged = frozenset(self._unlogged | {name for name, holds in missing.items() if holds})
        transcript = records.Transcript(messages=tuple(self._pool), calls=calls, final=self._final, unlogged=unlogged)
        return records.Episode(source=source, harness=harness, transcript=transcript, labels=tuple(self._labels), **self._facts)

    def _place(self, messages: Sequence[Any] | None) -> records.Ranges | None:
        """Each message's place in the pool: that of an equal one which this list does not show yet, else a new one."""
        if messages is None:
            return None
        placed: dict[int, None] = {}
        for message in messages:
            snapshot = _snapshot(message)
            places = self._places.setdefault(snapshot, [])
            place = next((place for place in places if place not in placed), len(self._pool))
            if place == len(self._pool):
                self._pool.append(parse_message(marshal.loads(snapshot), f"message {place}"))  # noqa: S302  # our own bytes
                places.append(place)
            placed[place] = None
        order = list(placed)
        cuts = [i for i in range(len(order) + 1) if i in {0, len(order)} or order[i] != order[i - 1] + 1]
        return tuple((order[a], order[b - 1] + 1) for a, b in pairwise(cuts))


class TurnRecorder:
    """One model call while it runs; made by `EpisodeRecorder.turn`."""

    def __init__(self, **facts: Any) -> None:
        self._facts = facts
        self._proposed: records.Message | None = None
        self._observations: list[records.Observation] = []

    def propose(self, message: Any, *, stop: str | None = None, error: str | None = None) -> None:
        """What the model returned: a chat message, or None for nothing."""
        self._proposed = None if message is None else parse_message(_copy(message), "proposed")
        self._facts |= {"stop": stop, "error": error}

    def observe(self, call: Any, *, executed: bool | None = True, **facts: Any) -> None:
        """What came of one call of the proposal: found there by id, else in order.

        ``call`` is the call *as executed*, or only its id or its position (what was executed is then not logged); ``facts``
        are further fields of `Observation`: ``raw``, ``delivered``, ``error``, ``truncation`` (or a mapping of its fields).
        """
        taken = {observed.position for observed in self._observations}
        left = [(i, c) for i, c in enumerate(self._proposed.tool_calls if self._proposed else ()) if i not in taken]
        ran = None
        if isinstance(call, int):
            same = [i for i, _ in left if i == call]
        elif isinstance(call, str):
            same = [i for i, proposed in left if proposed.id == call]
        else:
            ran = parse_message({"role": "assistant", "tool_calls": [_copy(call)]}, "observed").tool_calls[0]
            same = [i for i, proposed in left if proposed.id == ran.id and (ran.id or proposed.name == ran.name)]
        found = {"position": same[0] if same else None, "executed": executed, "call": None if executed is False else ran}
        kept = {name: _copy(value) if isinstance(value, list) else value for name, value in facts.items()}
        self._observations.append(parse_at("observation", parse_record, records.Observation, found | kept))

    def build(self) -> records.ModelCall:
        """The model call as recorded so far."""
        return records.ModelCall(proposed=self._proposed, observations=tuple(self._observations), **self._facts)


def _snapshot(found: Any) -> bytes:
    """Plain values frozen as bytes; models of SDKs are dumped first."""
    plain = found.model_dump() if hasattr(found, "model_dump") else found
    try:
        return marshal.dumps(plain, 2)
    except ValueError:  # mappings, lists or text of a class of their own
        try:
            return marshal.dumps(json.loads(json.dumps(plain)), 2)
        except (TypeError, ValueError) as error:
            raise InputError(f"not plain data ({error})", where="recorder", expected="mappings, lists, text, numbers") from None


def _list_all(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in facts.items()}


def _copy(found: Any) -> Any:
    return marshal.loads(_snapshot(found))  # noqa: S302  # our own bytes
