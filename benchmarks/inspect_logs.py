"""Reading an Inspect log and fingerprinting every model call, against Inspect's own reader; and what the live hook costs.

    python benchmarks/inspect_logs.py [LOG] [--hook]

Needs the extra ``inspect``. Without LOG, a log of 200 samples x 30 turns is made with the mock model first (minutes). Both
readers run in one process, turn about; the ratio is of the fastest passes, in processor time, so that another machine, or a
busy one, gives about the same number. Memory is the peak of a process that does one pass. ``--hook`` runs the mock model
with and without the recorder. Exits 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FASTER, SMALLER, DEARER, PASSES = 15.0, 5.0, 1.25, 5
MAKE = r"""
import json, sys, time
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, mean, scorer
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import tool

samples, turns, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

@tool
def read_file():
    async def execute(path: str):
        '''Read a file and return a JSON observation from the sandboxed workspace.

        Args:
            path: file to read
        '''
        rows = [{"id": n, "name": f"user-{path}-{n}", "note": "checked by two people"} for n in range(24)]
        return json.dumps({"path": path, "rows": rows})
    return execute

@scorer(metrics=[mean()])
def violation():
    async def score(state, target):
        return Score(value=int(state.sample_id[1:]) % 2)
    return score

def play():
    while True:
        for turn in range(turns):
            more = {"path": f"file-{turn}.json"}
            call = ModelOutput.for_tool_call("mockllm/model", "read_file", more)
            out = call if turn < turns - 1 else ModelOutput.from_content("mockllm/model", "done")
            out.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            yield out

solver = [system_message("You are a careful agent. " * 20), use_tools(read_file()), generate()]
dataset = [Sample(id=f"s{n}", input=f"read, task {n}") for n in range(samples)]
task = Task(dataset=dataset, solver=solver, scorer=violation(), name="bench")
start = time.process_time()
log = eval(task, model=get_model("mockllm/model", custom_outputs=play()), log_dir=folder, display="none", max_samples=1)[0]
print(json.dumps({"seconds": time.process_time() - start, "path": log.location.removeprefix("file://"), "status": log.status}))
"""
ALONE = """
import resource, sys
sys.path.append(sys.argv[1])
import inspect_logs
getattr(inspect_logs, sys.argv[2])(sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def make_log(samples: int, turns: int, folder: str, **env: str) -> dict:
    command = [sys.executable, "-c", MAKE, str(samples), str(turns), folder]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def read_ours(path: str) -> int:
    from litmuskit.readers import read_log
    from litmuskit.stimulus import fingerprint_turns

    rule = ("violation=1", "sc=1")
    return sum(len(fingerprint_turns(episode.transcript)) for episode in read_log(path, violation=rule))


def read_theirs(path: str) -> int:
    from inspect_ai.log import read_eval_log

    log = read_eval_log(path, resolve_attachments="core")
    return sum(event.event == "model" for sample in log.samples or [] for event in sample.events)


def time_pass(work: Callable[[str], int], path: str) -> tuple[float, int]:
    start = time.process_time()
    calls = work(path)
    return time.process_time() - start, calls


def measure_peak(name: str, path: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(Path(__file__).parent), name, path], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def compare_readers(path: str) -> bool:
    small, large = measure_peak("read_ours", path), measure_peak("read_theirs", path)  # first: a child inherits the peak
    passes = [(time_pass(read_ours, path), time_pass(read_theirs, path)) for _ in range(PASSES)]
    ours, theirs = (min(one[side] for one in passes) for side in (0, 1))
    if ours[1] != theirs[1]:
        sys.exit(f"the readers disagree: {ours[1]} and {theirs[1]} model calls")
    speed, size = theirs[0] / ours[0], large / small
    print(f"{ours[1]:,} model calls, {Path(path).stat().st_size / 1e6:.1f} MB")
    print(f"read + fingerprint {ours[0]:.2f} s, read_eval_log {theirs[0]:.2f} s: {speed:.1f} times (limit {FASTER})")
    print(f"peak {small:.0f} MB, read_eval_log {large:.0f} MB: 1/{size:.1f} (limit 1/{SMALLER})")
    return speed >= FASTER and size >= SMALLER


def compare_hook() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        pairs = [[make_log(4, 30, folder, LITMUSKIT_RECORD=switch)["seconds"] for switch in ("on", "off")] for _ in range(3)]
    on, off = (min(pair[side] for pair in pairs) for side in (0, 1))
    print(f"120 model calls without latency: {on:.2f} s recorded, {off:.2f} s not: {on / off:.2f} times (limit {DEARER})")
    return on / off <= DEARER


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?")
    parser.add_argument("--hook", action="store_true")
    said = parser.parse_args()
    if said.hook:
        return 0 if compare_hook() else 1
    with tempfile.TemporaryDirectory() as folder:
        path = said.log or make_log(200, 30, folder, LITMUSKIT_RECORD="off")["path"]
        return 0 if compare_readers(path) else 1


if __name__ == "__main__":
    sys.exit(main())
