"""Faults that show only when each history the agent was shown is laid beside what it proposed.

Every delivered history is aligned with the one before it: an honest one repeats it and adds the agent's last message and the
results. A place in it belongs to a turn by *position*; call ids recur each turn in real logs and only settle the order of
results inside one turn. Ranges of the pool keep this linear: only what changed is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from litmuskit.artifacts.evidence import Evidence, cite
from litmuskit.artifacts.execution import is_filled, is_flat, is_same_call, key_call, pair_results, read_text, show_call
from litmuskit.artifacts.truncation import describe_cut
from litmuskit.records import Episode, Message, Ranges, ToolCall, Transcript

__all__ = ["Shown", "find_history_faults", "trace_history"]

_Slot = tuple[int, int | None]  # a turn and the position of a result in it; None is the agent's own message


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message, new or changed in the input of ``view``, at the place of a turn's proposal (``position`` None) or result.

    ``turn`` is None for a message that an equal one precedes and that stands at no place.
    """

    turn: int | None
    position: int | None
    view: int
    message: Message


@dataclass(slots=True)
class _Thread:
    """One conversation: the history last shown, whose place each message is, and which turns answered to what."""

    ranges: Ranges = ()
    shown: list[int] = field(default_factory=list)
    slots: list[_Slot | None] = field(default_factory=list)
    asked: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def list_answers(self) -> list[int]:
        """The turns that answered to the history as it stands."""
        return self.asked.setdefault((len(self.shown), self.shown[-1]), []) if self.shown else []


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
    pool, shown, answers, kept = transcript.messages, thread.shown, thread.list_answers(), 0
    for before, now in zip(thread.ranges, ranges, strict=False):
        kept += min(before[1], now[1]) - now[0] if before[0] == now[0] else 0
        if before != now:
            break
    fresh = list(_walk(ranges, kept))
    same = next((n for n, pair in enumerate(zip(shown[kept:], fresh, strict=False)) if pool[pair[0]] != pool[pair[1]]), None)
    same = min(len(shown) - kept, len(fresh)) if same is None else same  # a reader may number equal messages anew
    old, slots = shown[kept + same :], thread.slots[kept + same :]
    shown[kept:], fresh = fresh[:same], fresh[same:]
    del thread.slots[kept + same :]
    thread.ranges = ranges
    placed, known = _align(transcript, answers, old, slots, fresh), set(old)
    is_answered, owner, used, ids = False, 0, [0], list[list[str | None]]()
    for offset, index in enumerate(fresh):
        message, is_new = pool[index], offset >= len(placed)
        slot = None if is_new else placed[offset]
        again = is_answered and owner and not used and not _find_answer(transcript, message, [owner])
        if message.role == "assistant" and again and any(pool[earlier] == message for earlier in shown):
            slot = owner, None  # an earlier message between a proposal and its results
        elif message.role == "assistant":
            used, owner = [], 0
            if (is_new and not is_answered) or (slot is not None and index not in known):
                turns = [*thread.list_answers(), *answers] if is_new else thread.list_answers()
                turn = _find_answer(transcript, message, turns)
                if turn is None and is_new and turns and message.tool_calls:
                    turn = turns[-1]
                if turn is not None:
                    slot, owner, is_answered = (turn, None), turn, True
                    ids = [
                        [call.id for call in one.tool_calls]
                        for one in (message, transcript.calls[turn - 1].proposed or message)
                    ]
        elif message.role == "tool" and owner:
            here = message.tool_call_id
            position = next((own.index(here) for own in ids if own.count(here) == 1), len(used))
            slot = (owner, position) if position < len(ids[0]) and position not in used else None
            used.append(position)
        if slot is not None and index not in known:
            yield Shown(turn=slot[0], position=slot[1], view=view, message=message)
        elif slot is None and is_new and answers and message.role != "user" and any(pool[i] == message for i in shown[-8:]):
            yield Shown(turn=None, position=None, view=view, message=message)
        shown.append(index)
        thread.slots.append(slot)


def _align(
    transcript: Transcript, answers: Sequence[int], old: list[int], slots: list[_Slot | None], fresh: list[int]
) -> list[_Slot | None]:
    """The places of those first messages of ``fresh`` that stand for messages of ``old``; what follows them is new.

    Messages of the same number are anchors; as many messages of the same roles between two anchors are the old ones, edited.
    """
    roles = {index: transcript.messages[index].role for index in (*old, *fresh)}
    where = {index: place for place, index in reversed(list(enumerate(old)))}
    placed: list[_Slot | None] = []
    done = 0

    def fit(place: int, gap: list[int]) -> list[_Slot | None]:
        alike = [roles[index] for index in old[done:place]] == [roles[index] for index in gap]
        return slots[done:place] if alike else [None] * len(gap)

    for offset, index in enumerate(fresh):
        beside = done + offset - len(placed)
        place = beside if old[beside : beside + 1] == [index] else where.get(index, -1)
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


