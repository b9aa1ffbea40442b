"""What a finder returns: one fault of the harness, where it stands, and whether it could have caused the flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError

__all__ = ["KINDS", "Evidence"]

KINDS = (
    "replay",
    "executed-differs",
    "late-edit",
    "mis-pairing",
    "truncation",
    "stale-cache",
    "mixed-policy",
    "not-delivered",
    "not-reached",
    "not-assessable",
    "not-executed",
    "own-output-cut",
    "mention-only",
    "duplicate",
    "retry-dropped",
    "mutation",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Tabular):
    """One fault: its kind, the rule that fired, the model call and the call in it, and its standing to the flag.

    ``turn`` (from 1) and ``position`` name the call the fault struck; None where it concerns the whole episode. ``basis`` is
    ``declared`` where the harness said so itself, else ``detected``. ``before_flag`` is True where the fault could have
    caused the flag, False where it came after it, None where nothing is flagged or the log cannot tell.

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
        if self.kind not in KINDS:
            raise InputError(
                "unknown kind of evidence", where=self.rule, expected=f"one of {', '.join(KINDS)}", found=self.kind
            )

    def __repr__(self) -> str:
        place = "" if self.turn is None else f" at turn {self.turn}"
        return f"Evidence({self.rule}{place}, {self.basis})"

    def to_table(self) -> Table:
        """The evidence as one row."""
        names = ("kind", "rule", "turn", "position", "call_id", "basis", "before_flag", "detail")
        return Table(columns=names, rows=(tuple(getattr(self, name) for name in names),), caption="evidence")
