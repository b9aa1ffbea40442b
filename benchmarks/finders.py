"""Precision and recall of every finder, with Wilson limits, per corpus, kind and place.

``python benchmarks/finders.py [--cases 300] [--shared DIR] [--json FILE|-]``. Corpora: a made-up harness (``tests/planted.py``)
with a look-alike beside each fault; the reference harness; AgentDojo runs with faults planted here, the untouched ones as
negatives; the Inspect corpus. None of the planting shares code with the finders. A case is one fault at one call; what is
found where nothing was planted counts against precision. Exits 1 where a kind misses recall .98 or precision .99.
"""

# ruff: noqa: E402  # the generators of the tests are no package

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from planted import CALL_KINDS, SHOWN_KINDS, WHOLE_KINDS, make_run, make_whole_case, record_run

from litmuskit.artifacts import DuplicateIndex, find_artifacts
from litmuskit.display import Table
from litmuskit.harness.simulation import simulate_episodes
from litmuskit.rates.intervals import wilson_limits
from litmuskit.readers import read_log, walk_members
from litmuskit.records import Episode, Failure

Place = tuple[str, int | None, int | None]
Case = tuple[str, Episode, set[Place], set[str]]  # corpus, episode, what was planted, the kinds that the corpus judges
RECALL, PRECISION = 0.98, 0.99
WHOLE_TURN = {"own-output-cut", "duplicate", "stale-cache"}  # kinds that strike a turn, not a call of it


def plant_made_up(cases: int) -> Iterator[Case]:
    """One to three faults a run at random turns, until every kind has its number of cases."""
    kinds, planted = (*SHOWN_KINDS, *CALL_KINDS), Counter[str]()
    seed = 0
    while any(planted[kind] < cases for kind in kinds):
        rng, seed = random.Random(seed), seed + 1
        turns = rng.randrange(2, 15)
        wanted = [kind for kind in kinds if planted[kind] < cases]
        struck = rng.sample(range(1, turns + 1), k=min(turns, rng.choice((0, 1, 1, 2, 3))))
        run = make_run(rng, turns, {turn: rng.choice(wanted) for turn in struck})
        planted.update(kind for kind, *_ in run.truth)
        yield "made-up harness", record_run(run, anew=rng.random() < 0.2), run.truth, {*kinds, *WHOLE_KINDS}
    for kind in (*WHOLE_KINDS, None):
        for number in range(cases):
            episode, truth = make_whole_case(random.Random(f"{kind}/{number}"), kind)
            yield "made-up harness", episode, truth, {*kinds, *WHOLE_KINDS}


def plant_reference(cases: int) -> Iterator[Case]:
    """The reference harness, each of its faults alone and all of them together, under every match key."""
    single = {"replay": 0.2, "resample": 0.1, "mis-pair": 0.3, "late-edit": 0.2, "cache": 0.2, "truncate": 700}
    kinds = {"replay", "mutation", "mis-pairing", "late-edit", "stale-cache", "truncation", "duplicate", "executed-differs"}
    faults: list[dict[str, float]] = [{}, *({name: rate} for name, rate in single.items())]
    faults.append({name: rate / 4 for name, rate in single.items() if name not in {"truncate", "resample"}})
    for number, chosen in enumerate(faults):
        key = ("arguments", "arguments+observation", "state", "text")[number % 4]
        run = simulate_episodes(cases, faults=chosen, match_key=key, seed=number, recurring_ids=number % 3 > 0)
        for episode, truth in zip(run.episodes, run.truth, strict=True):
            yield (
                "reference harness",
                episode,
                {_blur(f.kind, f.turn, f.position) for f in truth.faults if f.kind in kinds},
                kinds,
            )


# AgentDojo: a run file is changed as a faulty harness would have written it. One flat list shows few kinds.


def _list_calls(run: dict[str, Any]) -> list[tuple[int, int, dict[str, Any], dict[str, Any]]]:
    """Turn, position, the assistant's call and the tool message of each answered call."""
    found, turn = [], 0
    messages = run["messages"]
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            turn += 1
            answers = []
            for later in messages[index + 1 :]:
                if later["role"] != "tool":
                    break
                answers.append(later)
            for position, (call, answer) in enumerate(zip(message.get("tool_calls") or [], answers, strict=False)):
                if answer.get("tool_call") and not answer.get("error"):
                    found.append((turn, position, call, answer))
    return found


def _replay(run: dict[str, Any], rng: random.Random) -> set[Place]:
    calls = _list_calls(run)
    later = [
        (turn, position, call, earlier[2]["args"])
        for n, (turn, position, call, _) in enumerate(calls)
        for earlier in calls[:n]
        if earlier[0] < turn and earlier[2]["function"] == call["function"] and earlier[2]["args"] != call["args"]
    ]
    if not later:
        return set()
    turn, position, call, stale = rng.choice(later)
    call["args"] = dict(stale)
    return {("replay", turn, position)}


