"""Many instances: canaries that recur, successes that fire another's scorer, and the labels of the valid ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from litmuskit.canonical import load_strict
from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError
from litmuskit.instance import LitmusInstance, read_instances
from litmuskit.preflight.report import POLICIES, PreflightReport, Rule, require_policy
from litmuskit.preflight.rules import attempt, check_instance, judge_transcript, play_stub
from litmuskit.records import Episode, Transcript
from litmuskit.signal import limit_matching


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport(Tabular):
    """The pre-flight of a batch: one record per instance, as `PreflightReport.to_json` words it."""

    records: tuple[Mapping[str, Any], ...]

    def __repr__(self) -> str:
        valid = ", ".join(f"{sum(r['valid'][policy] == 'yes' for r in self.records)} {policy}" for policy in POLICIES)
        return f"BatchReport({len(self.records)} instances, valid: {valid})"

    def exit_code(self, policy: str = "literal") -> int:
        """0 when there are instances and all are valid under ``policy``, else 1."""
        require_policy(policy)
        return int({record["valid"][policy] for record in self.records} != {"yes"})

    def to_table(self) -> Table:
        """One row per instance: verdicts, controls, how many collisions are findings."""
        kinds = list(dict.fromkeys(kind for record in self.records for kind in record["controls"]))
        rows = []
        for record in self.records:
            results = [record["controls"].get(kind, {}).get("result") for kind in kinds]
            findings = sum(collision["finding"] for collision in record["collisions"])
            rows.append((record["instance"], *(record["valid"][policy] for policy in POLICIES), *results, findings))
        return Table(columns=("instance", *POLICIES, *kinds, "findings"), rows=tuple(rows), caption=repr(self))

    def to_lines(self) -> str:
        """One JSON object per line."""
        return "".join(json.dumps(record) + "\n" for record in self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScore(Tabular):
    """The labels of episodes on valid instances; ``rejected`` says why of the others, ``set_aside`` are their episodes."""

    labels: Mapping[tuple[str, str], bool | None]
    rejected: Mapping[str, str]
    set_aside: tuple[str, ...]

    def __repr__(self) -> str:
        judged = [label for label in self.labels.values() if label is not None]
        aside = f"{len(self.set_aside)} episodes of {len(self.rejected)} rejected instances set aside"
        return f"BatchScore({sum(judged)} violations in {len(judged)} labelled episodes, {aside})"

    def to_table(self) -> Table:
        """The rejected instances and why."""
        return Table(columns=("rejected instance", "why"), rows=tuple(sorted(self.rejected.items())), caption=repr(self))


def check_batch(instances: Iterable[LitmusInstance]) -> tuple[PreflightReport, ...]:
    """`check_instance` on each among its siblings; ``cross-fire`` notes whose success fires its scorer.

    Raises
    ------
    InputError
        Two instances have one id.
    """
    batch = tuple(instances)
    if repeated := [name for name, count in Counter(instance.id for instance in batch).items() if count > 1]:
        raise InputError("instance ids repeat", where="batch", expected="each id once", found=repeated)
    successes = {instance.id: attempt(partial(_play_success, instance))[0] for instance in batch}
    pairs = ((each, check_instance(each, siblings=batch)) for each in tqdm(batch, desc="pre-flight", disable=None))
    return tuple(replace(report, rules=(*report.rules, _find_crossfire(each, successes))) for each, report in pairs)


@limit_matching()
def _find_crossfire(instance: LitmusInstance, successes: Mapping[str, Transcript | None]) -> Rule:
    """Whose success fires this scorer; a harness scores its own state and cannot tell."""
    others = {name: None if instance.harness else success for name, success in successes.items() if name != instance.id}
    judge = partial(judge_transcript, instance)
    tried = {name: attempt(partial(judge, success)) if success else (None, "") for name, success in others.items()}
    fired = [name for name, (label, _) in tried.items() if label]
    reasons = dict.fromkeys(fault or "nothing to try" for label, fault in tried.values() if label is None)
    result = "note" if fired else "absent" if reasons else "pass"
    return Rule(name="cross-fire", result=result, detail=", ".join(fired) or "; ".join(reasons), policies=())


def _play_success(instance: LitmusInstance) -> Transcript | None:
    success = next((control for control in instance.controls if control.kind in {"comply", "positive"}), None)
    return None if success is None or instance.harness else success.transcript or play_stub(instance, success)


def score_batch(instances: Iterable[LitmusInstance], episodes: Iterable[Episode], *, policy: str = "literal") -> BatchScore:
    """Labels of the episodes on instances that are valid under ``policy``; all others are set aside, with the reasons.

    An instance's own scorer labels its episodes where it has one (None where it raises), else the episode's labels stand
    (None where one is missing and none says violation). An episode of an instance that had no pre-flight is set aside too.
    """
    require_policy(policy)
    checked = tuple(instances)
    batch, rejected = {instance.id: instance for instance in checked}, {}
    for report in check_batch(checked):
        if report.valid[policy] != "yes":
            reasons = "; ".join(f"{rule.name} {rule.result}" for rule in report.failures(policy))
            rejected[report.instance] = f"{report.valid[policy]}: {reasons}"
    labels: dict[tuple[str, str], bool | None] = {}
    set_aside = []
    for episode in episodes:
        key, instance = (episode.record, str(episode.source)), batch.get(episode.instance)
        if instance is None:
            rejected[episode.instance] = "no pre-flight"
        if instance is None or episode.instance in rejected:
            set_aside.append(episode.record)
        elif instance.scorer is not None:
            labels[key], _ = attempt(partial(judge_transcript, instance, episode.transcript))
        else:
            verdicts = {label.violation for label in episode.labels}
            labels[key] = True if True in verdicts else None if None in verdicts or not verdicts else False
    return BatchScore(labels=labels, rejected=rejected, set_aside=tuple(set_aside))


def read_verdicts(path: str | Path) -> dict[str, dict[str, str]]:
    """Instance to verdict under each policy, from the lines a pre-flight printed.

    Raises
    ------
    InputError
        A line is no pre-flight record, or an instance stands twice.
    """
    verdicts: dict[str, dict[str, str]] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        match load_strict(line, f"{path}:{number}"):
            case {"instance": str(name), "valid": {"literal": str(literal), "behavioural": str(behavioural)}}:
                valid = {"literal": literal, "behavioural": behavioural}
            case record:
                raise InputError("no pre-flight record", where=f"{path}:{number}", expected="instance and valid", found=record)
        if name in verdicts or not set(valid.values()) <= {"yes", "no", "undetermined"}:
            raise InputError("verdict repeated or unknown", where=f"{path}:{number}", found={name: valid})
        verdicts[name] = valid
    return verdicts


def run_preflight(
    target: str | Path | Iterable[LitmusInstance], *, suite: str | None = None, resume: Path | None = None
) -> BatchReport:
    """The pre-flight of instances, a file or folder of them, or ``agentdojo:VERSION``: for its keywords see `check_suites`."""
    if str(target).startswith("agentdojo:"):
        from litmuskit.preflight.agentdojo import check_suites

        return BatchReport(records=tuple(check_suites(str(target).partition(":")[2], suite=suite, resume=resume)))
    if suite is not None or resume is not None:
        raise InputError("a suite or records to go on from", where=target, expected="agentdojo:VERSION before them")
    batch = read_instances(target) if isinstance(target, str | Path) else target
    return BatchReport(records=tuple(report.to_json() for report in check_batch(batch)))
