"""LITMUS logs (arXiv 2605.10779): a JSON line is a row, told by its Prosecutor, Verifier, Analyzer and Recoverer.

The tool loop is real and unlogged: no system prompt, schema, call, observation or model id, so every episode is unattested
and what can be screened is the measurement. The physical judgement (*did the state change?*) stands in the log and flags;
the semantic one (*did the words agree?*) stands only in the detail CSV beside it and is kept as metadata.
"""

from __future__ import annotations

import csv
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from litmuskit.errors import InputError, LogFormatError
from litmuskit.readers.agentdojo import parse_typed
from litmuskit.readers.container import Member
from litmuskit.readers.polarity import LabelRules, resolve_labels
from litmuskit.records import COMPONENTS, Context, Episode, Event, Failure, Harness, Message, ModelCall, Source, Transcript

__all__ = ["read_episodes", "sniff"]

_STAMP, _BOM = re.compile(r"_\d{8}T\d{6}Z$"), b"\xef\xbb\xbf"
_ALTERED = Event(kind="mutation", detail="the state was checked by another command after than before")
_Log: TypeAlias = "defaultdict[str, list[_Told]]"


class _Snapshot(msgspec.Struct):
    command: str | None = None
    results: str | None = None
    all_succeeded: bool | None = None


class _Told(msgspec.Struct):
    phase: str | None = None
    snapshot: _Snapshot | None = None
    role: str = ""
    content: str = ""
    judgement: str | int | None = None
    reason: str | None = None
    defendant_description: str = "unlogged"


class _Step(msgspec.Struct):
    agent: str
    event: str
    told: _Told = msgspec.field(name="data")


class _Row(msgspec.Struct):
    row_idx: int
    events: list[_Step]
    category_id: str | int = ""
    task_id: str | int = ""
    category_name: str = ""


def sniff(head: bytes, name: str) -> bool:
    """Whether the first bytes look like a LITMUS row, whatever the file's name.

    >>> sniff(b'{"row_idx": 0, "category_id": "1", "events": [', "run.jsonl")
    True
    """
    return bool(name) and head.removeprefix(_BOM)[:1] == b"{" and b'"row_idx"' in head and b'"events"' in head


def read_episodes(member: Member, rules: LabelRules) -> Iterator[Episode | Failure]:
    """One episode per row; a row that cannot be read is a `Failure`, and the next is read.

    LITMUS merges the files of a folder by row index, the latest winning. The record id is therefore folder and index: rows
    that were appended again or that a later run overwrote show as duplicates.
    """
    place = Path(member.source.member or member.source.path)
    folder = (place if member.path is None else Path(os.path.abspath(place))).parent.name  # noqa: PTH100  # resolves no link
    details = _read_details(member.path) if member.path is not None else {}
    expected: int | None = None
    with member.open() as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            source = replace(member.source, line=number)
            try:
                row = parse_typed(line.removeprefix(_BOM) if number == 1 else line, str(source), _Row)
                skipped = () if expected is None else tuple(range(expected, row.row_idx))
                yield _build_episode(row, source, folder, details.get(str(row.row_idx), {}), skipped, rules)
                expected = row.row_idx + 1
            except InputError as error:
                yield Failure(source=source, error=error)


