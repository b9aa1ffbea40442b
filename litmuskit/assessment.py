"""What the rules look at, gathered from one record: its label, its log, its evidence, its attestation."""

from __future__ import annotations

import gc
import marshal
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from litmuskit.artifacts import Evidence, find_artifacts
from litmuskit.attestation import Attestation, ManifestReport, Match, attest_episode
from litmuskit.calibration import Consensus
from litmuskit.errors import UnfingerprintableError
from litmuskit.manifest import OracleManifest
from litmuskit.records import Episode, ModelCall, ToolCall
from litmuskit.reproduction import Reproduction
from litmuskit.stimulus import digest_stimulus, fingerprint_turns
from litmuskit.triage import NO, RUNG, UNKNOWN, YES, Facts, judge_facts, to_tristate
from litmuskit.verdict import Verdict

__all__ = ["Draft", "draft_verdict", "gather_facts", "is_schema_valid", "is_screened", "settle_verdict", "spare_collector"]

# What a harness policy may do, and a manifest be regenerated against; a late edit only where the harness declares it.
COVERED = ("truncation/", "mutation/", "late-edit/")
UNCOVERED = ("replay/", "mis-pairing/", "stale-cache/", "mixed-policy/", "executed-differs/", "late-edit/")
BROKEN = tuple(f"not-assessable/{status}" for status in ("errored", "cancelled", "unfinished", "provider"))
SCREENABLE = frozenset({"delivered", "executed", "returned"})


def gather_facts(
    episode: Episode,
    evidence: Collection[Evidence],
    attestation: Attestation,
    *,
    require: str = "calibrated",
    regenerated: bool | None = None,
    stale: bool | None = None,
    rejected: bool | None = None,
    undetermined: bool = False,
) -> Facts:
    """The facts of one record that the rules look at.

    ``require`` is the lowest rung at which a violation may count. ``regenerated``: was the manifest made under the policies and
    source of the run; ``stale``: are its policies other than the run's; ``rejected``: did the instance's pre-flight reject it
    (None without one); ``undetermined``: was there one, and it says nothing either way of the instance.
    """
    flag, flagged = episode.flag, episode.flagged

    def found(*prefixes: str, where: Callable[[Evidence], bool] = lambda _: True) -> int:
        if not evidence:
            return NO
        standings = [e.before_flag for e in evidence if e.rule.startswith(prefixes) and where(e)]
        if not flagged:
            return YES if standings else NO
        return YES if True in standings else UNKNOWN if None in standings else NO

    def at_flag(e: Evidence) -> bool:
        return e.turn is None or episode.flagged_turn is None or e.turn == episode.flagged_turn

    calls = episode.transcript.calls
    mutation = found(*COVERED, *UNCOVERED)
    if mutation == NO and not (episode.events is not None or is_screened(episode)):
        mutation = UNKNOWN
    return Facts(
        flagged=int(flagged),
        errored=found(*BROKEN),
        empty=int(found("not-assessable/empty") != NO),
        unjudged=int(found("not-assessable/no-judgement", "not-assessable/judge-failed") != NO),
        limited=found("not-assessable/limit"),
        undelivered=int(found("not-delivered") != NO),
        unreached=int(found("not-reached") != NO),
        replayed=found("replay"),
        mispaired=found("mis-pairing"),
        cut=found("truncation"),
        executed_otherwise=found("executed-differs", where=at_flag),
        mutated=mutation,
        uncovered=found(*UNCOVERED, where=lambda e: e.kind != "late-edit" or e.basis == "detected"),
        regenerated=to_tristate(regenerated),
        key_observes=_observes(episode),
        schema_valid=to_tristate(is_schema_valid(episode)) if flagged else UNKNOWN,
        schema_blamed=to_tristate(flag.schema_check if flag else None),
        fingerprinted=int(bool(calls) and attestation.unfingerprintable is None and not _lacks_input(calls)),
        absent=int(bool(attestation.absent)),
        unlogged=int(bool(attestation.unlogged)),
        rung=RUNG[attestation.rung],
        required=RUNG[require],
        stale=to_tristate(stale),
        rejected=to_tristate(rejected),
        undetermined=int(undetermined),
        mentioned=found("mention-only"),
        unexecuted=found("not-executed"),
        own_cut=found("own-output-cut"),
        duplicated=int(found("duplicate") != NO),
        invalidated=int(episode.invalidated),
    )


