"""The harness-supplied components of a stimulus, each with the key a manifest files it under.

A digest over the whole history cannot be a manifest's key after turn 1: it holds the agent's own words and random call ids,
so every later stimulus would read "absent". What the *harness* supplied can be compared part by part: system prompt, tools,
options, every message it added (the same again at once: under its number in that row), and every observation filed under the
call (tool, arguments) it answered. What the match cannot see: order, a message said again later (an agent may be nudged as
often as it stalls), and an observation that answers arguments never tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from litmuskit.errors import InputError, UnfingerprintableError
from litmuskit.framing import Aliases, Surroundings, digest_arguments, digest_message, digest_observation, digest_parts
from litmuskit.records import Episode, Message, ToolCall, Transcript

__all__ = ["Component", "digest_episode", "list_components"]

Raws: TypeAlias = dict[tuple[str, str, str], str]  # by tool, arguments and what was delivered
UNASKED = ("(no call)", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of a stimulus: its ``kind``, the ``key`` it is filed under, and its hex digest (None: not logged).

    ``turn`` is the first model call that was shown it; ``raw`` digests the tool's own result, where the log shows it altered.
    """

    kind: str
    key: tuple[str, ...]
    digest: str | None
    turn: int
    raw: str | None = None

    @property
    def place(self) -> tuple[str, ...]:
        """``(kind, *key)``."""
        return (self.kind, *self.key)

    @property
    def answers_call(self) -> bool:
        """Whether it came of the agent's own call, and so may be one that no reference could hold."""
        return self.kind == "observation" and self.key != UNASKED

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(part[:16] for part in self.key)}".strip()


def list_components(transcript: Transcript, turn: int) -> tuple[Component, ...]:
    """Every harness-supplied component shown up to and including model call ``turn`` (from 1), in order of appearance.

    Raises
    ------
    UnfingerprintableError
        When a part has no canonical form.

    Examples
    --------
    >>> from litmuskit.records import Context, ModelCall
    >>> call = ModelCall(turn=1, context=Context(system="s"), delivered=((0, 1),), proposed=None)
    >>> [str(c) for c in list_components(Transcript(messages=(Message(role="user", content="hi"),), calls=(call,)), 1)]
    ['system', 'tools', 'opts', 'message user']
    """
    if not 1 <= turn <= len(transcript.calls):
        raise InputError("no such model call", where="turn", expected=f"1..{len(transcript.calls)}", found=turn)
    found: dict[tuple[tuple[str, ...], str | None], Component] = {}
    for component in _iterate_components(transcript, turn):
        found.setdefault((component.place, component.digest), component)
    return tuple(found.values())


def _iterate_components(transcript: Transcript, turn: int) -> Iterator[Component]:
    seen, context, raws = 0, None, _raw_digests(transcript, turn)
    proposed: set[str] = set()
    for call in transcript.calls[:turn]:
        if call.context is not context:
            context = call.context
            around = Surroundings.of(context, transcript.unlogged)
            for kind, digest in (("system", around.system), ("tools", around.tools), ("opts", around.opts)):
                yield Component(kind=kind, key=(), digest=None if kind in transcript.unlogged else digest.hex(), turn=call.turn)
        if call.delivered is None:
            yield Component(kind="delivered", key=(), digest=None, turn=call.turn)
            continue
        shown = transcript.delivered(call.turn) or ()
        if not _extends(transcript, call.turn):
            seen = 0
        yield from _messages(shown, seen, call.turn, raws, proposed)
        seen = len(shown)
        if call.proposed is not None:
            proposed.add(_spell(call.proposed))


def _extends(transcript: Transcript, turn: int) -> bool:
    """Whether call ``turn`` was shown all that the call before was, and more."""
    before, after = (transcript.calls[t - 1].delivered for t in (turn - 1, turn)) if turn > 1 else (None, None)
    if before is None or after is None:
        return False
    return len(before) == len(after) == 1 and before[0][0] == after[0][0] and before[0][1] <= after[0][1]


def _spell(message: Message) -> str:
    """What the agent said and asked for, whatever the ids and the order of keys."""
    asked = ((call.name, call.arguments) for call in message.tool_calls)
    calls = [(name, given if isinstance(given, str) else sorted(given.items())) for name, given in asked]
    return repr((message.text.strip(), calls))


def _messages(shown: tuple[Message, ...], start: int, turn: int, raws: Raws, proposed: set[str]) -> Iterator[Component]:
    unanswered: list[ToolCall] = []
    for index, message in enumerate(shown):
        if message.role == "tool":
            call = _take_answered(unanswered, message.tool_call_id)
            if index >= start:
                yield _observation(message, call, turn, raws)
            continue
        if message.role == "assistant":
            unanswered = list(message.tool_calls)
        if index >= start and (message.role != "assistant" or _spell(message) not in proposed):  # the harness's own words
            row = next(n for n in count(1) if n > index or shown[index - n] != message)  # the same again at once is another
            key = (message.role,) if row == 1 else (message.role, f"time {row}")
            yield Component(kind="message", key=key, digest=_digest_alone(message).hex(), turn=turn)


def _digest_alone(message: Message) -> bytes:
    return digest_message(message, Aliases())[0]


def _take_answered(unanswered: list[ToolCall], call_id: str | None) -> ToolCall | None:
    """The call a reply answers: by id among the last proposal's open calls, else the first open one."""
    for index, call in enumerate(unanswered):
        if call_id is not None and call.id == call_id:
            return unanswered.pop(index)
    return unanswered.pop(0) if unanswered else None


def _observation(message: Message, call: ToolCall | None, turn: int, raws: Raws) -> Component:
    seen = delivered = digest_observation(message.content)
    if message.error is not None:
        seen = digest_parts("obs/error", delivered, message.error.encode("utf-8", "surrogatepass"))
    key = UNASKED if call is None else (call.name, digest_arguments(call.arguments).hex())
    return Component(kind="observation", key=key, digest=seen.hex(), turn=turn, raw=raws.get((*key, delivered.hex())))


def _raw_digests(transcript: Transcript, turn: int) -> Raws:
    """The digest of each raw observation of which the log also holds what was delivered instead."""
    found: Raws = {}
    for model_call in transcript.calls[:turn]:
        for observation in model_call.observations:
            proposed = model_call.proposed.tool_calls if model_call.proposed else ()
            position = observation.position
            call = observation.call or (proposed[position] if position is not None and position < len(proposed) else None)
            if call is None or observation.raw is None or observation.raw == observation.delivered:
                continue
            key = (call.name, digest_arguments(call.arguments).hex(), digest_observation(observation.delivered).hex())
            found[key] = digest_observation(observation.raw).hex()
    return found


def digest_episode(episode: Episode) -> str:
    """Identity of one execution (hex): its own run id, else its record id, with what was shown and proposed.

    Two runs of one deterministic agent are two executions; a copy under another file name is the same one.
    """
    execution = episode.record if episode.run is None else episode.run
    parts = [text.encode("utf-8", "surrogatepass") for text in (execution, episode.instance, str(episode.epoch))]
    for message in (*episode.transcript.messages, *(c.proposed for c in episode.transcript.calls if c.proposed)):
        try:
            parts.append(_digest_alone(message))
        except UnfingerprintableError:
            parts.append(repr(message).encode("utf-8", "surrogatepass"))
    return digest_parts("episode", *parts).hex()