def _differ(run: dict[str, Any], rng: random.Random) -> set[Place]:
    calls = [entry for entry in _list_calls(run) if entry[2]["args"]]
    if not calls:
        return set()
    turn, position, _, answer = rng.choice(calls)
    answer["tool_call"] = {**answer["tool_call"], "args": {**answer["tool_call"]["args"], "approved_by": "policy"}}
    repeated = any(t < turn and call["function"] == answer["tool_call"]["function"] for t, _, call, _ in calls)
    return set() if repeated else {("executed-differs", turn, position)}


def _swap(run: dict[str, Any], rng: random.Random) -> set[Place]:
    calls = _list_calls(run)
    pairs = [(a, b) for a in calls for b in calls if a[:2] < b[:2] and a[2]["args"] != b[2]["args"]]
    if not pairs:
        return set()
    first, second = rng.choice(pairs)
    for key in ("content", "tool_call"):
        first[3][key], second[3][key] = second[3][key], first[3][key]
    return {("mis-pairing", *first[:2]), ("mis-pairing", *second[:2])}


def _cut(run: dict[str, Any], rng: random.Random) -> set[Place]:
    calls = [entry for entry in _list_calls(run) if isinstance(entry[3]["content"], str) and len(entry[3]["content"]) > 200]
    if not calls:
        return set()
    turn, position, call, answer = rng.choice(calls)
    start = f"\nThe output of your call to {call['function']} was too long to be displayed.\nHere is a truncated version:\n"
    inner = answer["content"][:100]
    marked = (f"{start}<START_TOOL_OUTPUT>\n{inner}\n<END_TOOL_OUTPUT>\n", f"{inner}\n[Observation truncated due to length]")
    answer["content"] = rng.choice(marked)
    return {("truncation", turn, position)}


def _drop(run: dict[str, Any], _: random.Random) -> set[Place]:
    calls = _list_calls(run)
    if not calls or run["messages"][-1]["role"] != "assistant" or any(message.get("error") for message in run["messages"]):
        return set()  # runs with rejected calls of their own are no place for one more
    turn, position, _, answer = calls[-1]
    last = run["messages"].index(answer)
    if position != 0 or any(message["role"] == "tool" for message in run["messages"][last + 1 :]):
        return set()
    run["messages"] = run["messages"][:last]
    return {("not-executed", turn, position)}


PLANTERS: dict[str, Callable[[dict[str, Any], random.Random], set[Place]]] = {
    "replay": _replay,
    "executed-differs": _differ,
    "mis-pairing": _swap,
    "truncation": _cut,
    "not-executed": _drop,
}


def plant_agentdojo(cases: int, shared: Path, scratch: Path) -> Iterator[Case]:
    """Every planter on runs of its own, and as many untouched runs beside them."""
    archive = shared / "agentdojo" / "runs_full.tar.zst"
    if not archive.exists():
        return
    rng, planted, truths = random.Random(7), Counter[str](), dict[str, set[Place]]()
    for member in walk_members(archive):
        if all(planted[kind] >= cases for kind in PLANTERS):
            break
        parts = [] if isinstance(member, Failure) else member.name.split("/")[-5:]
        if isinstance(member, Failure) or len(parts) < 5 or not parts[-1].endswith(".json") or rng.random() < 0.5:
            continue
        run = json.loads(member.read())
        kind = min(PLANTERS, key=lambda kind: planted[kind])
        truth = PLANTERS[kind](run, rng) if rng.random() < 0.6 else set()
        if run["messages"] and not truth:
            run = json.loads(member.read())
        planted[kind] += bool(truth)
        target = scratch.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(run), encoding="utf-8")
        truths["/".join(parts)] = truth
    judged = {*PLANTERS, "late-edit", "mutation", "duplicate", "stale-cache"} - {"not-executed"}
    for episode in read_log(scratch):
        truth = truths[episode.record]
        # runs that end on an unexecuted call by themselves are no negatives of that kind
        yield "AgentDojo", episode, truth, judged | {kind for kind, *_ in truth}


def read_inspect(shared: Path) -> Iterator[Case]:
    """The corpus of known truth, by the names of its samples."""
    path = shared / "logs" / "inspect" / "current_0.3.285" / "litmus_corpus_ground_truth.eval"
    for episode in read_log(path, violation="violation=1") if path.exists() else ():
        name = episode.record.split("#")[1]
        truth = {("replay", 2, 0)} if name.startswith("repairer-replay") else set[Place]()
        if name.startswith("reader-truncation"):
            truth = {("truncation", 1, 0), ("truncation", 2, 0)}
        yield "Inspect corpus", episode, truth, {*SHOWN_KINDS, *CALL_KINDS, *WHOLE_KINDS} - {"not-reached"}