def _observes(episode: Episode) -> int:
    """Whether every scorer that flags compares more than arguments: what one alone rests on is not shown by another."""
    keys = {label.match_key for label in episode.labels if label.violation}
    return NO if "arguments" in keys else UNKNOWN if "unknown" in keys or not keys else YES


def _lacks_input(calls: Iterable[ModelCall]) -> bool:
    return any(call.delivered is None for call in calls)


def is_screened(episode: Episode) -> bool:
    """Whether the log holds, per model call, what was proposed, executed, returned (or that it was cut) and delivered."""
    calls = episode.transcript.calls
    if not calls or SCREENABLE & episode.transcript.unlogged or _lacks_input(calls):
        return False
    ran = (o for call in calls for o in call.observations if o.executed is not False)
    return all(o.call is not None and (o.raw is not None or o.error is not None or o.truncation is not None) for o in ran)


_validators: dict[bytes, Any] = {}


def is_schema_valid(episode: Episode) -> bool | None:
    """Whether the flagged turn's calls satisfy their tools' schemas; None where the schemas are not logged.

    Where the log names no turn, every turn's calls are looked at.
    """
    flag, turns = episode.flag, episode.transcript.calls
    if "tools" in episode.transcript.unlogged or not turns:
        return None
    for turn in turns if flag is None or flag.turn is None else turns[flag.turn - 1 : flag.turn]:
        calls = turn.proposed.tool_calls if turn.proposed else ()
        if flag is not None and flag.turn is not None and flag.position is not None:
            calls = calls[flag.position : flag.position + 1]
        fits = [_fits_schema(call, turn.context.tools) for call in calls]
        if False in fits or None in fits:
            return False if False in fits else None
    return True


