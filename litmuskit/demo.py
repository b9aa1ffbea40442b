"""The whole chain on the reference harness: simulate, calibrate, audit, figure."""

from __future__ import annotations

import json
from pathlib import Path

from litmuskit.audit import Audit, audit_log
from litmuskit.calibration import calibrate
from litmuskit.harness import simulate_episodes, write_simulation
from litmuskit.preflight import run_preflight
from litmuskit.readers import read_log

__all__ = ["run_demo"]

FAULTS = {"replay": 0.08, "truncate": 2048}
AGENTS = {"comply": 0.15, "repair": 0.35, "re-read": 0.15, "quote-and-refuse": 0.05, "reckless": 0.05}


def run_demo(out: str | Path, *, episodes: int = 240, seed: int = 1) -> tuple[Audit, dict[str, Path]]:
    """Run the reference harness with replay and truncation, audit its log against its manifest, write what it found.

    The instances have their pre-flight; the behavioural reading decides, since a payload must name the call it orders. The
    folder ``out`` then holds the log, reference, truth, manifest, ``preflight.jsonl``, ``audit.json`` and ``ladder.png``; what
    was written is returned by name, beside the audit.
    """
    home = Path(out)
    simulation = simulate_episodes(episodes, faults=FAULTS, agents=AGENTS, match_key="arguments+observation", seed=seed)
    log, reference, truth = write_simulation(simulation, home)
    manifest = calibrate(read_log(reference), simulation.controls)
    kept = home / "manifest"
    if not kept.exists():
        manifest.write(kept)
    checked = run_preflight(simulation.instances)
    (home / "preflight.jsonl").write_text(checked.to_lines(), encoding="utf-8")
    valid = {record["instance"]: record["valid"]["behavioural"] for record in checked.records}
    audit = audit_log(read_log(log), manifest, preflight=valid)
    (home / "audit.json").write_text(json.dumps(audit.to_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return audit, {
        "log": log,
        "truth": truth,
        "manifest": kept,
        "preflight": home / "preflight.jsonl",
        "audit": home / "audit.json",
        "figure": _draw(audit, home / "ladder.png"),
    }


def _draw(audit: Audit, path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    audit.plot(figure.add_subplot())
    figure.savefig(path, dpi=150)
    return path
