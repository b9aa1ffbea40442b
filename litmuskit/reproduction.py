"""Re-execution: the pinned harness, fed the recorded actions, must return what the log says it returned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError
from litmuskit.records import Episode, ReplayableHarness

__all__ = ["NORMALIZERS", "Reproduction", "reproduce"]

_SPACE = re.compile(r"\s+")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
NORMALIZERS: Mapping[str, Callable[[str], str]] = {  # named and versioned: a table says which were needed
    "whitespace/1": lambda text: _SPACE.sub(" ", text).strip(),
    "timestamps/1": lambda text: _TIME.sub("(time)", text),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction(Tabular):
    """How a re-execution went: ``calls`` made, ``identical`` byte for byte, ``normalized`` equal after ``normalizers`` only.

    ``differing`` names the others as (turn, position, detail).
    """

    record: str
    calls: int
    identical: int
    normalized: int
    normalizers: tuple[str, ...]
    differing: tuple[tuple[int, int, str], ...]

    @property
    def rung(self) -> str:
        """``re-executed`` when every observation came back the same, else ``unattested``."""
        return "re-executed" if self.calls and not self.differing else "unattested"

    @property
    def exact(self) -> bool:
        """Whether every observation came back byte for byte."""
        return bool(self.calls) and self.identical == self.calls

    def __repr__(self) -> str:
        return f"Reproduction({self.record!r}: {self.identical} of {self.calls} identical, {self.normalized} after normalizers)"

    def to_table(self) -> Table:
        """One row per call that came back differently."""
        return Table(columns=("turn", "position", "detail"), rows=self.differing, caption=repr(self))


def reproduce(episode: Episode, harness: ReplayableHarness, *, normalizers: Sequence[str] = ()) -> Reproduction:
    """Feed an episode's executed calls to a harness and compare what comes back with what was delivered.

    Parameters
    ----------
    episode : Episode
        Calls before the flagged turn are made (all of them when nothing is flagged): they made the stimulus.
    harness : ReplayableHarness
        Pinned to the version and policies of the run; that is the caller's to see to.
    normalizers : sequence of str
        Names in `NORMALIZERS`, tried together where the bytes differ.

    Raises
    ------
    InputError
        For an unknown normalizer.
    """
    if unknown := [name for name in normalizers if name not in NORMALIZERS]:
        raise InputError("unknown normalizer", where="normalizers", expected=", ".join(NORMALIZERS), found=unknown)
    harness.reset(episode.instance)
    turns = episode.transcript.calls[: (episode.flagged_turn or len(episode.transcript.calls) + 1) - 1]
    same = folded = made = 0
    differing: list[tuple[int, int, str]] = []
    for turn in turns:
        proposed = turn.proposed.tool_calls if turn.proposed else ()
        for place, observation in enumerate(turn.observations):
            position = observation.position if observation.position is not None else place
            call = observation.call or (proposed[position] if position < len(proposed) else None)
            if call is None or observation.executed is False:
                continue
            made += 1
            seen, returned = observation.delivered, harness.call(call)
            if seen == returned:
                same += 1
            elif _fold(seen, normalizers) == _fold(returned, normalizers) and normalizers:
                folded += 1
            else:
                differing.append((turn.turn, position, f"{call.name} returned {returned!r:.120}, the log says {seen!r:.120}"))
    needed, differ = tuple(normalizers) if folded else (), tuple(differing)
    return Reproduction(
        record=episode.record, calls=made, identical=same, normalized=folded, normalizers=needed, differing=differ
    )


def _fold(content: Any, normalizers: Sequence[str]) -> Any:
    for name in normalizers if isinstance(content, str) else ():
        content = NORMALIZERS[name](content)
    return content