def _fits_schema(call: ToolCall, tools: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether a call satisfies its tool's schema; None where the schema itself cannot be read."""
    if isinstance(call.arguments, str) or call.parse_error is not None:
        return False
    for tool in tools:
        inner = tool["function"] if isinstance(tool.get("function"), Mapping) else tool
        if inner.get("name") == call.name:
            schema = inner.get("parameters", inner.get("input_schema"))
            return True if schema is None else _validate(schema, call.arguments)
    return False


def _validate(schema: Any, arguments: Any) -> bool | None:
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        key = marshal.dumps(schema, 2)
    except ValueError:
        key = b""
    try:
        if key not in _validators or not key:
            Draft202012Validator.check_schema(schema)
            if len(_validators) > 1_000:
                _validators.clear()
            _validators[key] = Draft202012Validator(schema, registry=Registry())  # of its own: no reference is ever fetched
        return bool(_validators[key].is_valid(arguments))
    except (SchemaError, Unresolvable, re.error, RecursionError, TypeError, AttributeError):
        return None


@dataclass(slots=True)
class Draft:
    """One episode's findings until the whole log has been seen."""

    verdict: Verdict
    facts: Facts


def draft_verdict(
    episode: Episode,
    oracle: OracleManifest | Consensus | None,
    report: ManifestReport | None,
    require: str,
    match: Match,
    preflight: Mapping[str, str] | None,
    reproduced: Mapping[str, Reproduction],
) -> Draft:
    """Everything one episode alone tells: its evidence, attestation and facts; `settle_verdict` adds what several show."""
    attestation = oracle.attest(episode) if isinstance(oracle, Consensus) else attest_episode(oracle, episode, match=match)
    current = report is not None and report.regenerated is True
    attestation = _raise_rung(attestation, reproduced.get(episode.record), current=current)
    digest, problem = _fingerprint_flag(episode)
    if problem is not None:
        attestation = replace(attestation, rung="unattested", unfingerprintable=problem)
    disowned = tuple(_compare_live(episode))
    if any(e.before_flag is not False for e in disowned):  # what the log now says is not what was shown
        attestation = replace(attestation, rung="unattested", unfingerprintable=disowned[0].detail)
    evidence = (*find_artifacts(episode), *disowned)
    valid = None if preflight is None else {"yes": True, "no": False}.get(preflight.get(episode.instance, ""))
    facts = gather_facts(
        episode,
        evidence,
        attestation,
        require=require,
        regenerated=None if report is None else report.regenerated,
        # a cap is seen in the records it cut, another harness in the bytes it delivers; a policy touches every stimulus
        stale=None if report is None else bool(set(report.stale) - {"truncation", "harness"}),
        rejected=None if valid is None else not valid,
        undetermined=preflight is not None and valid is None,
    )
    if facts.mutated == UNKNOWN and (again := reproduced.get(episode.record)) is not None and again.exact:
        facts = replace(facts, mutated=NO)
    missed = any(e.kind in {"not-reached", "not-delivered"} for e in evidence)
    verdict = Verdict(
        record=episode.record,
        source=str(episode.source),
        file=episode.source.path,
        instance=episode.instance,
        epoch=episode.epoch,
        flagged=episode.flagged,
        decision=None,
        attestation=attestation.rung,
        rules=(),
        evidence=evidence,
        attacked=episode.attacked,
        turn=episode.flagged_turn,
        fingerprint=digest,
        unlogged=attestation.unlogged,
        diagnosis=(*attestation.diagnosis, *filter(None, (attestation.unfingerprintable,))),
        reached=None if episode.payloads is None or not episode.transcript.calls else not missed,
        groups=episode.groups,
    )
    return Draft(verdict=verdict, facts=facts)


def _raise_rung(attestation: Attestation, again: Reproduction | None, *, current: bool) -> Attestation:
    if again is None or again.rung == "unattested" or attestation.unfingerprintable:
        return attestation
    vouched = attestation.rung == "calibrated" or (attestation.novel and current and not attestation.unlogged)
    if again.exact and vouched:
        return replace(attestation, rung="reproduced", absent=())
    higher = RUNG[again.rung] > RUNG[attestation.rung]
    return replace(attestation, rung=again.rung, absent=()) if higher else attestation


def _fingerprint_flag(episode: Episode) -> tuple[str | None, str | None]:
    """The digest of what drew the flag, or why it has none."""
    if (turn := episode.flagged_turn) is None:
        return None, None
    try:
        return digest_stimulus(episode.transcript, turn), None
    except UnfingerprintableError as error:
        return None, str(error)


def _compare_live(episode: Episode) -> Iterable[Evidence]:
    """Where a fingerprint was recorded before a model call, the log must still say the same."""
    if episode.live is None:
        return
    try:
        turns = fingerprint_turns(episode.transcript)
    except UnfingerprintableError:
        return
    for turn, live in zip(turns, episode.live, strict=False):
        if live is not None and turn.stimulus is not None and live.removeprefix("sha256:") != turn.stimulus:
            before = None if not episode.flagged else turn.turn <= (episode.flagged_turn or 0)
            rule = "late-edit/live-fingerprint"
            detail = "the fingerprint recorded before the call is not that of the logged input"
            yield Evidence(kind="late-edit", rule=rule, turn=turn.turn, detail=detail, before_flag=before)


def settle_verdict(draft: Draft, shared: tuple[Evidence, ...]) -> Verdict:
    """The verdict, once the whole log has been seen and ``shared`` names what this episode has in common with others."""
    facts = draft.facts
    if any(e.kind == "duplicate" for e in shared):
        facts = replace(facts, duplicated=YES)
    if any(e.kind in {"stale-cache", "mixed-policy"} for e in shared):
        facts = replace(facts, mutated=YES, uncovered=YES)
    decision, rules, conditions = judge_facts(facts)
    mutation = None if facts.mutated == UNKNOWN else facts.mutated == YES
    evidence = (*draft.verdict.evidence, *shared)
    return replace(draft.verdict, decision=decision, rules=rules, conditions=conditions, mutation=mutation, evidence=evidence)


@contextmanager
def spare_collector() -> Iterator[None]:
    """Records hold no cycles: while many are made, the cycle collector finds nothing and would cost a tenth of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000 if thresholds[0] else 0, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
