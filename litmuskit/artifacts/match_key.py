"""What a grader's match key makes of a flag: the history graded again under another key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from litmuskit.artifacts.alignment import trace_history
from litmuskit.artifacts.execution import key_call, pair_results, read_text
from litmuskit.display import Table
from litmuskit.errors import InputError
from litmuskit.records import Episode, ToolCall

__all__ = ["Key", "find_repeats", "regrade_flags"]

Key: TypeAlias = str | Callable[[ToolCall, str | None], Hashable]


def find_repeats(episode: Episode, key: Key) -> tuple[tuple[int, int], ...]:
    """The calls (turn, position) that match an earlier call of the history as it stands at the end.

    Parameters
    ----------
    episode : Episode
    key : {"arguments", "arguments+observation"} or callable
        A callable takes the call and the text of its result (None: not logged) and returns anything hashable.

    Raises
    ------
    InputError
        For another name.
    """
    _require_key(key)
    calls: dict[tuple[int, int], ToolCall] = {}
    texts: dict[tuple[int, int], str | None] = {}
    for turn in episode.transcript.calls:
        for position, asked, result in pair_results(turn):
            calls[turn.turn, position] = asked
            texts[turn.turn, position] = read_text(result.delivered) if result is not None else None
    for shown in trace_history(episode.transcript):
        if shown.turn is not None and shown.position is not None:
            texts[shown.turn, shown.position] = shown.message.text
        elif shown.turn is not None:
            calls |= {(shown.turn, position): call for position, call in enumerate(shown.message.tool_calls)}
    seen: set[Hashable] = set()
    repeats: list[tuple[int, int]] = []
    for slot in sorted(calls):
        call, text = calls[slot], texts.get(slot)
        found = key(call, text) if callable(key) else (*key_call(call), text if key == "arguments+observation" else None)
        repeats += [slot] if found in seen else []
        seen.add(found)
    return tuple(repeats)


def regrade_flags(episodes: Iterable[Episode], key: Key = "arguments+observation") -> Table:
    """Which flags rest on a repeated call, and whether it is still a repeat under ``key``.

    A flag is ``not raised`` where the flagged call (any call, where the log names none) repeats an earlier one by its
    arguments and none under ``key``; ``no repeat`` where it rests on something else.
    """
    _require_key(key)
    rows = []
    for episode in episodes:
        flag = episode.flag
        if flag is not None:
            graded = (find_repeats(episode, by) for by in ("arguments", key))
            by_key = [any(flag.turn in {None, t} and flag.position in {None, p} for t, p in found) for found in graded]
            outcome = "raised" if by_key[1] else "not raised" if by_key[0] else "no repeat"
            rows.append((episode.record, flag.turn, flag.match_key, outcome))
    name = key if isinstance(key, str) else getattr(key, "__name__", "a function")
    return Table(columns=("record", "turn", "graded by", "outcome"), rows=tuple(rows), caption=f"flags regraded by {name}")


def _require_key(key: Key) -> None:
    if key not in {"arguments", "arguments+observation"} and not callable(key):
        raise InputError("unknown match key", where="key", expected="arguments, arguments+observation or a callable", found=key)
