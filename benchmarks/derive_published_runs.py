"""Derive notebooks/tables/published_{runs,tasks,stimuli}.csv from AgentDojo's published runs: counts, no text of any run.

    python benchmarks/derive_published_runs.py RUNS

RUNS is the unpacked ``runs/`` folder of the AgentDojo repository (MIT licence; Debenedetti et al., NeurIPS 2024; the tables
were made at commit 96046ab54a99f5e5ec86b920ea9a2d8ae24ea6d8). The counts are litmuskit's own.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import litmuskit as lk
from litmuskit.artifacts import find_artifacts
from litmuskit.artifacts.delivery import is_delivered
from litmuskit.artifacts.execution import key_call, read_text
from litmuskit.records import Episode

TABLES = Path(__file__).resolve().parents[1] / "notebooks" / "tables"
SENDER = re.compile(r"important message from me, (.+?), to you, (.+?)\.\s")
USER = re.compile(r"The user's name is ([^,.]+)")
READS = re.compile(r"(get|search|read|list|check)_")
COUNTED = ("runs", "flagged", "errored", "empty", "not_reached", "not_delivered", "restarted", "unexecuted_end", "repeats")
RUNS = (
    *COUNTED,
    *(f"{name}_flagged" for name in COUNTED[2:]),
    "unseen_flagged",
    "absent_flagged",
    "repeats_after_a_write",
    "repeats_called_replay",
)
TASKS = ("runs", "flagged", "flagged_unsound", "exposed", "exposed_flagged")


def repeats_a_call(episode: Episode) -> tuple[bool, bool]:
    """Whether a call was made again and answered otherwise, and whether a state-changing call always stood in between."""
    answers: dict[tuple[str, str], tuple[str | None, str | None]] = {}
    wrote: dict[tuple[str, str], bool] = {}
    repeated, explained = False, True
    for turn in episode.transcript.calls:
        for result in turn.observations:
            if result.call is None:
                continue
            key, answer = key_call(result.call), (read_text(result.delivered), result.error)
            if key in answers and answers[key] != answer:
                repeated, explained = True, explained and wrote[key]
            answers[key] = answer
            changes = not READS.match(result.call.name) or result.call.name == "get_unread_emails"  # it marks them as read
            wrote = {one: before or changes for one, before in wrote.items()} | {key: changes}
    return repeated, explained


def holds_stimulus(episode: Episode) -> bool:
    """Whether a payload stands anywhere in the log but in the agent's own words."""
    texts = [f"{one.text}{one.error or ''}" for one in episode.transcript.messages if one.role != "assistant"]
    return any(is_delivered(payload, text) for payload in (episode.payloads or {}).values() for text in texts)


def count_episode(episode: Episode) -> Counter[str]:
    kinds = {evidence.kind for evidence in find_artifacts(episode)}
    judged = episode.status in ("finished", "unfinished")
    repeated, explained = repeats_a_call(episode)
    last = episode.transcript.calls[-1].observations if episode.transcript.calls else ()
    stands = {
        "runs": True,
        "errored": episode.status == "errored",
        "empty": episode.status == "empty",
        "not_reached": judged and "not-reached" in kinds,
        "not_delivered": judged and "not-delivered" in kinds,
        "restarted": episode.retries > 0,
        "unexecuted_end": any(result.executed is False and result.call is None for result in last),
        "repeats": repeated,
    }
    found = Counter({name: int(value) for name, value in stands.items()})
    found.update({f"{name}_flagged": int(value and episode.flagged) for name, value in stands.items() if name != "runs"})
    found["flagged"] = int(episode.flagged)
    found["unseen_flagged"] = int(episode.flagged and bool(kinds & {"not-reached", "not-delivered"}))
    found["absent_flagged"] = int(episode.flagged and not holds_stimulus(episode))
    found["repeats_after_a_write"] = int(repeated and explained)
    found["repeats_called_replay"] = int(repeated and "replay" in kinds)
    return found


def name_stimulus(episode: Episode) -> tuple[str, str, str]:
    """User in the system prompt, sender and addressee in the payload; empty where the attack names none."""
    system = episode.transcript.calls[0].context.system if episode.transcript.calls else None
    user = USER.search(system or "")
    signed = {found.groups() for text in (episode.payloads or {}).values() if (found := SENDER.search(text))}
    sender, addressee = signed.pop() if len(signed) == 1 else ("", "")
    return (user[1] if user else "", sender, addressee)


def write_table(name: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    TABLES.mkdir(exist_ok=True)
    with (TABLES / name).open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([columns, *sorted(rows)])
    print(f"{name}: {len(rows)} rows, {(TABLES / name).stat().st_size / 1000:.0f} kB")


def main(runs: str) -> None:
    by_suite: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    by_task: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    stimuli: Counter[tuple[str, ...]] = Counter()
    for episode in lk.read_log(runs):
        group, found = episode.groups, count_episode(episode)
        by_suite[group["pipeline"], group["attack"], group["suite"]].update(found)
        if not episode.attacked:
            continue
        stimuli[group["pipeline"], group["attack"], *name_stimulus(episode)] += 1
        if group["attack"] == "important_instructions":
            unseen = any(found[name] for name in ("errored", "empty", "not_reached", "not_delivered"))
            one = (1, found["flagged"], found["flagged"] * unseen, int(not unseen), found["flagged"] * (not unseen))
            task = f"{group['suite']}/{group['user_task'].removeprefix('user_task_')}"
            by_task[group["pipeline"], task].update(dict(zip(TASKS, map(int, one), strict=True)))
    write_table(
        "published_runs.csv", ("pipeline", "attack", "suite", *RUNS), [(*k, *(c[n] for n in RUNS)) for k, c in by_suite.items()]
    )
    write_table("published_tasks.csv", ("pipeline", "task", *TASKS), [(*k, *(c[n] for n in TASKS)) for k, c in by_task.items()])
    names = ("pipeline", "attack", "user", "sender", "addressee", "runs")
    write_table("published_stimuli.csv", names, [(*key, count) for key, count in stimuli.items()])


if __name__ == "__main__":
    main(sys.argv[1])
