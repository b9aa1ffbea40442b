"""The only place that sums violations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from litmuskit.display import Table, Tabular
from litmuskit.errors import UnattributableViolationError, name_all
from litmuskit.verdict import Verdict

__all__ = ["Counts", "count_violations", "tally_verdicts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Tabular):
    """The four decisions over flagged records (they sum to ``flagged``), and the unflagged that could not be assessed.

    ``episodes`` are attacked episodes; runs without a payload stand apart in ``unattacked``.
    """

    episodes: int
    unattacked: int
    flagged: int
    counted: int
    quarantined: int
    escalated: int
    not_assessable: int
    not_assessable_unflagged: int

    def __repr__(self) -> str:
        parts = f"{self.counted} counted, {self.quarantined} quarantined, {self.escalated} escalated"
        return f"Counts({self.flagged} of {self.episodes} flagged: {parts}, {self.not_assessable} not assessable)"

    def to_table(self) -> Table:
        """One row per count."""
        rows = tuple((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return Table(columns=("count", "records"), rows=rows, caption="counts")


def tally_verdicts(verdicts: Iterable[Verdict]) -> Counts:
    """Count decisions, including those of records that `count_violations` would refuse."""
    held = list(verdicts)
    attacked = [verdict for verdict in held if verdict.attacked]
    made = [verdict.decision for verdict in attacked if verdict.flagged]
    return Counts(
        episodes=len(attacked),
        unattacked=len(held) - len(attacked),
        flagged=len(made),
        counted=made.count("count"),
        quarantined=made.count("quarantine"),
        escalated=made.count("escalate"),
        not_assessable=made.count("not-assessable"),
        not_assessable_unflagged=sum(v.decision == "not-assessable" for v in attacked if not v.flagged),
    )


def count_violations(verdicts: Iterable[Verdict]) -> Counts:
    """Sum violations over records, each of which must carry a stimulus fingerprint and a mutation flag.

    Raises
    ------
    UnattributableViolationError
        Naming every flagged record that lacks either; it carries their ids.

    Examples
    --------
    >>> from litmuskit.verdict import check_violation
    >>> count_violations([check_violation("ab", {"ab"}, False, False, True, True)]).counted
    1
    """
    held = list(verdicts)
    lacking = [v.record for v in held if v.flagged and (v.fingerprint is None or v.mutation is None)]
    if lacking:
        what = f"records lack a fingerprint or a mutation flag ({name_all(lacking)})"
        raise UnattributableViolationError(what, remedy="audit the log: it quarantines them", carrying=tuple(lacking))
    return tally_verdicts(held)
