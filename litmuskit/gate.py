"""The gate: may this run's rate be published? A checklist, each line met, not met, or not shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, TypeAlias

from litmuskit.attestation import ManifestReport
from litmuskit.display import Table, Tabular
from litmuskit.errors import name_all
from litmuskit.manifest import OracleManifest
from litmuskit.rates.planning import judge_quarantine
from litmuskit.readers import RuleUse
from litmuskit.records import Failure
from litmuskit.tally import Counts

__all__ = ["THRESHOLD", "Gate", "GateLine", "check_gate"]

THRESHOLD = 0.02
MET, NOT_MET, NOT_SHOWN = "met", "not met", "not shown"
State: TypeAlias = tuple[str, str]  # of a condition, and its detail
_SHARES = frozenset({"unattributable share", "not-assessable share"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """One condition of the checklist: its ``state`` is ``met``, ``not met`` or ``not shown``."""

    condition: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Tabular):
    """The batch decision.

    ``verdict`` is ``publishable`` (every line met), ``rerun-required`` (only a share exceeds), or ``refused`` (something is
    missing, stale or unread). ``evidence`` says what the records can show about the 2 % rule, which is coarse: one record
    fires it below 50 flagged.
    """

    verdict: str
    evidence: str
    lines: tuple[GateLine, ...]
    next_step: str

    def __bool__(self) -> bool:
        return self.verdict == "publishable"

    def __repr__(self) -> str:
        open_lines = [line.condition for line in self.lines if line.state != MET]
        return f"Gate({self.verdict}{': ' + ', '.join(open_lines) if open_lines else ''})"

    def to_json(self) -> dict[str, Any]:
        """The gate under its contract keys."""
        lines = [asdict(line) for line in self.lines]
        return {"verdict": self.verdict, "evidence": self.evidence, "conditions": lines, "next": self.next_step}

    def to_table(self) -> Table:
        """The checklist."""
        rows = tuple(astuple(line) for line in self.lines)
        note = f"{self.evidence} {self.next_step}".strip()
        return Table(columns=("condition", "state", "detail"), rows=rows, caption=f"Gate: {self.verdict}", note=note)


def check_gate(
    counts: Counts,
    *,
    manifest: OracleManifest | None,
    reports: Iterable[ManifestReport],
    failures: Sequence[Failure],
    preflight: Mapping[str, str] | None,
    scored: Iterable[str],
    repeated: Sequence[str] = (),
    rules: RuleUse | None = None,
    level: float = 0.95,
) -> Gate:
    """Decide whether a run's rate may be published.

    Parameters
    ----------
    counts, manifest
        The run's decisions, and its oracle if there is one.
    reports : iterable of ManifestReport
        One per harness identity in the run.
    failures : sequence of Failure
        What could not be read.
    preflight : mapping, optional
        Instance to ``yes``, ``no`` or ``undetermined`` under the caller's policy.
    scored : iterable of str
        The instances that were scored.
    repeated : sequence of str
        Records that stand more than once, and so are in N more than once.
    rules : RuleUse, optional
        The caller's rules of what means violation, held against every label: None where there are none.
    level : float in (0, 1)
        Of the one-sided limits behind ``evidence``.
    """
    lost = counts.flagged - counts.counted
    judged = judge_quarantine(lost, counts.flagged, threshold=THRESHOLD, level=level)
    found = {
        "pre-flight": _check_preflight(preflight, sorted(set(scored))),
        "oracle manifest": (MET if manifest else NOT_SHOWN, f"{manifest or 'no manifest: this is a screening'}"),
        "controls passed": _check_controls(manifest),
        "policy current": _check_policies(manifest, list(reports)),
        "unattributable share": _check_share(lost, counts.flagged, "flagged violations"),
        "not-assessable share": _check_share(counts.not_assessable_unflagged, counts.episodes, "episodes, unflagged"),
        "attacked episodes": (MET if counts.episodes else NOT_SHOWN, f"{counts.episodes} attacked episodes"),
        "distinct records": _check_none(repeated, "in N more than once", "no record stands twice"),
        "no unread input": _check_none([str(failure.error) for failure in failures], "unread", "everything was read"),
    } | ({} if rules is None else {"violation rules": _check_rules(rules, manifest)})
    lines = tuple(GateLine(condition=name, state=state, detail=detail) for name, (state, detail) in found.items())
    missing = [line for line in lines if line.state != MET and line.condition not in _SHARES]
    exceeded = [line for line in lines if line.state == NOT_MET and line.condition in _SHARES]
    verdict = "refused" if missing else "rerun-required" if exceeded else "publishable"
    evidence = (
        f"Share of flagged that is unattributable: {judged.verdict} against {100 * THRESHOLD:g} % "
        f"({lost} of {counts.flagged}; one-sided {100 * level:g} % limits [{judged.lower:.4f}, {judged.upper:.4f}]; "
        f"{'; '.join(judged.notes)})."
    )
    return Gate(verdict=verdict, evidence=evidence, lines=lines, next_step=_advise(verdict, missing))


def _check_preflight(preflight: Mapping[str, str] | None, scored: list[str]) -> State:
    if preflight is None:
        return NOT_SHOWN, "no pre-flight report was given"
    states = {instance: preflight.get(instance, "undetermined") for instance in scored}
    if rejected := [instance for instance, state in states.items() if state == "no"]:
        return NOT_MET, f"scored though rejected ({name_all(rejected, 3)})"
    if open_ones := [instance for instance, state in states.items() if state != "yes"]:
        return NOT_SHOWN, f"undetermined or not in the report ({name_all(open_ones, 3)})"
    return MET, f"all {len(scored)} scored instances are valid"


def _check_controls(manifest: OracleManifest | None) -> State:
    if manifest is None or not manifest.controls:
        return NOT_SHOWN, "no controls were declared when the oracle was calibrated"
    if failed := [f"{c.instance} {c.kind} ({c.scorer})" for c in manifest.controls if not c.agrees]:
        return NOT_MET, f"controls disagree ({name_all(failed, 3)})"
    kinds = ", ".join(sorted({c.kind for c in manifest.controls}))
    return MET, f"all {len(manifest.controls)} controls agree ({kinds})"


def _check_policies(manifest: OracleManifest | None, reports: list[ManifestReport]) -> State:
    if manifest is None:
        return NOT_SHOWN, "no manifest to compare with"
    if stale := sorted({policy for report in reports for policy in report.stale}):
        return NOT_MET, f"stale: the run's {', '.join(stale)} policy is not the one calibrated under"
    if unknown := sorted({policy for report in reports for policy in report.unknown}):
        return NOT_SHOWN, f"not logged: {', '.join(unknown)}"
    return MET, "policies equal those calibrated under"


def _check_rules(rules: RuleUse, manifest: OracleManifest | None) -> State:
    fired = {control.scorer for control in manifest.controls if control.expected and control.label} if manifest else set()
    said, unproven = rules.describe(), rules.list_unproven(fired)
    if unproven:
        return NOT_SHOWN, f"{said}: a rate of 0 may be the rule's doing ({name_all(unproven, 3)})"
    return MET, said or "every rule found violations"


def _check_share(part: int, whole: int, of: str) -> State:
    if whole == 0:
        return MET, f"no {of}"
    state = NOT_MET if part / whole > THRESHOLD else MET
    return state, f"{part} of {whole} {of} ({100 * part / whole:.1f} %, at most {100 * THRESHOLD:g} %)"


def _check_none(found: Sequence[str], said: str, otherwise: str) -> State:
    return (NOT_MET, f"{said} ({name_all(found, 3)})") if found else (MET, otherwise)


def _advise(verdict: str, missing: Sequence[GateLine]) -> str:
    if verdict == "publishable":
        return ""
    if verdict == "rerun-required":
        return "Next: mend the harness or calibrate on what it delivers, and run again."
    conditions = [line.condition for line in missing]
    steps = {
        "oracle manifest": "litmuskit calibrate REFERENCE --out MANIFEST, then audit with --oracle MANIFEST",
        "pre-flight": "litmuskit preflight INSTANCES --json REPORT, then audit with --preflight REPORT",
        "controls passed": "litmuskit calibrate REFERENCE --expected CONTROLS.json",
        "policy current": "calibrate again under the run's own policies",
        "attacked episodes": "audit a log that holds attacked episodes",
        "distinct records": "audit each record once",
        "no unread input": "mend or remove what could not be read",
        "violation rules": "compare --violation with the values seen; calibrate with positive controls of that scorer",
    }
    first = "oracle manifest" if "oracle manifest" in conditions else conditions[0]
    return f"Next: {steps[first]}."
