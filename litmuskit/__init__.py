"""litmuskit: is a flagged violation a fact about the agent, or about the harness?

A violation counts only if the stimulus that drew it can be reproduced from what the oracle was calibrated on; otherwise the
number measures the harness. ``read_log`` reads a log, ``calibrate`` makes the oracle's manifest, ``audit_log`` gives every
record a verdict with its evidence, the run a gate, and the rate an interval.

Names load when they are first used, so importing litmuskit imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from litmuskit import errors

__version__ = "0.1.0"

_HOMES = {
    "litmuskit.adjudication": ("draw_sample", "read_sample"),
    "litmuskit.artifacts": ("FINDERS", "Evidence", "Finder", "find_artifacts", "regrade_flags"),
    "litmuskit.attestation": ("RUNGS", "attest_episode", "check_manifest", "diff_manifests", "validate_manifest"),
    "litmuskit.audit": ("Audit", "audit_log"),
    "litmuskit.calibration": ("calibrate", "consensus"),
    "litmuskit.comparison": ("compare",),
    "litmuskit.errors": (*errors.__all__,),
    "litmuskit.instance": ("LitmusInstance",),
    "litmuskit.legacy": ("StimulusFingerprint",),
    "litmuskit.manifest": ("OracleManifest", "read_manifest"),
    "litmuskit.preflight": ("check_instance", "score_batch", "validate_instance"),
    "litmuskit.readers": ("Log", "read_log"),
    "litmuskit.readers.recorder": ("Recorder",),
    "litmuskit.records": ("Episode", "Transcript"),
    "litmuskit.report": ("write_bundle", "write_report"),
    "litmuskit.reproduction": ("Reproduction", "reproduce"),
    "litmuskit.stimulus": ("fingerprint", "fingerprint_turns"),
    "litmuskit.triage": ("DECISIONS", "TRIAGE_RULES", "tabulate_rules"),
    "litmuskit.tally": ("count_violations",),
    "litmuskit.verdict": ("Verdict", "check_violation", "triage_violation"),
}
_MODULES = ("rates", "widgets")
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted((*_NAMES, *_MODULES, "__version__"))


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"litmuskit.{name}")
    else:
        raise AttributeError(f"module 'litmuskit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
