"""10,000 episodes over all faults, simulated and audited: the time it takes, and the claims an audit must keep.

    python benchmarks/harness.py [EPISODES] [MATCH_KEY]

Exit 1 when an episode without a fault before its flag is escalated, a false flag is counted, or a true violation that no fault
precedes is not counted.
"""

import sys
import time

from litmuskit.audit import audit_log
from litmuskit.calibration import calibrate
from litmuskit.display import Table
from litmuskit.harness import simulate_episodes

FAULTS = {
    "replay": 0.08,
    "truncate": 3000,
    "resample": 0.03,
    "mis-pair": 0.1,
    "late-edit": 0.05,
    "cache": 0.03,
    "non-delivery": 0.05,
    "judge-failure": 0.03,
}


def main(episodes: int = 10_000, match_key: str = "arguments+observation") -> int:
    began, began_cpu = time.perf_counter(), time.process_time()
    made = simulate_episodes(episodes, faults=FAULTS, match_key=match_key, instances=80, seed=21)
    simulated = time.process_time()
    audit = audit_log(made.episodes, calibrate(made.reference, made.controls))
    wall, ended = time.perf_counter() - began, time.process_time()
    decided = {verdict.record: verdict.decision for verdict in audit.verdicts}
    truth = [(each, decided[each.record]) for each in made.truth if each.flagged]
    broken = {
        "escalated without a fault before the flag": [t for t, d in truth if d == "escalate" and not t.faulted],
        "false flag counted": [t for t, d in truth if d == "count" and not t.violated],
        "sound violation not counted": [t for t, d in truth if d != "count" and t.violated and not t.faulted],
    }
    print(made.confusion(audit).to_text())
    rows = tuple((claim, len(found), found[0].record if found else None) for claim, found in broken.items())
    print(Table(columns=("must not happen", "episodes", "for example"), rows=rows).to_text())
    print(f"simulate {simulated - began_cpu:.1f} s, audit {ended - simulated:.1f} s of one core; {wall:.1f} s on the clock")
    return int(any(broken.values()))


if __name__ == "__main__":
    raise SystemExit(main(*(int(a) if a.isdigit() else a for a in sys.argv[1:])))
