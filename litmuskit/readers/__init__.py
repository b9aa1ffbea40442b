"""Readers: a log of any known format becomes a stream of `Episode` records.

The format is found by content. A reader module has two functions: ``sniff(head, name)`` says whether the first bytes are
its own, ``read_episodes(member, rules)`` yields an `Episode` or, for a record it cannot read, a `Failure`.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, LogFormatError
from litmuskit.readers.container import Member, walk_members
from litmuskit.readers.polarity import LabelRules, RuleUse
from litmuskit.records import Episode, Failure, MatchKey

__all__ = ["FORMATS", "LabelRules", "Log", "Member", "RuleUse", "read_log", "walk_members"]

FORMATS = ("jsonl", "inspect", "agentdojo", "litmus")
BATCH = 64  # members one worker reads at a time


def read_log(
    path: str | Path | Iterable[str | Path],
    *,
    violation: str | Iterable[str] = (),
    match_key: MatchKey | None = None,
    keep_going: bool = False,
    workers: int = 1,
) -> Log:
    """Name a log; its episodes are read when iterated, one at a time, and never all held.

    Parameters
    ----------
    path : path or several paths
        Files, folders or archives of runs.
    violation : str or several
        What means violation, ``SCORER[.KEY]=VALUE`` each; needed for scorers whose polarity the log does not state.
    match_key : {"arguments", "arguments+observation", "state", "text", "unknown"}, optional
        What the grader compared, overriding what the log states; it stays in `Log.rules` for reports to say.
    keep_going : bool
        Collect what cannot be read in `Log.failures` instead of raising the first.
    workers : int, at least 1
        Processes that read files side by side; the order is the same. A worker holds the episodes of its files.

    Raises
    ------
    LogFormatError
        When a path does not exist; on iteration, the first thing that cannot be read.
    InputError
        For a rule, match key or number of workers that is none.

    Examples
    --------
    >>> read_log("no/such/path")
    Traceback (most recent call last):
    ...
    litmuskit.errors.LogFormatError: no/such/path: no such file or folder
    """
    named = (path,) if isinstance(path, str | Path) else tuple(path)
    paths = () if "" in named else tuple(Path(one) for one in named)  # no name is not the working directory's
    said = (violation,) if isinstance(violation, str) else tuple(violation)
    rules = LabelRules(violation=said, match_key=match_key)
    return Log(paths=paths, rules=rules, keep_going=keep_going, workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Tabular):
    """Episodes of one or more logs, read afresh at each iteration, in one order; made by `read_log`."""

    paths: tuple[Path, ...]
    rules: LabelRules = field(default_factory=LabelRules)
    keep_going: bool = False
    workers: int = 1
    _failures: list[tuple[Failure, ...]] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError("no log was named", where="path", expected="at least one path")
        missing = [path for path in self.paths if not os.path.lexists(path)]
        if missing and (not self.keep_going or len(missing) == len(self.paths)):
            raise LogFormatError("no such file or folder", where=missing[0])
        if self.workers < 1:
            raise InputError("too few workers", where="workers", expected="at least 1", found=self.workers)

    def __repr__(self) -> str:
        return f"Log({', '.join(str(path) for path in self.paths)})"

    def __iter__(self) -> Iterator[Episode]:
        failures: list[Failure] = []
        seen: set[tuple[str, str]] = set()
        for found in _show_progress(self._read()):
            failure = found if isinstance(found, Failure) else _check_new(found, seen)
            if failure is None:
                yield found  # type: ignore[misc]
            elif self.keep_going or failure.missing:
                failures.append(failure)
            else:
                raise failure.error
        self._failures[:] = [tuple(failures)]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What could not be read; reads the log to its end where no iteration has."""
        if not self._failures:
            for _ in self:
                pass
        return self._failures[0]

    def to_table(self, limit: int | None = None) -> Table:
        """One row per episode (the first ``limit``), to look at; never to fingerprint: pandas turns "001" into 1."""
        names = ("instance", "epoch", "status", "attacked", "flagged", "flagged_turn")
        rows = tuple(
            (e.record, str(e.source), *(getattr(e, name) for name in names), len(e.transcript.calls), e.harness.name)
            for e in islice(self, limit)
        )
        caption = repr(self) if limit is None or len(rows) < limit else f"{self!r}: the first {limit} episodes"
        return Table(columns=("record", "source", *names, "turns", "harness"), rows=rows, caption=caption)

    def _repr_html_(self) -> str:
        return self.to_table(20)._repr_html_()

    def _read(self) -> Iterator[Episode | Failure]:
        members = (member for path in self.paths for member in walk_members(path))
        if self.workers == 1:
            for member in members:
                yield from _read_member(member, self.rules)
            return
        with ProcessPoolExecutor(self.workers) as pool:
            waiting: deque[Future[list[Episode | Failure]]] = deque()
            while batch := list(islice(members, BATCH)):
                waiting.append(pool.submit(_read_batch, batch, self.rules))
                if len(waiting) > 2 * self.workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()


def _read_batch(members: list[Member | Failure], rules: LabelRules) -> list[Episode | Failure]:
    return [found for member in members for found in _read_member(member, rules)]


def _read_member(member: Member | Failure, rules: LabelRules) -> Iterator[Episode | Failure]:
    if isinstance(member, Failure):
        yield member
        return
    try:
        held = member.hold()
        yield from _find_reader(held).read_episodes(held, rules)
    except InputError as error:
        yield Failure(source=member.source, error=error)


@cache
def _load_readers() -> tuple[Any, ...]:
    return tuple(import_module(f"{__name__}.{name}") for name in FORMATS)


def _find_reader(member: Member) -> Any:
    head = member.peek()
    for reader in _load_readers():
        if reader.sniff(head, member.name):
            return reader
    raise LogFormatError("unknown format", where=member.source, expected=f"one of {', '.join(FORMATS)}", found=head[:40])


def _check_new(episode: Episode, seen: set[tuple[str, str]]) -> Failure | None:
    key = (episode.record, str(episode.source))
    if key in seen:
        error = LogFormatError("a record of this name was read from here before", where=episode.source, found=episode.record)
        return Failure(source=episode.source, error=error)
    seen.add(key)
    return None


def _show_progress(found: Iterator[Episode | Failure]) -> Iterator[Episode | Failure]:
    """A bar on a terminal once reading takes more than a second."""
    if not sys.stderr.isatty():
        return found
    from tqdm.auto import tqdm

    return iter(tqdm(found, desc="reading", unit=" episodes", delay=1.0, leave=False))
