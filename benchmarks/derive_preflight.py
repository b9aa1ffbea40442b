"""Derive notebooks/tables/{agentdojo_preflight,preflight_rates}.csv and preflight_examples.json with the extra `agentdojo`.

    python benchmarks/derive_preflight.py KEEP [RUNS]

KEEP is a folder for finished records (an interrupted run goes on); RUNS the unpacked published runs of AgentDojo, without which
the rates are left as they are. PyYAML's C loader stands in for its Python one: the same documents, five times as fast.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import yaml

from litmuskit.preflight import POLICIES
from litmuskit.preflight.agentdojo import VERSIONS, VICTIM, check_suites
from litmuskit.readers import read_log

TABLES = Path(__file__).resolve().parents[1] / "notebooks" / "tables"
KINDS = ("null", "refuse", "quote-and-refuse", "comply", "no-op")
EXAMPLES = ("workspace/user_task_14/injection_task_0", "travel/user_task_0/injection_task_6")
TELLING = 30.0  # bits from which a whole value in the user's own prompt is no common word


def read_payloads(key: str) -> dict:
    """What stands where in the environment of an attacked v1 pair."""
    from agentdojo.attacks.attack_registry import load_attack
    from agentdojo.task_suite.load_suites import get_suites

    name, user, injection = key.split("/")
    suite = get_suites("v1")[name]
    attack = load_attack("important_instructions", suite, SimpleNamespace(name=VICTIM))
    return attack.attack(suite.user_tasks[user], suite.injection_tasks[injection])


def in_prompt(record: dict) -> bool:
    return any(c["where"] == "user: prompt" and c["share"] == 1 and c["bits"] >= TELLING for c in record["collisions"])


def write_rows(name: str, columns: tuple, rows: list) -> None:
    with (TABLES / name).open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def main(keep: Path, runs: Path | None = None) -> None:
    yaml.safe_load = partial(yaml.load, Loader=yaml.CSafeLoader)
    keep.mkdir(exist_ok=True)
    groups, verdicts, examples = Counter(), {}, {}
    for version in VERSIONS:
        started = time.monotonic()
        records = list(check_suites(version, resume=keep / f"{version}.jsonl"))
        print(f"{version}: {len(records)} instances in {time.monotonic() - started:.0f} s")
        for record in records:
            controls = [record["controls"][kind]["result"] for kind in KINDS]
            notes = {rule["name"]: rule for rule in record["rules"]}
            order, crossed = notes["order of tasks"]["result"], len(notes["cross-fire"]["detail"].split())
            findings = sum(c["finding"] for c in record["collisions"] if c["where"].startswith("payload"))
            groups[(version, record["suite"], record["injection_task"], *controls, "yes" if in_prompt(record) else "no",
                    "yes" if findings else "no", order, crossed, *record["valid"].values())] += 1  # fmt: skip
            verdicts[record["instance"]] = record["valid"]
            if version == "v1":
                examples[record["instance"]] = record
    columns = (
        "version",
        "suite",
        "injection_task",
        *KINDS,
        "in_user_prompt",
        "in_payload",
        "order",
        "fired_by",
        "literal",
        "behavioural",
        "pairs",
    )
    write_rows("agentdojo_preflight.csv", columns, [(*key, n) for key, n in sorted(groups.items())])
    shown = [examples[key] | {"payloads": read_payloads(key)} for key in EXAMPLES]
    (TABLES / "preflight_examples.json").write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    if runs is not None:
        write_rates(runs, verdicts)


def write_rates(runs: Path, verdicts: dict) -> None:
    """Per published pipeline: flagged and attacked episodes, all and those on valid instances (verdicts of v1.2.2)."""
    counts = defaultdict(Counter)
    for folder in sorted(path for path in runs.iterdir() if path.is_dir()):
        for episode in read_log(folder, keep_going=True):
            if not episode.attacked or "/important_instructions/" not in episode.record or episode.instance not in verdicts:
                continue
            valid = verdicts[episode.instance]
            for policy in ("reported", *valid):
                if valid.get(policy, "yes") == "yes":
                    counts[folder.name][policy, episode.flagged] += 1
    rows = []
    for name, count in counts.items():
        pairs = [(count[policy, True], count[policy, True] + count[policy, False]) for policy in ("reported", *POLICIES)]
        rows.append((name, *(cell for pair in pairs for cell in pair)))
    write_rows("preflight_rates.csv", ("pipeline", "x", "N", "x_literal", "N_literal", "x_behavioural", "N_behavioural"), rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