def count_duplicates(cases: int) -> dict[str, list[int]]:
    """Records kept twice among others that share nothing, or only counted ids."""
    index, truth = DuplicateIndex(), set()
    for number in range(4 * cases):
        rng = random.Random(f"duplicate/{number}")
        episode = record_run(make_run(rng, rng.randrange(2, 6), {}, alike=False))
        index.add(episode)
        if number % 4 == 0:
            copy = replace(episode, source=replace(episode.source, path="again"))
            index.add(copy)
            truth |= {(one.record, str(one.source)) for one in (episode, copy)}
    found = set(index.evidence())
    return {"duplicate": [len(truth), len(truth & found), len(found - truth)]}


def _blur(kind: str, turn: int | None, position: int | None) -> Place:
    return kind, turn, None if kind in WHOLE_TURN else position


def _name_place(episode: Episode, turn: int | None) -> str:
    last = len(episode.transcript.calls)
    return (
        "whole episode" if turn is None else "first turn" if turn == 1 else "last two turns" if turn >= last - 1 else "between"
    )


def measure(cases: Iterator[Case]) -> dict[tuple[str, str, str], list[int]]:
    """Cases, found and false by corpus, kind and place; the place ``all`` sums up."""
    tally: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for corpus, episode, truth, kinds in cases:
        found = {_blur(e.kind, e.turn, e.position) for e in find_artifacts(episode) if e.kind in kinds}
        for place in truth | found:
            for where in ("all", _name_place(episode, place[1])):
                row = tally[corpus, place[0], where]
                row[0] += place in truth
                row[1] += place in truth and place in found
                row[2] += place not in truth
    return tally


def tabulate(tally: dict[tuple[str, str, str], list[int]]) -> Table:
    """The tally with its limits."""
    rows = []
    for (corpus, kind, where), (cases, found, false) in sorted(tally.items()):
        limits = [wilson_limits(k, n, 0.95) for k, n in ((found, cases), (found, found + false))]
        shares = [k / n if n else None for k, n in ((found, cases), (found, found + false))]
        bounds = [float(bound) for pair in limits for bound in pair]
        rows.append((corpus, kind, where, cases, found, false, shares[0], *bounds[:2], shares[1], *bounds[2:]))
    columns = (
        "corpus",
        "kind",
        "place",
        "cases",
        "found",
        "false",
        "recall",
        "r low",
        "r high",
        "precision",
        "p low",
        "p high",
    )
    return Table(columns=columns, rows=tuple(rows), caption="Finders on planted faults, 95 % Wilson limits")


def _misses(share: float | None, target: float) -> bool:
    return share is not None and share < target


def measure_growth() -> float:
    """Time per message at 1,000 turns over that at 10."""

    def cost(turns: int, repeats: int) -> float:
        episodes = [record_run(make_run(random.Random(n), turns, {}, alike=False)) for n in range(repeats)]
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()
            for episode in episodes:
                find_artifacts(episode)
            best = min(best, time.process_time() - begin)
        return best / sum(len(episode.transcript.messages) for episode in episodes)

    return cost(1000, 2) / cost(10, 200)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300, help="cases per kind, at least")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="where real logs stand")
    parser.add_argument("--json", help="write the rows to a file, or - for standard output")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tally = measure(plant_made_up(chosen.cases))
        tally |= measure(plant_reference(chosen.cases))
        tally |= measure(plant_agentdojo(chosen.cases, chosen.shared, Path(scratch)))
        tally |= measure(read_inspect(chosen.shared))
    tally |= {("several episodes", kind, "all"): row for kind, row in count_duplicates(chosen.cases).items()}
    table, growth = tabulate(tally), measure_growth()
    missed = [row for row in table if row[2] == "all" and (_misses(row[6], RECALL) or _misses(row[9], PRECISION))]
    if chosen.json:
        text = json.dumps({"rows": table.to_records(), "growth": growth, "missed": len(missed)}, indent=1)
        sys.stdout.write(text) if chosen.json == "-" else Path(chosen.json).write_text(text, encoding="utf-8")
    if chosen.json != "-":
        print(table.to_text())
        print(f"\ncost per message at 1,000 turns over that at 10: {growth:.2f} (at most 1.5)")
        print(f"{len(missed)} kinds below recall {RECALL} or precision {PRECISION}")
    return 1 if missed or growth > 1.5 else 0


if __name__ == "__main__":
    sys.exit(main())
