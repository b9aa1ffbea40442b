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
_Slots = list[Slot | None]  # of messages; None is a message at no place


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
    slots: _Slots = field(default_factory=list)
    asked: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def list_answers(self) -> list[int]:
        """The turns that answered to the history as it stands."""
        return self.asked.setdefault((len(self.shown), self.shown[-1]), []) if self.shown else []

    def keep_shared(self, pool: Sequence[Message], ranges: Ranges) -> tuple[list[int], _Slots, list[int]]:
        """Keep what the next input shares with this history; return what stood behind it, its places, and what stands now."""
        most = min(len(self.ranges), len(ranges))
        like = max(most - 1, 0)  # an honest history only lengthens its last range
        like = like if self.ranges[:like] == ranges[:like] else 0
        while like < most and self.ranges[like] == ranges[like]:
            like += 1
        part = 0
        if like < most and self.ranges[like][0] == ranges[like][0]:
            part = min(self.ranges[like][1], ranges[like][1]) - ranges[like][0]
        kept = len(self.shown) - sum(stop - start for start, stop in self.ranges[like:]) + part
        fresh, same = list(_walk(ranges[like:], part)), 0
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
    pool, answers = transcript.messages, thread.list_answers()
    old, slots, fresh = thread.keep_shared(pool, ranges)
    end = _find_tail(pool, old, fresh)
    head, changed = old[:end], fresh[:end] if end < len(old) else fresh
    is_window = len(fresh) <= len(old) or pool[fresh[len(old)]].role != "assistant"  # what it dropped was said again
    if order := [] if is_window else _find_order(pool, head, slots, changed):
        struck = next((n for n, place in enumerate(order) if n != place and slots[n]), 0)
        turn, position = slots[struck] or (None, None)
        yield Shown(turn=turn, position=position, view=view, message=pool[old[struck]], moved=True)
        fresh[:end] = changed[:end] = head
    is_shared = end < len(old) or not set(old).isdisjoint(fresh)  # else a reader numbers every list anew
    placed = _align(transcript, answers, head, slots[:end], changed, is_shared=is_shared) + slots[end:]
    step = _Step(transcript, thread, view, answers, placed, dict(zip(slots[:end], old, strict=False)))
    yield from filter(None, map(step.take, range(end), fresh))
    thread.shown += old[end:]
    thread.slots += slots[end:]
    yield from filter(None, map(step.take, range(len(old), len(fresh)), fresh[len(old) :]))


@dataclass(slots=True)
class _Step:
    """Messages of one input taken in one by one: ``placed`` where they stand, ``stood`` what stood there before."""

    transcript: Transcript
    thread: _Thread
    view: int
    answers: list[int]
    placed: _Slots
    stood: dict[Slot | None, int]
    opened: _OpenTurn | None = None
    has_answer: bool = False

    def take(self, offset: int, index: int) -> Shown | None:
        """The next message; told where it is new, or other than what stood at its place."""
        pool, shown, opened = self.transcript.messages, self.thread.shown, self.opened
        message, is_new = pool[index], offset >= len(self.placed)
        slot = None if is_new else self.placed[offset]
        if opened and message.role == "tool":
            slot = opened.place_result(message)
        elif opened and opened.precedes(message) and any(pool[earlier] == message for earlier in shown):
            slot = opened.turn, None  # an earlier message between a proposal and its results
        elif message.role == "assistant":
            self.opened = None
            if self.stood.get(slot) != index if slot else is_new and not self.has_answer:
                new = self.answers if is_new else None
                self.opened = opened = _open_turn(self.transcript, message, self.thread.list_answers(), new)
                if opened:
                    self.has_answer, slot = True, (opened.turn, None)
        is_told = slot is not None and self.stood.get(slot) != index
        if slot is None and is_new and self.answers and message.role != "user":
            is_told = any(pool[earlier] == message for earlier in shown[-8:])
        turn, position = slot or (None, None)
        shown.append(index)
        self.thread.slots.append(slot)
        return Shown(turn=turn, position=position, view=self.view, message=message) if is_told else None


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


def _find_tail(pool: Sequence[Message], old: list[int], fresh: list[int]) -> int:
    """Behind which of the agent's messages ``fresh`` holds just what ``old`` held there, and holds it nowhere else."""
    end = size = len(old)
    while end >= 64 and old[end - 64 : end] == fresh[end - 64 : end]:
        end -= 64
    while end and len(fresh) >= size and old[end - 1] == fresh[end - 1]:
        end -= 1
    is_clear = end < size and set(old[end:]).isdisjoint((*old[:end], *fresh[:end], *fresh[size:]))
    said = (place for place in range(end, size) if pool[old[place]].role == "assistant")
    return next(said, size - 1) + 1 if is_clear else size


def _find_order(pool: Sequence[Message], old: list[int], slots: _Slots, fresh: list[int]) -> list[int]:
    """The places in ``old`` of the first messages of ``fresh`` where these are the same, turns in another order; else none."""
    left, order = list(enumerate(old)), list[int]()
    for index in fresh[: len(old)]:
        found = next((n for n, (_, other) in enumerate(left) if index == other or pool[index] == pool[other]), None)
        if found is None:
            return []
        order.append(left.pop(found)[0])
    turns = [slot and slot[0] for slot in slots]
    return order if [turns[place] for place in order] != turns else []


def _align(
    transcript: Transcript, answers: Sequence[int], old: list[int], slots: _Slots, fresh: list[int], *, is_shared: bool
) -> _Slots:
    """The places of those first messages of ``fresh`` that stand for messages of ``old``; what follows them is new.

    Messages of the same number are anchors, equal ones at the same distance too (a pool may give an equal message its number);
    as many messages of the same roles between two anchors are the old ones, edited.
    """
    pool = transcript.messages
    if not old:  # an honest history: what stands before its new proposal is not new
        return [None] * next((n for n, index in enumerate(fresh) if _find_answer(transcript, pool[index], answers)), 0)
    roles = {index: pool[index].role for index in (*old, *fresh)}
    where = {index: place for place, index in reversed(list(enumerate(old)))}
    placed: _Slots = []
    done = 0

    def fit(place: int, gap: list[int]) -> _Slots:
        alike = [roles[index] for index in old[done:place]] == [roles[index] for index in gap]
        return slots[done:place] if alike else [None] * len(gap)

    def stands(place: int, offset: int) -> bool:
        here = is_shared and place < len(old) and offset < len(fresh)
        return here and pool[old[place]] == pool[fresh[offset]]

    for offset, index in enumerate(fresh):
        if index not in where and _find_answer(transcript, pool[index], answers):
            break  # behind a new proposal stands nothing old, though a pool may hold an equal message
        beside = done + offset - len(placed)
        place = where.get(index, -1)
        if stands(beside, offset):
            place = beside
        elif place >= 0 and roles[index] == "tool" and stands(beside + 1, offset + 1):
            place = -1  # an edit: what follows it stands where it stood
        if place >= done:
            placed += [*fit(place, fresh[len(placed) : offset]), slots[place]]
            done = place + 1
    rest = fresh[len(placed) :]
    ends = [n for n, index in enumerate(rest) if _find_answer(transcript, pool[index], answers)]
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
