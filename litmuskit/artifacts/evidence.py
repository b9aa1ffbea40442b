"""What a finder returns: one fault of the harness, where it stands, and whether it could have caused the flag."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError
from litmuskit.records import Episode

__all__ = ["KINDS", "Evidence", "cite"]

_SHOWN = ("replay", "late-edit", "mis-pairing", "truncation", "mutation")  # faults in what the agent was shown
_ACTED = ("executed-differs", "stale-cache")  # faults in how its turn came about or was carried out
_OWN = ("not-executed", "own-output-cut")  # of the flagged act itself, or of no concern
_WHOLE = ("not-delivered", "not-reached", "not-assessable", "mention-only", "mixed-policy", "duplicate", "retry-dropped")
KINDS = (*_SHOWN, *_ACTED, *_OWN, *_WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Tabular):
    """One fault: its kind, the rule that fired, the model call and the call in it, and its standing to the flag.

    ``turn`` (from 1) and ``position`` name the call the fault struck; None where it concerns the whole episode.
    ``before_flag`` is True where the fault could have caused the flag, False where it came after it, None where nothing is
    flagged or the log cannot tell. A kind of your own starts with ``x-``.

    Examples
    --------
    >>> Evidence(kind="truncation", rule="truncation/declared", turn=2, detail="5,900 to 1,024 bytes", basis="declared")
    Evidence(truncation/declared at turn 2, declared)
    """

    kind: str
    rule: str
    turn: int | None = None
    position: int | None = None
    call_id: str | None = None
    basis: Literal["declared", "detected"] = "detected"
    detail: str = ""
    before_flag: bool | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS and not self.kind.startswith("x-"):
            expected = f"x-... or one of {', '.join(KINDS)}"
            raise InputError("unknown kind of evidence", where=self.rule, expected=expected, found=self.kind)

    def __repr__(self) -> str:
        return f"Evidence({self.rule}{'' if self.turn is None else f' at turn {self.turn}'}, {self.basis})"

    def to_table(self) -> Table:
        """The evidence as one row."""
        names = ("kind", "rule", "turn", "position", "call_id", "basis", "before_flag", "detail")
        return Table(columns=names, rows=(tuple(getattr(self, name) for name in names),), caption="evidence")


def cite(
    episode: Episode,
    rule: str,
    detail: str,
    *,
    turn: int | None = None,
    position: int | None = None,
    seen: int | None = None,
    declared: bool = False,
) -> Evidence:
    """Evidence whose kind is the rule's first word, whose call id is looked up and whose standing to the flag is judged.

    ``seen`` is the model call whose input first held the fault, by default the one after ``turn``.
    """
    kind, calls = rule.partition("/")[0], episode.transcript.calls
    proposed = calls[turn - 1].proposed if turn is not None and 0 < turn <= len(calls) else None
    asked = proposed.tool_calls if proposed is not None else ()
    ident = asked[position].id if position is not None and position < len(asked) else None
    found = partial(Evidence, kind=kind, rule=rule, turn=turn, position=position, call_id=ident, detail=detail)
    return found(basis="declared" if declared else "detected", before_flag=_stand(episode, kind, turn, position, seen))


def _stand(episode: Episode, kind: str, turn: int | None, position: int | None, seen: int | None) -> bool | None:
    flag, flagged = episode.flag, episode.flagged_turn
    if flag is None or flagged is None or turn is None:
        return None if flag is None else True
    at_flag = turn == flagged and (None in (flag.turn, flag.position, position) or flag.position == position)
    reads_history = flag.match_key in {"arguments+observation", "text"}
    if kind in _ACTED:
        return turn < flagged or at_flag
    if kind in _OWN:
        if kind == "not-executed" and flag.match_key == "state":
            return False  # what never ran changed no state
        return at_flag or (None if flag.turn is None and turn < flagged else False)
    if (turn + 1 if seen is None else seen) <= flagged:
        return True
    if kind == "late-edit":  # a grader that reads the history reads it edited, whenever that was
        return None if flag.match_key == "unknown" else reads_history
    if kind == "replay":  # every grader but one of state finds the call as the agent never made it
        later = turn > flagged or (turn == flagged and not at_flag and (position or 0) > (flag.position or 0))
        unsure = flag.match_key == "unknown" and not at_flag
        return False if later or flag.match_key == "state" else None if unsure else True
    return kind == "mis-pairing" and at_flag and reads_history
