"""One finder per kind of harness fault: an episode in, evidence out.

`FINDERS` says of each kind what its finder sees, what no log shows it, and what looks alike and is told apart. One of your
own is a function from an episode to evidence, with its kind (``x-...``), the same three sentences, and labelled examples.

Examples
--------
>>> from litmuskit.harness import run_episode
>>> def find_errors(episode):
...     for call in episode.transcript.calls:
...         for result in call.observations:
...             if str(result.delivered).startswith("error:"):
...                 yield cite(episode, "x-error/said", "the tool failed", turn=call.turn, position=result.position)
>>> wrong, sound = (run_episode("invoices/0", agent)[0] for agent in ("malformed", "refuse"))
>>> told = {"sees": "results that say error", "blind": "silent failures", "alike": "files that hold the word"}
>>> own = Finder(kind="x-error", searches=(find_errors,), **told, examples=((wrong, {(3, 0)}), (sound, set())))
>>> own.check_examples().rows
(('invoices/0#1', ((3, 0),), ((3, 0),), True), ('invoices/0#1', (), (), True))
>>> [evidence.rule for evidence in find_artifacts(wrong, [*FINDERS.values(), own])]
['not-executed/rejected', 'x-error/said']
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

from litmuskit.artifacts.assessability import find_cached, find_unassessable
from litmuskit.artifacts.delivery import find_mentions, find_undelivered
from litmuskit.artifacts.duplicate import DuplicateIndex
from litmuskit.artifacts.evidence import KINDS, Evidence, cite
from litmuskit.artifacts.execution import find_execution_faults
from litmuskit.artifacts.history import find_history_faults
from litmuskit.artifacts.match_key import find_repeats, regrade_flags
from litmuskit.artifacts.truncation import find_truncations
from litmuskit.display import Table
from litmuskit.records import Episode

__all__ = [
    "FINDERS", "KINDS", "DuplicateIndex", "Evidence", "Finder", "cite", "find_artifacts", "find_repeats", "list_finders",
    "regrade_flags",
]  # fmt: skip

Search: TypeAlias = Callable[[Episode], Iterable[Evidence]]
Place: TypeAlias = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """One kind of evidence: the searches that find it, what they see, what no log shows them, and what looks alike.

    ``examples`` are episodes, each with the places (turn, position) where the kind stands in it.

    Examples
    --------
    >>> FINDERS["not-reached"].sees
    "no carrier of the payload was read: the agent's own path, no fault"
    """

    kind: str
    searches: tuple[Search, ...]
    sees: str
    blind: str
    alike: str
    examples: tuple[tuple[Episode, Collection[Place]], ...] = ()

    def __call__(self, episode: Episode) -> tuple[Evidence, ...]:
        """All evidence of this kind in an episode."""
        return tuple(one for one in _collect(episode, self.searches) if one.kind == self.kind)

    def check_examples(self) -> Table:
        """Each labelled example: where the kind stands, what the finder cites, and whether they agree."""
        rows = []
        for episode, truth in self.examples:
            places = [tuple(sorted(one, key=str)) for one in (truth, {(each.turn, each.position) for each in self(episode)})]
            rows.append((episode.record, *places, places[0] == places[1]))
        return Table(columns=("record", "labelled", "found", "agrees"), rows=tuple(rows), caption=f"examples of {self.kind}")


def _find_declared(episode: Episode) -> Iterable[Evidence]:
    for event in episode.events or ():
        kind = event.kind if event.kind in KINDS else "mutation"
        detail = event.detail or f"{event.kind} declared by the harness"
        seen = event.turn if kind == "mutation" and event.position is None else None  # it struck the input of its turn
        yield cite(episode, f"{kind}/declared", detail, turn=event.turn, position=event.position, seen=seen, declared=True)


def _collect(episode: Episode, searches: Iterable[Search]) -> tuple[Evidence, ...]:
    found: dict[tuple[str, int | None, int | None], Evidence] = {}
    for search in (_find_declared, *searches):
        for one in search(episode):
            found.setdefault((one.kind, one.turn, one.position), one)
    return tuple(found.values())


def find_artifacts(episode: Episode, finders: Iterable[Finder] | None = None) -> tuple[Evidence, ...]:
    """Everything that ``finders`` (by default all of `FINDERS`) see in one episode, one piece per kind and place."""
    chosen = FINDERS.values() if finders is None else finders
    return _collect(episode, dict.fromkeys(search for finder in chosen for search in finder.searches))


def list_finders() -> Table:
    """The finders as a table for people."""
    columns = ("kind", "sees", "blind", "alike")
    rows = tuple(tuple(getattr(finder, name) for name in columns) for finder in FINDERS.values())
    return Table(columns=columns, rows=rows, caption="artifact finders")


def _read_catalogue() -> dict[str, Finder]:
    searches: dict[str, Search] = {
        "history": find_history_faults,
        "execution": find_execution_faults,
        "truncation": find_truncations,
        "delivery": find_undelivered,
        "mention": find_mentions,
        "assessability": find_unassessable,
        "cache": find_cached,
    }
    with resources.files(__name__).joinpath("finders.csv").open(encoding="utf-8") as table:
        rows: list[dict[str, Any]] = list(csv.DictReader(table))
    named = ({**row, "searches": tuple(map(searches.__getitem__, row["searches"].split()))} for row in rows)
    return {row["kind"]: Finder(**row) for row in named}


FINDERS = _read_catalogue()
