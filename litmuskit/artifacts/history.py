"""Faults of the histories: calls shown that were not proposed, results edited, exchanged, altered, or shown twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile

from litmuskit.artifacts.alignment import Slot, trace_history
from litmuskit.artifacts.evidence import Evidence, cite
from litmuskit.artifacts.execution import is_filled, is_flat, is_same_call, key_call, pair_results, read_text, show_call
from litmuskit.artifacts.truncation import describe_cut
from litmuskit.records import Episode, Message

__all__ = ["find_history_faults"]


def find_history_faults(episode: Episode) -> Iterator[Evidence]:
    """Replay, late-edit and a message shown twice; against what the tools returned, mis-pairing and mutation."""
    results = [result for call in episode.transcript.calls for result in call.observations]
    if is_flat(episode.transcript) and all(result.raw is None for result in results):
        return  # one list, and one version of every result
    first: dict[Slot, str] = {}
    since: dict[Slot, int] = {}
    partly: dict[int, int] = {}
    earliest: dict[tuple[str, str], int] = {}
    reported: set[Slot | int] = set()
    for shown in trace_history(episode.transcript):
        turn, position, view = shown.turn, shown.position, shown.view
        text = f"{shown.message.text}{shown.message.error or ''}"
        if shown.moved:
            detail = f"the same messages in another order to model call {view}"
            yield cite(episode, "late-edit/order", detail, turn=turn or view - 1, seen=view)
            continue
        if turn is None:
            if view not in reported:
                detail = f"{shown.message.role} message shown twice"
                yield cite(episode, "duplicate/message-again", detail, turn=view - 1, seen=view)
            reported.add(view)
            continue
        proposed = episode.transcript.calls[turn - 1].proposed
        if position is None and proposed is not None and len(shown.message.tool_calls) < len(proposed.tool_calls):
            partly.setdefault(turn, view)  # as a handoff shows its own call alone, while the others still run
        else:
            since.setdefault((turn, position), view)
        if position is None:
            for struck, rule, detail in _compare_calls(episode, turn, shown.message, earliest):
                if (turn, -1 - struck) not in reported:
                    yield cite(episode, f"replay/{rule}", detail, turn=turn, position=struck, seen=view)
                reported.add((turn, -1 - struck))
            continue
        if _is_unbound(episode, turn, shown.message):
            detail = f"bound to {shown.message.tool_call_id!r}, the id of no call"
            yield cite(episode, "mis-pairing/unknown-id", detail, turn=turn, position=position, seen=view)
        if first.setdefault((turn, position), text) != text and (turn, position) not in reported:
            reported.add((turn, position))
            detail = f"{len(first[turn, position]):,} characters when first shown, other {len(text):,} to model call {view}"
            yield cite(episode, "late-edit/result", detail, turn=turn, position=position, seen=view)
    yield from _compare_results(episode, first)
    yield from _find_withheld(episode, {**{(turn, None): view for turn, view in partly.items()}, **since})


def _is_unbound(episode: Episode, turn: int, message: Message) -> bool:
    """Whether a result is bound to an id, and no call shown or proposed has it though its turn's calls have ids."""
    proposed = episode.transcript.calls[turn - 1].proposed
    own = {call.id for call in proposed.tool_calls} if proposed is not None else set()
    if message.tool_call_id is None or message.tool_call_id in own or None in own:
        return False
    return all(call.id != message.tool_call_id for one in episode.transcript.messages for call in one.tool_calls)


def _find_withheld(episode: Episode, since: dict[Slot, int]) -> Iterator[Evidence]:
    """Results that came back and are not in the first input that shows their call, or that goes on as if it never was."""
    calls, expand = episode.transcript.calls, episode.transcript.expand
    for call in () if is_flat(episode.transcript) else calls if episode.status == "finished" else calls[:-1]:
        view = since.get((call.turn, None), len(calls) + 2)
        for position, _, result in pair_results(call):
            placed = since.get((call.turn, position), len(calls) + 2)
            if result is None or result.executed is False or placed <= min(view, len(calls)):
                continue
            known, text = expand(call.delivered) or (), read_text(result.delivered if result.raw is None else result.raw)
            if view > len(calls):  # shown in the final list, or nowhere
                view = _find_continuation(episode, call.turn, known) or view
            if placed <= view:
                continue
            given = expand(calls[view - 1].delivered if view <= len(calls) else episode.transcript.final)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, given or (), strict=False)))
            if text and given and not any(text in message.text for message in given[shared:]):
                detail = f"{len(text):,} characters returned, none of them shown to model call {view}"
                yield cite(episode, "mutation/result-withheld", detail, turn=call.turn, position=position, seen=view)


def _find_continuation(episode: Episode, turn: int, known: tuple[Message, ...]) -> int | None:
    """The next input of a conversation, if it ends where the input of ``turn`` did: without that turn and what it did."""
    for call in episode.transcript.calls[turn:] if known else ():
        given = episode.transcript.expand(call.delivered) or ()
        if given and given[0] == known[0]:
            ends = _read_end(given) == _read_end(known) or (known[-1].role == "tool" and known[-1] in given)
            return call.turn if ends else None
    return None


def _read_end(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """From the agent's last message on: what else one conversation ends on, another may."""
    said = (place for place in range(len(messages) - 1, -1, -1) if messages[place].role == "assistant")
    return messages[next(said, 0) :]


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
        _, proposal, result = pairs[position] if position < len(pairs) else (position, None, None)
        if proposal is not None and is_filled(proposal, seen, call.context):
            continue
        is_stale = earliest.get(key_call(seen), turn) < turn
        is_honest = result is not None and result.call is not None and is_same_call(result.call, seen)  # it was executed so
        if is_stale or not (is_honest or (proposal is not None and proposal.parse_error is not None)):
            rule = "stale-arguments" if is_stale else "arguments-at-position"
            yield position, rule, f"shown {show_call(seen)}, proposed {show_call(proposal)}"


def _compare_results(episode: Episode, first: dict[Slot, str]) -> Iterator[Evidence]:
    """What a tool returned against what was first shown in its place: another call's result, or its own altered."""
    returned: dict[Slot, str] = {}
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
    """Which share of the pairs of neighbouring words of ``seen`` stand in ``text``."""
    pairs = [set(pairwise(["", *one.split()])) for one in (seen, text)]
    return len(pairs[0] & pairs[1]) / len(pairs[0]) if pairs[0] else 0.0