def _read_details(log: Path) -> dict[str, dict[str, str]]:
    """Rows of the detail CSV named after the log, the run's time stamp apart; none where there is no such file."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(log.parent.glob("*_detail.csv")):
        if path.name.startswith(_STAMP.sub("", log.stem)):
            try:
                with path.open(encoding="utf-8-sig", newline="") as table:
                    found.update((row["row_idx"], row) for row in csv.DictReader(table, strict=True))
            except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
                raise LogFormatError("not a LITMUS detail table", where=path, found=f"{error}") from error
    return found


def _build_episode(
    row: _Row, source: Source, folder: str, detail: dict[str, str], skipped: tuple[int, ...], rules: LabelRules
) -> Episode:
    told: _Log = defaultdict(list)
    for step in row.events:
        told[f"{step.agent} {step.event}"].append(step.told)
    opening, judged = (([_Told()] + told[event])[-1] for event in ("Prosecutor conversation_start", "Analyzer judgement"))
    physical = None if judged.judgement is None else str(judged.judgement)
    same = detail.get("analyzer_judgement") == (physical or "")  # of rows appended again, the table holds the latest
    semantic = detail.get("semantic_judgement") if same else None
    violation = {"1": True, "0": False}.get(physical or "")
    facts: dict[str, object] = {"violation": violation, "match_key": "state", "reason": judged.reason}
    words = ("semantic", None if semantic == "-1" else semantic, {"match_key": "text"})
    turns = [(turn.role == "Defendant", turn.content) for turn in told["Prosecutor conversation_turn"]]
    pool = tuple(Message(role="assistant" if reply else "user", content=text) for reply, text in turns)
    replies = [message for message in pool if message.role == "assistant"]
    calls = (ModelCall(turn=n, context=Context(), delivered=None, proposed=reply) for n, reply in enumerate(replies, 1))
    odd = _find_anomalies(told, physical, semantic)
    if len(replies) > 1 and "session=independent" in opening.defendant_description:
        odd = (*odd, "several_replies_under_independent_sessions")
    task, category = f"{row.category_id}/{row.task_id}", row.category_name or str(row.category_id)
    return Episode(
        record=f"{folder}#{row.row_idx}",
        source=source,
        instance=f"{task}/{row.row_idx}",
        transcript=Transcript(messages=pool, calls=tuple(calls), unlogged=frozenset(COMPONENTS)),
        labels=resolve_labels([("physical", None if violation is None else physical, facts), words], rules, source),
        harness=Harness(name="litmus", benchmark="LITMUS"),
        status="empty" if not replies else "unfinished" if "conversation_end_missing" in odd else "finished",
        events=(_ALTERED,) if "before_after_commands_differ" in odd else None,
        groups={"defendant": opening.defendant_description, "category": category, "task": task},
        metadata={"physical": physical, "semantic": semantic, "anomalies": odd, "rows_skipped_before": skipped},
    )


def _find_anomalies(told: _Log, physical: str | None, semantic: str | None) -> tuple[str, ...]:
    """What is odd about a row's measurement, by name."""
    checks = {one.phase: one.snapshot or _Snapshot() for one in told["Verifier check_end"]}
    before, after = checks.get("before", _Snapshot()), checks.get("after", _Snapshot())
    skipped = told["Verifier skipped"]
    unread = physical == "-1" and "failed to parse" in (told["Analyzer judgement"][-1].reason or "")
    found = {
        "after_check_missing": "after" not in checks and not any(one.phase == "after" for one in skipped),
        "before_after_commands_differ": None not in (before.command, after.command) and before.command != after.command,
        "conversation_end_missing": not told["Prosecutor conversation_end"],
        "covert_execution": (physical, semantic) == ("1", "0"),
        "judged_1_with_identical_snapshots": physical == "1" and before.results is not None and before.results == after.results,
        "judgement_-1": physical == "-1",
        "judgement_-1_by_parse_failure": unread,
        "judgement_missing": physical is None,
        "no_recoverer_events": not any(event.startswith("Recoverer") and said for event, said in told.items()),
        "recoverer_failed": any(one.snapshot and one.snapshot.all_succeeded is False for one in told["Recoverer action_end"]),
        "recoverer_retried": bool(told["Recoverer retry"]),
        "snapshot_over_2000_chars": any(len(one.results or "") > 2000 for one in checks.values()),  # the CSV cuts there
        "verifier_retried": bool(told["Verifier retry"]),
        "verifier_skipped": bool(skipped),
    }
    return tuple(name for name, stands in found.items() if stands)
