"""Cost of auditing AgentDojo's published runs, as a multiple of reading them with `json.load`, and peak memory.

    python benchmarks/published_runs.py RUNS

RUNS is an unpacked ``runs/`` folder or any part of it. The loops run in one process, turn about, and the ratio is of the
fastest passes in processor time: another machine, or a busy one, gives about the same number. Memory is the peak of it all.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import litmuskit as lk

LIMIT, AIM, MEMORY = 10.0, 4.0, 1024.0


def load_all(root: Path) -> int:
    paths = sorted(root.rglob("*.json"))
    for path in paths:
        with path.open(encoding="utf-8") as stream:
            json.load(stream)
    return len(paths)


def read_all(root: Path) -> int:
    return sum(1 for _ in lk.read_log(root))


def audit_all(root: Path) -> int:
    return len(lk.audit_log(lk.read_log(root)).verdicts)


def time_pass(work: Callable[[Path], int], root: Path) -> tuple[float, int]:
    start = time.process_time()
    count = work(root)
    return time.process_time() - start, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--passes", type=int, default=2, help="passes of each loop; the fastest counts (default 2)")
    options = parser.parse_args()
    names = ("json.load", "read_log", "audit_log")
    best = dict.fromkeys(names, float("inf"))
    counts = {}
    for _ in range(options.passes):
        for name, work in zip(names, (load_all, read_all, audit_all), strict=True):
            seconds, counts[name] = time_pass(work, options.runs)
            best[name] = min(best[name], seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if len(set(counts.values())) > 1:
        raise SystemExit(f"files lost: {counts}")
    print(f"{counts['json.load']:,} files")
    for name in names:
        ratio = best[name] / best["json.load"]
        print(f"{name:10} {best[name]:8.2f} s   {ratio:6.2f} x json.load   {best[name] / counts[name] * 1e6:8.0f} us/file")
    total = best["audit_log"] / best["json.load"]
    print(f"audit: {total:.1f} x (limit {LIMIT:.0f}, aim {AIM:.0f}): {'within' if total <= LIMIT else 'EXCEEDS'}")
    print(f"peak memory {peak:,.0f} MB (limit {MEMORY:,.0f}): {'within' if peak <= MEMORY else 'EXCEEDS'}")


if __name__ == "__main__":
    main()