def find_history_faults(episode: Episode) -> Iterator[Evidence]:
    """Replay, late-edit and a message shown twice; against what the tools returned, mis-pairing and mutation."""
    first: dict[_Slot, str] = {}
    earliest: dict[tuple[str, str], int] = {}
    reported: set[_Slot | int] = set()
    for shown in trace_history(episode.transcript):
        turn, position, view = shown.turn, shown.position, shown.view
        text = f"{shown.message.text}{shown.message.error or ''}"
        if turn is None:
            if view not in reported:
                yield cite(
                    episode, "duplicate/message-again", f"{shown.message.role} message shown twice", turn=view - 1, seen=view
                )
            reported.add(view)
        elif position is None:
            for struck, rule, detail in _compare_calls(episode, turn, shown.message, earliest):
                if (turn, -1 - struck) not in reported:
                    yield cite(episode, f"replay/{rule}", detail, turn=turn, position=struck, seen=view)
                reported.add((turn, -1 - struck))
        elif first.setdefault((turn, position), text) != text and (turn, position) not in reported:
            reported.add((turn, position))
            detail = f"{len(first[turn, position]):,} characters when first shown, other {len(text):,} to model call {view}"
            yield cite(episode, "late-edit/result", detail, turn=turn, position=position, seen=view)
    yield from _compare_results(episode, first)


def _compare_calls(
    episode: Episode, turn: int, message: Message, earliest: dict[tuple[str, str], int]
) -> Iterator[tuple[int, str, str]]:
    """Where, by which rule and how a message shows other calls than its turn proposed."""
    calls = episode.transcript.calls
    call, pairs = calls[turn - 1], list(pair_results(calls[turn - 1]))
    wrong = [n for n, seen in enumerate(message.tool_calls) if n >= len(pairs) or not is_same_call(seen, pairs[n][1])]
    left = [asked for n, asked, _ in pairs if n in wrong or n >= len(message.tool_calls)]
    if wrong and not earliest:
        for other in calls:
            for _, asked, _ in pair_results(other):
                earliest.setdefault(key_call(asked), other.turn)
    for position in wrong if pairs else ():
        seen = message.tool_calls[position]
        moved = next((n for n, asked in enumerate(left) if is_same_call(asked, seen)), None)
        if moved is not None:  # calls shown in another order, or not all of them
            del left[moved]
            continue
        proposal: ToolCall | None = pairs[position][1] if position < len(pairs) else None
        result = pairs[position][2] if position < len(pairs) else None
        if earliest.get(key_call(seen), turn) < turn:
            rule = "stale-arguments"
        elif proposal is not None and (proposal.parse_error is not None or is_filled(proposal, seen, call.context)):
            continue
        elif result is not None and result.call is not None and is_same_call(result.call, seen):
            continue  # the history says honestly what was executed
        else:
            rule = "arguments-at-position"
        yield position, rule, f"shown {show_call(seen)}, proposed {show_call(proposal)}"


def _compare_results(episode: Episode, first: dict[_Slot, str]) -> Iterator[Evidence]:
    """What a tool returned against what was first shown in its place: another call's result, or its own altered."""
    returned: dict[_Slot, str] = {}
    differing: list[tuple[int, int, str]] = []
    for call in episode.transcript.calls:
        for position, _, result in pair_results(call):
            text = read_text(result.delivered if result.raw is None else result.raw) if result is not None else None
            if result is not None and text is not None and result.error is None:
                returned[call.turn, position] = text
                seen = first.get((call.turn, position), read_text(result.delivered))
                if seen not in {None, text} and result.truncation is None:
                    differing.append((call.turn, position, seen or ""))
    lost = (episode.payloads or {}).values()
    owners = {text: slot for slot, text in returned.items()} if differing else {}
    for turn, position, seen in differing:
        owner, own = owners.get(seen) if seen.strip() else None, returned[turn, position]
        missing = describe_cut(own, seen, lost) if owner is None else None
        if owner is None and missing is None:  # altered on its way as well?
            beside = {slot: _resemble(seen, text) for slot, text in returned.items() if slot[0] == turn}
            nearest = max(beside, key=lambda slot: beside[slot])
            if beside[nearest] > max(0.5, beside[turn, position] + 0.3):
                owner, missing = nearest, describe_cut(returned[nearest], seen, lost)
        if owner is not None:
            detail = "shows what turn {} returned to call {}".format(*owner)
            yield cite(episode, "mis-pairing/result-of-another-call", detail, turn=turn, position=position)
        place = position if owner is None else owner[1]
        if missing not in {None, "payload"} and owner is not None:
            yield cite(episode, "truncation/cut-of-raw", f"{missing} missing, and shown elsewhere", turn=turn, position=place)
        elif missing is None and seen != returned.get(owner or (turn, position)):
            detail = f"{len(own):,} characters returned, other {len(seen):,} shown"
            yield cite(episode, "mutation/altered-in-transit", detail, turn=turn, position=place)


def _resemble(seen: str, text: str) -> float:
    """Which share of the words of ``seen`` stand in ``text``."""
    words = set(seen.split())
    return len(words & set(text.split())) / len(words) if words else 0.0
