"""How well a manifest vouches for a stimulus, and whether the manifest is current for a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from litmuskit.components import Component, list_components
from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, StaleManifestError, UnfingerprintableError
from litmuskit.framing import Surroundings
from litmuskit.manifest import Entry, OracleManifest, name_source
from litmuskit.records import Episode, Harness, Policy
from litmuskit.stimulus import fingerprint

__all__ = [
    "RUNGS", "Attestation", "ManifestDiff", "ManifestReport", "attest_episode", "check_manifest", "diff_manifests",
    "validate_manifest",
]  # fmt: skip

RUNGS = ("unattested", "consensus", "re-executed", "calibrated", "reproduced")
POLICIES = ("mutation", "truncation", "normalizers")
Match = Literal["component", "env", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """How well one episode's stimulus is vouched for.

    ``absent`` are components that no entry matches, ``unlogged`` names parts the log does not hold; both keep the record
    below ``calibrated``. ``diagnosis`` says what the absence looks like; ``novel``: all that is absent answers calls that
    nobody made in the reference.
    """

    rung: str
    absent: tuple[Component, ...] = ()
    unlogged: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    unfingerprintable: str | None = None
    novel: bool = False


def attest_episode(
    manifest: OracleManifest | None, episode: Episode, *, turn: int | None = None, match: Match = "component"
) -> Attestation:
    """How well ``manifest`` vouches for what ``episode`` was shown, up to the flagged turn (else the last).

    Parameters
    ----------
    manifest : OracleManifest or None
        None attests nothing: the rung is ``unattested``, what the log lacks is still named.
    episode : Episode
    turn : int, optional
        From 1; by default the flagged turn, else the last.
    match : {"component", "env", "exact"}
        ``component``: every harness-supplied part is an entry. ``env``: the harness's part of the whole chain is one.
        ``exact``: the whole stimulus is one (the working note's rule; right for single-turn and scripted agents).

    Examples
    --------
    >>> from litmuskit.records import Source, Transcript
    >>> empty = Episode(record="r", source=Source(path="r"), instance="i", labels=(), harness=Harness(name="h"),
    ...                 transcript=Transcript(messages=(), calls=()))
    >>> attest_episode(None, empty).rung
    'unattested'
    """
    if match not in {"component", "env", "exact"}:
        raise InputError("unknown match", where="match", expected="component, env or exact", found=match)
    number = turn or episode.flagged_turn or len(episode.transcript.calls)
    if not number:
        return Attestation(rung="unattested", unlogged=("transcript",))
    unlogged = set(episode.transcript.unlogged & {"system", "tools", "opts", "delivered"})
    if any(call.delivered is None for call in episode.transcript.calls[:number]):
        unlogged.add("delivered")
    if manifest is None:
        return Attestation(rung="unattested", unlogged=tuple(sorted(unlogged)))
    try:
        components = list_components(episode.transcript, number)
        whole = None if match == "component" else fingerprint(episode.transcript, turn=number)
    except UnfingerprintableError as error:
        return Attestation(rung="unattested", unfingerprintable=str(error))
    if whole is not None:
        kind, digest = ("env-chain", whole.env[-1]) if match == "env" else ("stimulus", whole.stimulus[-1])
        components = (Component(kind=kind, key=(), digest=digest, turn=number),)
    absent = tuple(c for c in components if c.digest and c.digest not in manifest.digests(episode.instance, c.place))
    rung = "unattested" if absent or unlogged else "calibrated"
    diagnosis = tuple(dict.fromkeys(_diagnose(manifest, episode, component) for component in absent))
    novel = bool(absent) and all(_is_novel(manifest, episode.instance, component) for component in absent)
    return Attestation(rung=rung, absent=absent, unlogged=tuple(sorted(unlogged)), diagnosis=diagnosis, novel=novel)


def _is_novel(manifest: OracleManifest, instance: str, component: Component) -> bool:
    """Whether a component answers a call that nobody made on this instance in the reference."""
    return component.answers_call and instance in manifest.instances and not manifest.digests(instance, component.place)


def _diagnose(manifest: OracleManifest, episode: Episode, component: Component) -> str:
    instance = episode.instance
    if instance not in manifest.instances:
        return f"instance {instance} was never calibrated"
    known = manifest.digests(instance, component.place)
    if component.raw is not None and component.raw in known:
        return f"{component}: altered after calibration (what the tool returned is calibrated, what was delivered is not)"
    if component.kind == "tools":
        call = episode.transcript.calls[component.turn - 1]
        toolset = Surroundings.of(call.context, frozenset()).toolset().hex()
        return "tools reordered" if toolset in manifest.digests(instance, ("toolset",)) else "tools differ"
    if not known:
        novel = _is_novel(manifest, instance, component)
        asked = " (a call nobody made in the reference cannot be vouched for)" if novel else ""
        return f"{component}: never calibrated{asked}"
    return f"{component}: differs from the {len(known)} calibrated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReport(Tabular):
    """Whether a manifest is current for a run: one row per policy and the source, ``current`` yes, no or unknown (None)."""

    rows: tuple[tuple[str, str | None, str | None, bool | None], ...]

    @property
    def regenerated(self) -> bool | None:
        """True when mutation and truncation policies, harness and source equal the manifest's; None when any is unlogged."""
        states = [current for name, _, _, current in self.rows if name in {"mutation", "truncation", "harness", "source"}]
        return False if False in states else None if None in states else True

    @property
    def stale(self) -> tuple[str, ...]:
        """What differs: policies, or the harness's name and version."""
        return tuple(name for name, _, _, current in self.rows if current is False and name != "source")

    @property
    def unknown(self) -> tuple[str, ...]:
        """The mutation and truncation policies that one side does not log (and normalizers, where only one side has any)."""
        lacking = [(name, ours, theirs) for name, ours, theirs, current in self.rows if current is None and name in POLICIES]
        return tuple(name for name, ours, theirs in lacking if name != "normalizers" or ours or theirs)

    def __bool__(self) -> bool:
        return not self.stale

    def __repr__(self) -> str:
        return f"ManifestReport({'stale: ' + ', '.join(self.stale) if self.stale else 'not stale'})"

    def to_table(self) -> Table:
        """One row per policy and the source."""
        return Table(columns=("what", "manifest", "run", "current"), rows=self.rows, caption=repr(self))


def check_manifest(manifest: OracleManifest, harness: Harness) -> ManifestReport:
    """Compare a manifest's policies and source with a run's; never raises.

    Examples
    --------
    >>> check_manifest(OracleManifest(entries=()), Harness(name="h")).regenerated is None
    True
    """
    rows: list[tuple[str, str | None, str | None, bool | None]] = []
    for name in POLICIES:
        ours, theirs = manifest.policies.get(name), harness.policies.get(name)
        current = None if ours is None or theirs is None else (ours.digest, ours.seed) == (theirs.digest, theirs.seed)
        rows.append((name, _name_policy(ours), _name_policy(theirs), current))
    versions = (manifest.harness, manifest.harness_version), (harness.name, harness.version)
    names = [f"{name} {version}" if version else None for name, version in versions]
    sources = [name_source(manifest.source), name_source(harness.source)]
    for what, (pinned, run) in (("harness", names), ("source", sources)):
        rows.append((what, pinned, run, pinned == run if pinned and run else None))
    return ManifestReport(rows=tuple(rows))


def validate_manifest(manifest: OracleManifest, harness: Harness) -> ManifestReport:
    """`check_manifest`, raising when the manifest is stale.

    Raises
    ------
    StaleManifestError
        Carrying the report, when a policy differs from the run's.
    """
    report = check_manifest(manifest, harness)
    if not report:
        remedy = "calibrate again under the run's policies"
        raise StaleManifestError(f"manifest is stale: {', '.join(report.stale)} differ", remedy=remedy, carrying=report)
    return report


def _name_policy(policy: Policy | None) -> str | None:
    return None if policy is None else f"{policy.name} {policy.version} {policy.digest[:15]} seed {policy.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDiff(Tabular):
    """What two manifests do not share: entries ``added`` and ``removed``, and header fields ``changed`` (name, old, new)."""

    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]
    changed: tuple[tuple[str, str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __repr__(self) -> str:
        fields = f"{len(self.changed)} header field{'s' * (len(self.changed) != 1)} changed"
        return f"ManifestDiff({len(self.added)} added, {len(self.removed)} removed, {fields})"

    def to_table(self) -> Table:
        """One row per header field and entry."""
        rows: list[tuple[Any, ...]] = [("changed", "", name, old[:40], new[:40]) for name, old, new in self.changed]
        for word, entries in (("added", self.added), ("removed", self.removed)):
            names = (" ".join((e.kind, *(part[:16] for part in e.key))) for e in entries)
            rows += [(word, e.instance, name, e.digest[:16], e.raw[:16]) for e, name in zip(entries, names, strict=True)]
        return Table(columns=("change", "instance", "component", "digest", "raw"), rows=tuple(rows), caption=repr(self))


def diff_manifests(old: OracleManifest, new: OracleManifest) -> ManifestDiff:
    """What changed between two manifests.

    Examples
    --------
    >>> diff_manifests(OracleManifest(entries=()), OracleManifest(entries=(Entry(instance="i", kind="system", digest="d"),)))
    ManifestDiff(1 added, 0 removed, 1 header field changed)
    """
    before, after = set(old.entries), set(new.entries)
    one, two = old.to_header(), new.to_header()
    changed = tuple((name, str(one[name]), str(two[name])) for name in one if one[name] != two[name])
    return ManifestDiff(added=tuple(sorted(after - before)), removed=tuple(sorted(before - after)), changed=changed)
