"""Each history the agent was shown, laid beside what it proposed.

Every delivered history is aligned with the one before it: an honest one repeats it and adds the agent's last message and the
results. A place in it belongs to a turn by *position*; call ids recur each turn in real logs and only settle the order of
results inside one turn. Ranges of the pool keep this linear: only what changed is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from litmuskit.artifacts.execution import is_flat, is_same_call
from litmuskit.records import Message, Ranges, Transcript

__all__ = ["Shown", "Slot", "trace_history"]

Slot = tuple[int, int | None]  # a turn and the position of a result in it; None is the agent's own message


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message, new or changed in the input of ``view``, at the place of a turn's proposal (``position`` None) or result.

    ``turn`` is None for a message that an equal one precedes and that stands at no place. ``moved``: the message as it was,
    and the first of those that this input shows in another order.
    """

    turn: int | None
    position: int | None
    view: int
    message: Message
    moved: bool = False


@dataclass(slots=True)
class _Thread:
    """One conversation: the history last shown, whose place each message is, and which turns answered to what."""

    ranges: Ranges = ()
    shown: list[int] = field(default_factory=list)
    slots: list[Slot | None] = field(default_factory=list)
    asked: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def list_answers(self) -> list[int]:
        """The turns that answered to the history as it stands."""
        return self.asked.setdefault((len(self.shown), self.shown[-1]), []) if self.shown else []

    def keep_shared(self, pool: Sequence[Message], ranges: Ranges) -> tuple[list[int], list[Slot | None], list[int]]:
        """Keep what the next input shares with this history; return what stood behind it, its places, and what stands now."""
        kept = 0
        for before, now in zip(self.ranges, ranges, strict=False):
            kept += min(before[1], now[1]) - now[0] if before[0] == now[0] else 0
            if before != now:
                break
        fresh, same = list(_walk(ranges, kept)), 0
        for index, other in zip(self.shown[kept:], fresh, strict=False):  # a reader may number equal messages anew
            if pool[index] != pool[other]:
                break
            same += 1
        old, slots = self.shown[kept + same :], self.slots[kept + same :]
        self.ranges, self.shown[kept:] = ranges, fresh[:same]
        del self.slots[kept + same :]
        return old, slots, fresh[same:]


def trace_history(transcript: Transcript) -> Iterator[Shown]:
    """Every message, new or changed, at the place of a proposal or a result; nothing where no input was logged.

    Sub-agents are followed apart, retries and forks are recognised, and after a summary or a trimmed window only messages
    that still stand where they stood keep their place.
    """
    threads: dict[int, _Thread] = {}
    thread = _Thread()
    views = [(call.turn, call.delivered) for call in transcript.calls]
    for view, ranges in () if is_flat(transcript) else [*views, (len(views) + 1, transcript.final)]:
        first = next(_walk(ranges or (), 0), None)
        if ranges is None or first is None:
            continue
        if first not in threads:
            known, head = set(thread.shown), transcript.messages[first]
            continues = known and (head == transcript.messages[thread.shown[0]] or not known.isdisjoint(_walk(ranges, 0)))
            threads[first] = thread if continues else _Thread()
        thread = threads[first]
        yield from _advance(transcript, thread, view, ranges)
        if view <= len(views):
            thread.list_answers().append(view)


def _walk(ranges: Ranges, skip: int) -> Iterator[int]:
    for start, stop in ranges:
        yield from range(min(start + skip, stop), stop)
        skip = max(skip - (stop - start), 0)


def _advance(transcript: Transcript, thread: _Thread, view: int, ranges: Ranges) -> Iterator[Shown]:
    """Take the input of ``view`` in: old messages keep their places, behind them stand a proposal and its results."""
    pool, shown, answers = transcript.messages, thread.shown, thread.list_answers()
    old, slots, fresh = thread.keep_shared(pool, ranges)
    if order := _find_order(pool, old, slots, fresh):
        struck = next((n for n, place in enumerate(order) if n != place and slots[n]), 0)
        turn, position = slots[struck] or (None, None)
        yield Shown(turn=turn, position=position, view=view, message=pool[old[struck]], moved=True)
        fresh[: len(old)] = old
    placed, stood = _align(transcript, answers, old, slots, fresh), dict(zip(slots, old, strict=True))
    has_answer, opened = False, None
    for offset, index in enumerate(fresh):
        message, is_new = pool[index], offset >= len(placed)
        slot = None if is_new else placed[offset]
        if opened and message.role == "tool":
            slot = opened.place_result(message)
        elif opened and opened.precedes(message) and any(pool[earlier] == message for earlier in shown):
            slot = opened.turn, None  # an earlier message between a proposal and its results
        elif message.role == "assistant":
            opened = None
            if stood.get(slot) != index if slot else is_new and not has_answer:
                opened = _open_turn(transcript, message, thread.list_answers(), answers if is_new else None)
                if opened:
                    has_answer, slot = True, (opened.turn, None)
        if slot is not None and stood.get(slot) != index:
            yield Shown(turn=slot[0], position=slot[1], view=view, message=message)
        elif slot is None and is_new and answers and message.role != "user" and any(pool[i] == message for i in shown[-8:]):
            yield Shown(turn=None, position=None, view=view, message=message)
        shown.append(index)
        thread.slots.append(slot)


