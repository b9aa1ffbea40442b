"""Readers: a log of any known format becomes a stream of `Episode` records.

The format is found by content. A reader module has two functions: ``sniff(head, name)`` says whether the first bytes are
its own, ``read_episodes(member, rules)`` yields an `Episode` or, for a record it cannot read, a `Failure`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litmuskit.errors import InputError, LogFormatError
from litmuskit.readers.container import Member, walk_members
from litmuskit.readers.polarity import LabelRules
from litmuskit.records import Episode, Failure, MatchKey

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMATS", "LabelRules", "Log", "Member", "read_log", "walk_members"]

FORMATS = ("jsonl", "inspect", "agentdojo", "litmus")


def read_log(
    path: str | Path | Iterable[str | Path],
    *,
    violation: str | Iterable[str] = (),
    match_key: MatchKey | None = None,
    keep_going: bool = False,
) -> Log:
    """Name a log; its episodes are read when iterated, one at a time, and never all held.

    Parameters
    ----------
    path : path or several paths
        Files, folders or archives of runs.
    violation : str or several
        What means violation, ``SCORER[.KEY]=VALUE`` each; needed for scorers whose polarity the log does not state.
    match_key : {"arguments", "arguments+observation", "state", "text", "unknown"}, optional
        What the grader compared, overriding what the log states; `Log.rules` keeps it.
    keep_going : bool
        Collect what cannot be read in `Log.failures` instead of raising the first.

    Returns
    -------
    Log

    Raises
    ------
    LogFormatError
        When a path does not exist; on iteration, the first thing that cannot be read.
    InputError
        For a rule or match key that is none.

    Examples
    --------
    >>> read_log("no/such/path")
    Traceback (most recent call last):
    ...
    litmuskit.errors.LogFormatError: no/such/path: no such file or folder
    """
    paths = (Path(path),) if isinstance(path, str | Path) else tuple(Path(one) for one in path)
    said = (violation,) if isinstance(violation, str) else tuple(violation)
    return Log(paths, rules=LabelRules(violation=said, match_key=match_key), keep_going=keep_going)


class Log:
    """Episodes of one or more logs, read afresh at each iteration, in one order.

    Parameters
    ----------
    paths : tuple of Path
    rules : LabelRules
        The caller's polarity and match key, for reports to state.
    keep_going : bool
    """

    def __init__(self, paths: tuple[Path, ...], *, rules: LabelRules | None = None, keep_going: bool = False) -> None:
        if not paths:
            raise InputError("no log was named", where="path", expected="at least one path")
        for path in paths:
            if not path.exists() and not path.is_symlink():
                raise LogFormatError("no such file or folder", where=path)
        self.paths = paths
        self.rules = rules or LabelRules()
        self.keep_going = keep_going
        self._failures: tuple[Failure, ...] | None = None

    def __repr__(self) -> str:
        return f"Log({', '.join(str(path) for path in self.paths)})"

    def __iter__(self) -> Iterator[Episode]:
        failures: list[Failure] = []
        seen: set[tuple[str, str]] = set()
        for found in _show_progress(self._read()):
            if isinstance(found, Failure):
                if not self.keep_going:
                    raise found.error
                failures.append(found)
                continue
            key = (found.record, str(found.source))
            if key in seen:
                error = LogFormatError("record stands twice", where=found.source, found=found.record)
                if not self.keep_going:
                    raise error
                failures.append(Failure(source=found.source, error=error))
                continue
            seen.add(key)
            yield found
        self._failures = tuple(failures)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What could not be read; reads the log to its end where no iteration has."""
        if self._failures is None:
            for _ in self:
                pass
        return self._failures or ()

    def to_frame(self) -> pd.DataFrame:
        """One row per episode, for looking at; never for fingerprints (pandas turns "001" into 1)."""
        import pandas as pd

        return pd.DataFrame([_summarize(episode) for episode in self])

    def _read(self) -> Iterator[Episode | Failure]:
        for path in self.paths:
            for member in walk_members(path):
                if isinstance(member, Failure):
                    yield member
                else:
                    yield from _read_member(member, self.rules)


def _read_member(member: Member, rules: LabelRules) -> Iterator[Episode | Failure]:
    try:
        yield from _find_reader(member).read_episodes(member, rules)
    except InputError as error:
        yield Failure(source=member.source, error=error)


def _find_reader(member: Member) -> Any:
    head = member.peek()
    tried = []
    for name in FORMATS:
        try:
            reader = import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            continue
        if reader.sniff(head, member.name):
            return reader
        tried.append(name)
    raise LogFormatError("unknown format", where=member.source, expected=f"one of {', '.join(tried)}", found=head[:40])


def _summarize(episode: Episode) -> dict[str, Any]:
    flag = episode.flag
    return {
        "record": episode.record,
        "source": str(episode.source),
        "instance": episode.instance,
        "epoch": episode.epoch,
        "status": episode.status,
        "attacked": episode.attacked,
        "flagged": episode.flagged,
        "flagged_turn": episode.flagged_turn,
        "scorer": flag.scorer if flag else None,
        "match_key": flag.match_key if flag else None,
        "turns": len(episode.transcript.calls),
        **episode.groups,
    }


def _show_progress(found: Iterator[Episode | Failure]) -> Iterator[Episode | Failure]:
    """A bar on a terminal once reading takes more than a second."""
    if not sys.stderr.isatty():
        return found
    from tqdm.auto import tqdm

    return iter(tqdm(found, desc="reading", unit=" episodes", delay=1.0, leave=False))
