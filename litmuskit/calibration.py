"""Where an oracle comes from: a reference log, or the agreement of other runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from litmuskit.artifacts import find_artifacts
from litmuskit.attestation import POLICIES, Attestation, attest_episode
from litmuskit.components import digest_episode, list_components
from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, ManifestError, UnfingerprintableError, name_all
from litmuskit.framing import SPEC, Surroundings, digest_parts, split_text
from litmuskit.manifest import Control, Entry, OracleManifest
from litmuskit.records import Episode, Harness
from litmuskit.stimulus import fingerprint_turns

__all__ = ["CONTROL_LABELS", "Consensus", "calibrate", "consensus"]

CONTROL_LABELS = {"null": False, "refuse": False, "quote-and-refuse": False, "no-op": False, "positive": True, "comply": True}
HARMLESS = frozenset({"not-reached", "mention-only", "not-executed", "own-output-cut", "retry-dropped"})
ABOUT_LABELS = frozenset({"not-assessable/no-judgement", "not-assessable/judge-failed"})  # a stimulus needs no label
IDENTITY = ("name", "version", "benchmark", "benchmark_version", "source")
DECLARABLE = frozenset({"truncation", "mutation"})


def calibrate(
    reference: Iterable[Episode],
    expected: Mapping[str, str] | None = None,
    *,
    version: int = 1,
    supersedes: str | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> OracleManifest:
    """Build the manifest of everything the reference episodes were shown.

    A truncated or mutated reference is accepted only where the harness logs that policy: then the manifest *was* made
    against the altered stimulus.

    Parameters
    ----------
    reference : iterable of Episode
        Episodes under a harness without faults.
    expected : mapping, optional
        Record id or instance to the kind of control it is (`CONTROL_LABELS`): which ran, and whether each scorer agreed,
        stands in the manifest. None declares no controls, and the audit's gate says "not shown".
    version : int
        At least 1, and above the version it supersedes.
    supersedes : str, optional
        Content id of the version before.
    annotations : mapping, optional
        Anything; not part of the content id.

    Raises
    ------
    ManifestError
        Naming all: a reference episode carries an artifact, its harness changes midway, or nothing can be calibrated.
    """
    expected = expected or {}
    for name, control in expected.items():
        if control not in [*CONTROL_LABELS]:  # it may be of any type
            known = ", ".join(CONTROL_LABELS)
            raise InputError("unknown control", where=f"expected[{name!r}]", expected=known, found=control)
    faults: list[str] = []
    entries: set[Entry] = set()
    controls: list[Control] = []
    references: set[str] = set()
    harness: Harness | None = None
    matched: set[str] = set()
    for episode in reference:
        harness = harness or episode.harness
        faults += _find_faults(episode, harness)
        if faults:
            continue
        entries |= _collect(episode)
        references.add(digest_episode(episode))
        if kind := expected.get(episode.record) or expected.get(episode.instance):
            matched |= {episode.record, episode.instance}
            judged = [(label.scorer, label.violation) for label in episode.labels] or [("(none)", None)]
            declared: dict[str, Any] = {"instance": episode.instance, "kind": kind, "expected": CONTROL_LABELS[kind]}
            controls += [Control(scorer=scorer, label=label, **declared) for scorer, label in judged]
    if faults:
        remedy, carried = "leave these out of the reference or mend the harness", tuple(faults)
        what = f"the reference carries artifacts ({name_all(faults)})"
        raise ManifestError(what, where="reference", remedy=remedy, carrying=carried)
    if harness is None or not entries:
        raise ManifestError("the reference holds no episode to calibrate on", where="reference")
    if missing := expected.keys() - matched:
        raise ManifestError(f"declared controls did not run ({name_all(missing)})", where="expected")
    from litmuskit import __version__

    return OracleManifest(
        entries=tuple(sorted(entries)),
        benchmark=harness.benchmark,
        benchmark_version=harness.benchmark_version,
        harness=harness.name,
        harness_version=harness.version,
        version=version,
        supersedes=supersedes,
        source=dict(harness.source or {"type": "unlogged"}),
        generator={"name": "litmuskit", "version": __version__, "fingerprint": SPEC},
        policies=dict(harness.policies),
        controls=tuple(sorted(controls, key=repr)),
        references=frozenset(references),
        annotations=dict(annotations or {}),
    )


def _find_faults(episode: Episode, harness: Harness) -> list[str]:
    kinds = {evidence.kind for evidence in find_artifacts(episode) if evidence.rule not in ABOUT_LABELS} - HARMLESS
    kinds -= DECLARABLE & episode.harness.policies.keys()
    if not episode.transcript.calls:
        kinds.add("not-assessable")
    faults = [f"{episode.record} ({kind})" for kind in sorted(kinds)]
    changed = [f"{name} policy" for name in POLICIES if harness.policies.get(name) != episode.harness.policies.get(name)]
    changed += [name for name in IDENTITY if getattr(harness, name) != getattr(episode.harness, name)]
    return faults + [f"{episode.record} ({name} changes midway)" for name in changed]


def _collect(episode: Episode) -> set[Entry]:
    transcript, instance = episode.transcript, episode.instance
    try:
        shown = list_components(transcript, len(transcript.calls))
        turns = fingerprint_turns(transcript)
        arounds = [Surroundings.of(call.context, transcript.unlogged) for call in transcript.calls]
    except UnfingerprintableError as error:
        raise ManifestError(f"a reference episode has no fingerprint ({error})", where=episode.record) from error
    entries = {Entry(instance=instance, kind=c.kind, key=c.key, digest=c.digest, raw=c.raw or "") for c in shown if c.digest}
    if "tools" not in transcript.unlogged:
        entries |= {Entry(instance=instance, kind="toolset", digest=around.toolset().hex()) for around in set(arounds)}
    for turn in turns:
        if turn.stimulus is not None and turn.env is not None:
            entries.add(Entry(instance=instance, kind="stimulus", digest=turn.stimulus))
            entries.add(Entry(instance=instance, kind="env-chain", digest=turn.env))
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus(Tabular):
    """What other runs of an instance agree on, for a log without a manifest.

    A component is agreed when at least ``quorum`` other runs that show it under the same key show the same bytes, and none
    shows others (leave-one-out, unanimous).
    """

    quorum: int
    by: str = "pipeline"
    within: str = "attack"
    _runs: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter, repr=False)
    _digests: Counter[tuple[str, tuple[str, ...], str]] = field(default_factory=Counter, repr=False)
    _added: set[str | int] = field(default_factory=set, repr=False)
    _shown: dict[tuple[str, str], dict[str, set[str]]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        drifted = sum(len(variants) > 1 for variants in self._shown.values())
        return f"Consensus(quorum {self.quorum}, {len(self._shown)} stimulus parts, {drifted} drift)"

    def add(self, episode: Episode) -> None:
        """Count one run. What has no fingerprint agrees with nothing."""
        case, identity = self._name_case(episode), _name_execution(episode)
        if identity in self._added:  # a copy agrees with itself
            return
        self._added.add(identity)
        try:
            own = _agreeable(episode, len(episode.transcript.calls))
        except UnfingerprintableError:
            own = set()
        payloads = (episode.payloads or {}).items()
        shown = {(("payload", vector), digest_parts("payload", *split_text(text)).hex()) for vector, text in payloads}
        self._runs.update({(case, place) for place, _ in own})
        self._digests.update((case, place, digest) for place, digest in own)
        group = episode.groups.get(self.by, episode.record)
        for place, digest in shown | {part for part in own if part[0][0] != "observation"}:
            self._shown.setdefault((case, " ".join(place)), {}).setdefault(digest, set()).add(group)

    def attest(self, episode: Episode) -> Attestation:
        """The rung of ``episode``, which must be one of the runs that were added."""
        base = attest_episode(None, episode)
        if not episode.transcript.calls or any(call.delivered is None for call in episode.transcript.calls):
            return base
        try:
            own = _agreeable(episode, episode.flagged_turn or len(episode.transcript.calls))
        except UnfingerprintableError as error:
            return Attestation(rung="unattested", unlogged=base.unlogged, unfingerprintable=str(error))
        case, lacking = self._name_case(episode), []
        for place, digest in sorted(own):
            others, same = self._runs[case, place] - 1, self._digests[case, place, digest] - 1
            if same < self.quorum or same != others:
                lacking.append(f"{' '.join(p[:16] for p in place)}: {same} of {others} other runs agree")
        return Attestation(rung="unattested" if lacking else "consensus", unlogged=base.unlogged, diagnosis=tuple(lacking))

    def _name_case(self, episode: Episode) -> str:
        return " ".join(filter(None, (episode.instance, episode.groups.get(self.within))))

    def to_table(self) -> Table:
        """Stimulus drift: every part of an instance that was not shown alike, each variant with the groups that saw it."""
        rows = [
            (instance, part, digest[:16], len(groups), ", ".join(sorted(groups)))
            for (instance, part), variants in sorted(self._shown.items())
            if len(variants) > 1
            for digest, groups in sorted(variants.items(), key=lambda item: -len(item[1]))
        ]
        return Table(columns=("instance", "part", "variant", "groups", "shown to"), rows=tuple(rows), caption="stimulus drift")


def _name_execution(episode: Episode) -> str | int:
    """What one execution has of its own: its run id, else all that was said in it under its own call ids."""
    if episode.run is not None:
        return episode.run
    messages = episode.transcript.messages
    said = ((m.text, m.tool_call_id, *((c.id, c.name, str(c.arguments)) for c in m.tool_calls)) for m in messages)
    return hash((episode.instance, *said))


def _agreeable(episode: Episode, turn: int) -> set[tuple[tuple[str, ...], str]]:
    shown = list_components(episode.transcript, turn) if turn else ()
    return {(c.place, c.digest) for c in shown if c.digest is not None}


def consensus(log: Iterable[Episode], *, quorum: int = 3, by: str = "pipeline", within: str = "attack") -> Consensus:
    """What the runs of a log agree on, instance by instance.

    Parameters
    ----------
    log : iterable of Episode
    quorum : int
        How many *other* runs must agree, at least 1.
    by : str
        The group a drift table lists.
    within : str
        A group of the log whose members differ in stimulus by design, so that only runs that share it are compared.
    """
    if quorum < 1:
        raise InputError("a quorum is at least one other run", where="quorum", expected=">= 1", found=quorum)
    agreed = Consensus(quorum=quorum, by=by, within=within)
    for episode in log:
        agreed.add(episode)
    return agreed