@dataclass(slots=True)
class _OpenTurn:
    """The proposal that stands last: the ids of its calls as shown and as proposed, and which results stand behind it."""

    transcript: Transcript
    turn: int
    ids: tuple[list[str | None], ...]
    taken: list[int] = field(default_factory=list)

    def place_result(self, message: Message) -> Slot | None:
        """The place of the next result: of the first open call of its id, else by its number; None where that is taken."""
        named = ([n for n, given in enumerate(ids) if given == message.tool_call_id] for ids in self.ids)
        places = next(filter(None, named), [len(self.taken)])
        position = next((place for place in places if place not in self.taken), places[-1])
        is_free = position < len(self.ids[0]) and position not in self.taken
        self.taken.append(position)
        return (self.turn, position) if is_free else None

    def precedes(self, message: Message) -> bool:
        """Whether ``message`` stands where the first result should, and is not the proposal said again."""
        return message.role == "assistant" and not self.taken and not _find_answer(self.transcript, message, [self.turn])


def _open_turn(transcript: Transcript, message: Message, own: Sequence[int], new: Sequence[int] | None) -> _OpenTurn | None:
    """The turn a message was proposed at: of ``own``, which answered to what stands before it; a new one also of ``new``."""
    turns = [*own, *(new or ())]
    turn = _find_answer(transcript, message, turns) or (turns[-1] if new is not None and turns and message.tool_calls else None)
    if turn is None:
        return None
    both = message, transcript.calls[turn - 1].proposed or message
    return _OpenTurn(transcript, turn, tuple([call.id for call in one.tool_calls] for one in both))


def _find_order(pool: Sequence[Message], old: list[int], slots: list[Slot | None], fresh: list[int]) -> list[int]:
    """The places in ``old`` of the first messages of ``fresh`` where these are the same, turns in another order; else none."""
    if len(fresh) <= len(old) or pool[fresh[len(old)]].role != "assistant":
        return []  # nothing new behind them: a window, whose dropped messages were said again
    left, order = list(enumerate(old)), list[int]()
    for index in fresh[: len(old)]:
        found = next((n for n, (_, other) in enumerate(left) if index == other or pool[index] == pool[other]), None)
        if found is None:
            return []
        order.append(left.pop(found)[0])
    turns = [slot and slot[0] for slot in slots]
    return order if [turns[place] for place in order] != turns else []


def _align(
    transcript: Transcript, answers: Sequence[int], old: list[int], slots: list[Slot | None], fresh: list[int]
) -> list[Slot | None]:
    """The places of those first messages of ``fresh`` that stand for messages of ``old``; what follows them is new.

    Messages of the same number are anchors, equal ones at the same distance too (a pool may give an equal message its number);
    as many messages of the same roles between two anchors are the old ones, edited.
    """
    roles = {index: transcript.messages[index].role for index in (*old, *fresh)}
    where = {index: place for place, index in reversed(list(enumerate(old)))}
    placed: list[Slot | None] = []
    done = 0

    def fit(place: int, gap: list[int]) -> list[Slot | None]:
        alike = [roles[index] for index in old[done:place]] == [roles[index] for index in gap]
        return slots[done:place] if alike else [None] * len(gap)

    is_shared = not where.keys().isdisjoint(fresh)  # else a reader numbers every list anew

    def stands(place: int, offset: int) -> bool:
        pairs = zip(old[place : place + 1], fresh[offset : offset + 1], strict=False)
        return any(is_shared and transcript.messages[one] == transcript.messages[other] for one, other in pairs)

    for offset, index in enumerate(fresh):
        if index not in where and _find_answer(transcript, transcript.messages[index], answers):
            break  # behind a new proposal stands nothing old, though a pool may hold an equal message
        beside = done + offset - len(placed)
        is_edit = roles[index] == "tool" and stands(beside + 1, offset + 1)
        place = beside if stands(beside, offset) else -1 if is_edit else where.get(index, -1)
        if place >= done:
            placed += [*fit(place, fresh[len(placed) : offset]), slots[place]]
            done = place + 1
    rest = fresh[len(placed) :]
    ends = [n for n, index in enumerate(rest) if _find_answer(transcript, transcript.messages[index], answers)]
    left = len(old) - done
    found = fit(len(old), rest[: next((n for n in ends if n >= left), ends[-1]) if ends else left])
    return placed + (found if ends or found == slots[done:] else [None] * len(rest))


def _find_answer(transcript: Transcript, message: Message, turns: Sequence[int]) -> int | None:
    """The latest of ``turns`` that proposed just this message, call ids apart."""
    for turn in reversed(turns) if message.role == "assistant" else ():
        proposed = transcript.calls[turn - 1].proposed
        if proposed is not None and len(proposed.tool_calls) == len(message.tool_calls):
            same = all(map(is_same_call, proposed.tool_calls, message.tool_calls))
            if same and (message.tool_calls or message.text == proposed.text):
                return turn
    return None
