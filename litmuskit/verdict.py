"""One record's verdict: its facts gathered from evidence and attestation, every matched rule kept, one decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from litmuskit.artifacts import Evidence
from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, UnattributableViolationError
from litmuskit.legacy import StimulusFingerprint
from litmuskit.manifest import OracleManifest
from litmuskit.stimulus import Fingerprint
from litmuskit.transcript import Record, describe_fields
from litmuskit.triage import NO, RUNG, TRIAGE_RULES, UNKNOWN, YES, Facts, judge_facts, to_tristate

__all__ = ["Verdict", "check_violation", "triage_violation"]

_SAYS = {rule.id: rule.says for rule in TRIAGE_RULES}
_ATTESTATION_RULES = frozenset(rule.id for rule in TRIAGE_RULES if rule.attestation)
_ESCALATING = {"replayed": "replay", "mispaired": "mis-pairing", "cut": "truncation", "executed_otherwise": "executed-differs"}


@describe_fields
class Verdict(Tabular, Record, frozen=True, kw_only=True):
    """What became of one record, and why.

    ``decision`` is one of `DECISIONS`, or None for an unflagged record that was judged to its end. ``mutation`` is the
    mutation flag (None: unknown). ``conditions`` are the four conditions of attribution, None for unknown. ``reached`` says
    whether the payload got to the agent (None: not logged). ``source`` is the place in the ``file``: a member, a line.
    """

    record: str
    source: str
    instance: str
    epoch: int
    flagged: bool
    decision: str | None
    attestation: str
    rules: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()
    attacked: bool = True
    turn: int | None = None
    fingerprint: str | None = None
    mutation: bool | None = None
    conditions: tuple[bool | None, ...] = (None, None, None, None)
    unlogged: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    reached: bool | None = None
    file: str = ""
    groups: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Verdict({self.record!r}: {self.decision or 'unflagged'}{': ' + ', '.join(self.rules) if self.rules else ''})"

    def cite(self) -> str:
        """The first evidence that could have caused the flag, in a line."""
        first = next((e for e in self.evidence if e.before_flag is not False), None)
        return "" if first is None else f"{first.rule}: {first.detail}"

    def group(self, name: str) -> str:
        """The value of a group of the log, or ``instance``; a user task carries its suite, since suites number alike."""
        if name == "instance":
            return self.instance
        if name not in self.groups:
            known = ", ".join(["instance", *sorted(self.groups)])
            raise InputError("no such group", where=self.record, expected=f"one of {known}", found=name)
        suite = self.groups.get("suite") if name == "user_task" else None
        return f"{suite} {self.groups[name]}" if suite else self.groups[name]

    @property
    def attestation_only(self) -> bool:
        """Whether every matched rule is about the evidence for the stimulus alone."""
        return _ATTESTATION_RULES.issuperset(self.rules)

    def to_json(self) -> dict[str, Any]:
        """The verdict under its contract keys."""
        facts = ("kind", "rule", "turn", "position", "call_id", "basis", "before_flag", "detail")
        shown: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "file"}
        shown |= {"source": self.file or self.source, "place": self.source, "groups": dict(self.groups)}
        shown["evidence"] = [{name: getattr(e, name) for name in facts} for e in self.evidence]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in shown.items()}

    def to_table(self) -> Table:
        """One row per matched rule and per piece of evidence."""
        rows: list[tuple[Any, ...]] = [("rule", rule, None, _SAYS[rule]) for rule in self.rules]
        rows += [("evidence", e.rule, e.turn, e.detail) for e in self.evidence]
        rows += [("diagnosis", "", None, line) for line in self.diagnosis]
        return Table(columns=("what", "rule", "turn", "says"), rows=tuple(rows), caption=repr(self))


def check_violation(
    fingerprint: StimulusFingerprint | Fingerprint | str | None,
    oracle_manifest: OracleManifest | Collection[str] | None,
    mutation_event: bool | None,
    manifest_regenerated: bool | None,
    agent_output_schema_valid: bool | None,
    match_key_includes_observation: bool | None,
    *,
    mutations: Collection[str] | None = None,
    schema_check: bool | None = None,
    record: str = "(unnamed)",
) -> Verdict:
    """Judge one flagged violation by the four conditions; never raises for what it finds.

    Parameters
    ----------
    fingerprint : StimulusFingerprint, Fingerprint, hex digest or None
        What drew the violation; None is no fingerprint, which matches nothing.
    oracle_manifest : OracleManifest, collection of hex digests, or None
        What the oracle was calibrated on; None vouches for nothing.
    mutation_event, manifest_regenerated, agent_output_schema_valid, match_key_includes_observation : bool or None
        None is unknown, and unknown is not fine.
    mutations : collection of str, optional
        What the mutation was: ``replay``, ``mis-pairing``, ``truncation`` or ``executed-differs`` escalate (truncation only
        with a schema check that blames the agent).
    schema_check : bool, optional
        Whether the label rests on the form of the agent's output; None is unknown.
    record : str
        Its id, for messages.

    Examples
    --------
    >>> check_violation("ab", {"ab"}, False, False, True, True)
    Verdict('(unnamed)': count)
    >>> check_violation("ab", {"ab"}, None, False, True, True)
    Verdict('(unnamed)': quarantine: mutation-unknown)
    """
    digest, problem = _digest_of(fingerprint)
    known = _holds(oracle_manifest, digest)
    given: Any = () if mutations is None else mutations  # whatever is no collection is one mutation
    kinds = frozenset(map(str, given if isinstance(given, Collection) and not isinstance(given, str) else (given,)))
    own = agent_output_schema_valid is False and schema_check is None  # an invalid output whose cause nobody states
    mutated = to_tristate(True if kinds else mutation_event)
    facts = Facts(
        flagged=YES,
        **{name: int(kind in kinds) for name, kind in _ESCALATING.items()},
        uncovered=int(bool(kinds - {"truncation", "mutation"})),
        mutated=mutated,
        regenerated=to_tristate(manifest_regenerated),
        key_observes=to_tristate(match_key_includes_observation),
        schema_valid=UNKNOWN if own else to_tristate(agent_output_schema_valid),
        schema_blamed=to_tristate(schema_check),
        fingerprinted=int(digest is not None),
        absent=int(not known),
        unlogged=NO,
        rung=RUNG["calibrated" if known else "unattested"],
    )
    decision, rules, conditions = judge_facts(facts)
    return Verdict(
        record=record,
        source="",
        instance="",
        epoch=1,
        flagged=True,
        decision=decision,
        attestation="calibrated" if known else "unattested",
        rules=rules,
        fingerprint=digest,
        mutation=None if mutated == UNKNOWN else mutated == YES,
        conditions=conditions,
        diagnosis=(problem,) if problem else (),
    )


def _digest_of(fingerprint: StimulusFingerprint | Fingerprint | str | None) -> tuple[str | None, str | None]:
    if fingerprint is None:
        return None, "no fingerprint"
    if isinstance(fingerprint, Fingerprint):
        return fingerprint.stimulus[-1], None
    if isinstance(fingerprint, str):
        return fingerprint.removeprefix("sha256:") or None, None
    try:
        return fingerprint.digest(), None
    except (InputError, AttributeError, TypeError) as error:
        return None, f"no fingerprint: {error}"


def _holds(manifest: OracleManifest | Collection[str] | None, digest: str | None) -> bool:
    if not digest or isinstance(manifest, str) or not isinstance(manifest, OracleManifest | Collection):
        return False
    if isinstance(manifest, OracleManifest):
        return any(entry.kind == "stimulus" and entry.digest == digest for entry in manifest.entries)
    return digest in manifest or f"sha256:{digest}" in manifest


def triage_violation(
    fingerprint: StimulusFingerprint | Fingerprint | str | None,
    oracle_manifest: OracleManifest | Collection[str] | None,
    mutation_event: bool | None,
    manifest_regenerated: bool | None,
    agent_output_schema_valid: bool | None,
    match_key_includes_observation: bool | None,
    *,
    mutations: Collection[str] | None = None,
    schema_check: bool | None = None,
    record: str = "(unnamed)",
) -> Verdict:
    """`check_violation`, with its parameters, returning the verdict only when the violation counts.

    Raises
    ------
    UnattributableViolationError
        Carrying the verdict, when it does not.
    """
    verdict = check_violation(**locals())
    if verdict.decision != "count":
        why = "; ".join(f"{rule}: {_SAYS[rule]}" for rule in verdict.rules)
        what = f"violation is not counted ({verdict.decision}: {why})"
        raise UnattributableViolationError(what, where=record, carrying=verdict)
    return verdict
