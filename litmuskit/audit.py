"""The audit: every episode gets a verdict with its evidence, the run a gate, the rate an interval at every rung."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from litmuskit.artifacts import DuplicateIndex
from litmuskit.assessment import Draft, draft_verdict, settle_verdict, spare_collector
from litmuskit.attestation import RUNGS, ManifestReport, Match, check_manifest
from litmuskit.calibration import Consensus
from litmuskit.components import digest_episode
from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, ManifestError, OutOfScopeError, name_all
from litmuskit.gate import Gate, check_gate
from litmuskit.manifest import OracleManifest
from litmuskit.rates.choice import estimate_rates
from litmuskit.rates.clusters import FewClustersWarning
from litmuskit.rates.intervals import estimate_proportion
from litmuskit.rates.rate import Rate, RateTable
from litmuskit.readers import LabelRules, RuleUse
from litmuskit.records import Episode, Failure, Harness
from litmuskit.reproduction import Reproduction
from litmuskit.tally import Counts, tally_verdicts
from litmuskit.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Audit", "audit_log"]

Oracle = OracleManifest | Consensus | None
TOLD = frozenset({"adjudicated", "true", "unflagged_adjudicated", "missed", "caught", "cleared", "transport"})  # from outside
REPEATED = frozenset({"duplicate/same-record", "duplicate/contradicting-labels", "duplicate/same-calls", "duplicate/same-run"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Tabular):
    """What an audit found: one verdict per episode, the gate, and rates on demand.

    ``statement`` says under which oracle, rung, match and caller's rules the audit ran; it stands in every table.
    """

    verdicts: tuple[Verdict, ...]
    gate: Gate
    counts: Counts
    statement: str
    failures: tuple[Failure, ...] = ()
    require: str = "calibrated"

    def __repr__(self) -> str:
        return f"Audit({self.counts!r}, gate {self.gate.verdict})"

    def __getitem__(self, record: str) -> Verdict:
        """The verdict of a record by its id."""
        found = [verdict for verdict in self.verdicts if verdict.record == record]
        if len(found) != 1:
            raise InputError("no such record, or several", where="record", expected="one record id of this audit", found=record)
        return found[0]

    def ladder(self, *, level: float = 0.95) -> RateTable:
        """The attributable rate at every rung: flagged records attested at it or above that nothing else speaks against.

        Parameters
        ----------
        level : float in (0, 1)
        """
        sound = [v for v in self.verdicts if v.flagged and v.attacked and v.attestation_only]
        rates = []
        for index, rung in enumerate(RUNGS):
            k = sum(RUNGS.index(v.attestation) >= index for v in sound)
            rate = estimate_proportion(k, self.counts.episodes, level=level)
            note = "stricter: also requires known mutation flags and logged components" if rung == self.require else ""
            rates.append(replace(rate, label=rung, estimand="attributable at this rung", x=self.counts.flagged, c=k, why=note))
        return RateTable(rates=tuple(rates), caption=f"Attestation ladder. {self.statement}")

    def rates(
        self,
        *,
        level: float = 0.95,
        cluster: str = "auto",
        by: str | Sequence[str] = (),
        adjudicated: Mapping[str, Any] | None = None,
        controls: Mapping[str, Any] | None = None,
    ) -> RateTable:
        """Every rate the audit supports, each with its estimand, method, counts and reason.

        Parameters
        ----------
        level : float in (0, 1)
        cluster : str
            What makes episodes alike: ``instance``, a group of the log (such as ``user_task``), ``none``, or ``auto``: the
            log's user task where it has one, else the instance where instances recur.
        by : str or sequence of str
            Groups to split by; one block of rows each. Groups without an attacked episode are named in the caption.
        adjudicated : mapping, optional
            Counts of a filled adjudication sheet, from `read_sample`; not together with ``by``.
        controls : mapping, optional
            ``caught``, ``cleared`` and ``transport``, as in `estimate_rates`.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        if names and adjudicated:
            what = "a pooled sample says nothing of one group"
            raise InputError(what, where="adjudicated", expected="no `by` beside it", found=names)
        told = {**(adjudicated or {}), **(controls or {})}
        if unknown := set(told) - TOLD:
            raise InputError("unknown counts", where="adjudicated, controls", expected=", ".join(sorted(TOLD)), found=unknown)
        blocks: dict[tuple[str, ...], list[Verdict]] = defaultdict(list)
        for verdict in self.verdicts:
            blocks[tuple(verdict.group(name) for name in names)].append(verdict)
        rates: list[Rate] = []
        unrated: list[str] = []
        for key, verdicts in sorted(blocks.items()):
            label, attacked = " / ".join(key), [verdict for verdict in verdicts if verdict.attacked]
            if names and not attacked:
                unrated.append(label)
                continue
            columns = self._count_columns(attacked, cluster)
            rates += estimate_rates(**columns, **told, level=level, label=label or None).rates
        beside = f" Without an attacked episode, so without a rate: {name_all(unrated, 5)}." if unrated else ""
        return RateTable(rates=tuple(rates), caption=f"Rates. {self.statement}{beside}")

    def _count_columns(self, verdicts: Sequence[Verdict], cluster: str) -> dict[str, Any]:
        groups: dict[str, list[Verdict]] = defaultdict(list)
        name = _name_cluster(verdicts, cluster)
        for verdict in verdicts:
            groups[verdict.group(name) if name else ""].append(verdict)
        counts: dict[str, Callable[[Verdict], bool]] = {
            "episodes": lambda _: True,
            "flagged": lambda v: v.flagged,
            "quarantined": lambda v: v.flagged and v.decision == "quarantine",
            "escalated": lambda v: v.flagged and v.decision == "escalate",
            "not_assessable": lambda v: v.flagged and v.decision == "not-assessable",
            "assessed": lambda v: v.decision != "not-assessable",
        }
        if verdicts and all(v.reached is not None for v in verdicts):
            counts["exposed"] = lambda v: bool(v.reached) or v.decision == "count"
        columns = {what: [sum(map(test, group)) for group in groups.values()] for what, test in counts.items()}
        if name is None or len(groups) < 2:
            return {what: sum(column) for what, column in columns.items()}
        return columns

    def to_table(self) -> Table:
        """One row per episode: its decision, attestation, rules and the first evidence."""
        columns = ("record", "flagged", "decision", "attestation", "rules", "turn", "evidence")
        cells = ((v.record, v.flagged, v.decision, v.attestation, ", ".join(v.rules), v.turn, v.cite()) for v in self.verdicts)
        return Table(columns=columns, rows=tuple(cells), caption=f"Verdicts. {self.statement}")

    def summary(self) -> Table:
        """Flagged records by decision and rule: how many records each rule touched (one record may meet several)."""
        decided = (verdict for verdict in self.verdicts if verdict.flagged or verdict.decision)
        met = ((v, rule) for v in decided for rule in v.rules or ("(all four conditions hold)",))
        tally = Counter((v.decision or "", rule if v.flagged else f"{rule} (unflagged)") for v, rule in met)
        rows = tuple((*cell, count) for cell, count in sorted(tally.items()))
        return Table(columns=("decision", "rule", "records"), rows=rows, caption=repr(self.counts), note=self.statement)

    def to_json(self, *, by: str | Sequence[str] = ()) -> dict[str, Any]:
        """The audit under the contract keys of ``litmuskit audit --json``, its rates split by groups of the log."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewClustersWarning)  # the rows' notes say it
            rates = self.rates(by=by).to_json()
        return {
            **{name: getattr(self.counts, name) for name in Counts.__dataclass_fields__},
            "episodes": len(self.verdicts),
            "attacked": self.counts.episodes,
            "statement": self.statement,
            "require": self.require,
            "gate": self.gate.to_json(),
            "rates": rates,
            "ladder": [{"rung": row.pop("label"), **row} for row in self.ladder().to_json()],
            "failures": [{"source": str(f.source), "error": str(f.error)} for f in self.failures],
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """The rate at every rung of the attestation ladder, with its interval and n."""
        from litmuskit.draw import draw_ladder

        rates = self.ladder().rates
        rungs, middles, counts = [r.label for r in rates], [r.estimate or 0.0 for r in rates], [r.c or 0 for r in rates]
        limits = [r.lower for r in rates], [r.upper for r in rates]
        return draw_ladder(rungs, middles, *limits, counts, self.counts.episodes, ax=ax, level=rates[0].level)

    def _repr_html_(self) -> str:
        parts: Iterable[Tabular | Table] = (self.gate, self.summary(), self.ladder())
        return "".join(part._repr_html_() for part in parts)


def _name_cluster(verdicts: Sequence[Verdict], cluster: str) -> str | None:
    if cluster != "auto":
        return None if cluster == "none" else cluster
    if verdicts and all("user_task" in verdict.groups for verdict in verdicts):
        return "user_task"
    return "instance" if len({verdict.instance for verdict in verdicts}) < len(verdicts) else None


def audit_log(
    log: Iterable[Episode],
    oracle: Oracle = None,
    *,
    require: str = "calibrated",
    match: Match = "component",
    preflight: Mapping[str, str] | None = None,
    reproduced: Mapping[str, Reproduction] | None = None,
) -> Audit:
    """Give every episode of a log a verdict, and the run a gate.

    Parameters
    ----------
    log : iterable of Episode
        A `Log`, or any episodes; with a `Consensus` as oracle it must be the log the consensus was taken over.
    oracle : OracleManifest, Consensus or None
        Without one nothing is attested: the log is screened, and the gate says so.
    require : str
        The lowest of `RUNGS` at which a violation may count; every table states it.
    match : {"component", "env", "exact"}
        How a stimulus is matched with the manifest; see `attest_episode`.
    preflight : mapping, optional
        Instance to ``yes``, ``no`` or ``undetermined``: its pre-flight verdict under the policy the caller chose.
    reproduced : mapping, optional
        Record id to its re-execution, from `reproduce`: raises the rung to ``re-executed``, or to ``reproduced`` where the
        manifest vouches too and every byte came back. An observation that answers novel arguments, and so can be in no
        manifest, is vouched for by exact re-execution under the manifest's policies.

    Returns
    -------
    Audit
        A verdict per episode in the order of the log, their counts, and the gate.

    Raises
    ------
    ManifestError
        When an audited episode is one the oracle was calibrated on; all such are named.
    InputError
        For an unknown rung, or whatever the log cannot be read for.
    """
    if require not in RUNGS:
        raise InputError("unknown rung", where="require", expected=f"one of {', '.join(RUNGS)}", found=require)
    manifest = oracle if isinstance(oracle, OracleManifest) else None
    reports: dict[str, ManifestReport] = {}
    duplicates = DuplicateIndex()
    drafts: list[Draft] = []
    overlap: list[str] = []
    scope: set[bool | None] = set()
    rules = getattr(log, "rules", None)
    use = RuleUse(rules) if rules is not None and rules.violation else None
    with spare_collector():
        for episode in log:
            if manifest and manifest.references and digest_episode(episode) in manifest.references:
                overlap.append(episode.record)
            scope.add(True in scope or _has_tool_loop(episode))
            duplicates.add(episode)
            if use is not None and episode.attacked:
                use.add(episode.labels)
            report = None if manifest is None else _report(manifest, episode.harness, reports)
            drafts.append(draft_verdict(episode, oracle, report, require, match, preflight, reproduced or {}))
    if overlap:
        what = f"audited episodes are the oracle's own reference ({name_all(overlap)})"
        raise ManifestError(what, where="log", remedy="calibrate on other runs: an oracle must not vouch for itself")
    if False in scope and True not in scope:
        what = "no episode offers or calls a tool: there is no tool loop to audit"
        raise OutOfScopeError(what, where=drafts[0].verdict.source, found=f"{len(drafts)} episodes")
    shared = duplicates.evidence()
    verdicts = tuple(settle_verdict(draft, shared.get((draft.verdict.record, draft.verdict.source), ())) for draft in drafts)
    counts = tally_verdicts(verdicts)
    failures = tuple(getattr(log, "failures", ()))
    gate = check_gate(
        counts,
        manifest=manifest,
        reports=[*reports.values()],
        failures=failures,
        preflight=preflight,
        scored=(verdict.instance for verdict in verdicts if verdict.attacked),
        repeated=[v.record for v in verdicts if v.attacked and any(e.rule in REPEATED for e in v.evidence)],
        rules=use,
    )
    statement = _state(rules, use, oracle, require, match)
    return Audit(verdicts=verdicts, gate=gate, counts=counts, statement=statement, failures=failures, require=require)


def _has_tool_loop(episode: Episode) -> bool | None:
    """Whether a tool is offered or called, or the log does not hold the tools; None where no model was ever called."""
    unlogged, calls = episode.transcript.unlogged, episode.transcript.calls
    is_used = (call.context.tools or call.observations or (call.proposed and call.proposed.tool_calls) for call in calls)
    return "tools" in unlogged or (any(is_used) if calls else None)


def _state(rules: LabelRules | None, use: RuleUse | None, oracle: Oracle, require: str, match: str) -> str:
    said = [
        f"Oracle: {oracle!r}" if oracle is not None else "No oracle: screened only",
        f"counts from rung {require}, match {match}",
        f"violation as the caller says: {', '.join(rules.violation)}" if rules and rules.violation else "",
        use.describe() if use else "",
        f"match key as the caller says: {rules.match_key}" if rules and rules.match_key else "",
    ]
    return f"{'; '.join(filter(None, said))}."


def _report(manifest: OracleManifest, harness: Harness, reports: dict[str, ManifestReport]) -> ManifestReport:
    if (key := repr(harness)) not in reports:
        reports[key] = check_manifest(manifest, harness)
    return reports[key]
