"""The oracle manifest: what a benchmark's oracle was calibrated on, component by component.

A header (who, which version, which policies, which controls) and one canonical line per component, sorted, so that two
versions differ in git where they differ in fact. ``content_id`` covers everything but the annotations; nothing hashed holds
a time, so calibrating again on the same reference gives the same id. On disk it is a folder of ``manifest.json`` and
``entries.jsonl``, exchanged whole with what stands there; reading believes nothing until sizes, digests and the id agree.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from litmuskit.canonical import canonicalize, digest_json, load_strict
from litmuskit.display import Table, Tabular
from litmuskit.errors import LogFormatError, ManifestError
from litmuskit.folder import find_aside, write_folder
from litmuskit.framing import SPEC
from litmuskit.records import Policy

__all__ = ["Control", "Entry", "OracleManifest", "name_source", "read_manifest"]

MANIFEST_TYPE = "litmuskit-manifest/1"
HEADER, ENTRIES = "manifest.json", "entries.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entry:
    """One calibrated component of one instance; ``raw`` digests the observation before the harness altered it."""

    instance: str
    kind: str
    key: tuple[str, ...] = ()
    digest: str = ""
    raw: str = ""

    def to_json(self) -> dict[str, Any]:
        """The entry's canonical line."""
        line: dict[str, Any] = {"instance": self.instance, "kind": self.kind, "key": list(self.key), "digest": self.digest}
        return {**line, "raw": self.raw} if self.raw else line


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Control:
    """A reference episode whose right label was declared: what was expected, and whether the scorer agreed."""

    scorer: str
    instance: str
    kind: str
    expected: bool
    label: bool | None

    @property
    def agrees(self) -> bool:
        """Whether the label is the expected one; a missing label does not agree."""
        return self.label is self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleManifest(Tabular):
    """What the oracle was calibrated on.

    ``version`` never goes down; ``supersedes`` is the content id of the version before. ``source`` is
    ``{"type": "git", "commit": ..., "dirty": False}``, ``{"type": "package", "name": ..., "version": ..., "digest": ...}`` or
    ``{"type": "unlogged"}``. ``references`` are digests of the reference episodes: an audited episode must not be one.
    """

    entries: tuple[Entry, ...]
    benchmark: str | None = None
    benchmark_version: str | None = None
    harness: str = "unlogged"
    harness_version: str | None = None
    version: int = 1
    supersedes: str | None = None
    source: Mapping[str, Any] = field(default_factory=lambda: {"type": "unlogged"})
    generator: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    controls: tuple[Control, ...] = ()
    references: frozenset[str] = frozenset()
    annotations: Mapping[str, Any] = field(default_factory=dict)
    _index: dict[str, dict[tuple[str, ...], set[str]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.version < 1:
            raise ManifestError("version must be at least 1", where="version", found=self.version)
        if self.source.get("dirty") not in {None, False}:
            remedy = "commit the harness first: a dirty tree cannot be named again"
            raise ManifestError("the harness's source is dirty", where="source", found=dict(self.source), remedy=remedy)
        for entry in self.entries:
            self._index.setdefault(entry.instance, {}).setdefault((entry.kind, *entry.key), set()).add(entry.digest)

    def __repr__(self) -> str:
        name = self.benchmark or self.harness
        return f"OracleManifest({name!r} v{self.version}, {len(self._index)} instances, {len(self.entries)} components)"

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances that were calibrated."""
        return tuple(sorted(self._index))

    def digests(self, instance: str, place: tuple[str, ...]) -> frozenset[str]:
        """The calibrated digests of one component of ``instance``; empty when there is none."""
        return frozenset(self._index.get(instance, {}).get(place, ()))

    def to_header(self) -> dict[str, Any]:
        """The header as JSON, entries described by digest and size; `content_id` is over this less the annotations."""
        lines = self.to_lines()
        return {
            "type": MANIFEST_TYPE,
            "specs": {"fingerprint": SPEC, "canonical": "RFC 8785"},
            "benchmark": {"name": self.benchmark, "version": self.benchmark_version},
            "harness": {"name": self.harness, "version": self.harness_version},
            "version": self.version,
            "supersedes": self.supersedes,
            "source": dict(self.source),
            "generator": dict(self.generator),
            "policies": {name: asdict(policy) for name, policy in sorted(self.policies.items())},
            "controls": [asdict(control) for control in self.controls],
            "references": sorted(self.references),
            "entries": {"digest": digest_bytes(lines), "size": len(lines), "count": len(self.entries)},
        }

    def to_lines(self) -> bytes:
        """The entries file: one canonical line per component, sorted."""
        return b"".join(canonicalize(entry.to_json()) + b"\n" for entry in sorted(self.entries))

    @property
    def content_id(self) -> str:
        """``sha256:<hex>`` over all but the annotations."""
        return digest_json(self.to_header())

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the manifest folder atomically, as `write_folder` does; it is returned.

        Parameters
        ----------
        path : path
            A folder; one that holds another manifest is replaced only by a higher version that supersedes it.

        Raises
        ------
        ManifestError
            On a rollback, when ``path`` is something else, or when an interrupted write took the old one from its place.
        """
        target, header = Path(path), self.to_header()
        _refuse_rollback(self, target)
        whole = {**header, "content_id": digest_json(header), "annotations": dict(self.annotations)}
        write_folder(target, {ENTRIES: self.to_lines(), HEADER: canonicalize(whole) + b"\n"})
        return target

    def to_table(self) -> Table:
        """Components per kind."""
        entries = Counter(entry.kind for entry in self.entries)
        instances = Counter(kind for kind, _ in {(entry.kind, entry.instance) for entry in self.entries})
        rows = tuple((kind, count, instances[kind]) for kind, count in sorted(entries.items()))
        agree = sum(c.agrees for c in self.controls)
        controls = f"{agree} of {len(self.controls)} controls agree" if self.controls else "no controls declared"
        note = f"{self.content_id[:23]}, supersedes {(self.supersedes or 'nothing')[:23]}; {controls}"
        return Table(columns=("kind", "entries", "instances"), rows=rows, caption=repr(self), note=note)


def digest_bytes(content: bytes) -> str:
    """``sha256:<hex>`` of a file's bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def name_source(source: Mapping[str, Any] | None) -> str | None:
    """A source that can be named again, as text: a git commit known to be clean, or a package by its digest; else None.

    Examples
    --------
    >>> name_source({"type": "git", "commit": "abc", "dirty": False}), name_source({"type": "git", "commit": "abc"})
    ('git abc', None)
    """
    held = source or {}
    if held.get("type") == "git" and held.get("commit") and held.get("dirty") is False:
        return f"git {held['commit']}"
    if held.get("type") == "package" and held.get("name") and held.get("version") and held.get("digest"):
        return f"package {held['name']} {held['version']} {held['digest']}"
    return None


def _refuse_interrupted(target: Path) -> None:
    if (aside := find_aside(target)) is not None:
        remedy = f"rename {aside} to {target}"
        raise ManifestError("a write was interrupted; the old manifest stands aside", where=target, remedy=remedy)


def _refuse_rollback(manifest: OracleManifest, target: Path) -> None:
    _refuse_interrupted(target)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / HEADER).is_file():
        raise ManifestError("something else stands there", where=target, expected="a manifest folder or nothing")
    old = read_manifest(target)
    if old.content_id == manifest.content_id:
        return
    if (version := manifest.version) <= old.version:
        what, remedy = "a version never goes down", "give the new manifest a higher version and supersede the old one"
        raise ManifestError(what, where=target, expected=f"> {old.version}", found=version, remedy=remedy)
    if manifest.supersedes != old.content_id:
        raise ManifestError("does not supersede the old one", where=target, expected=old.content_id, found=manifest.supersedes)


def read_manifest(path: str | os.PathLike[str], *, at_least: int = 1) -> OracleManifest:
    """Read and verify a manifest folder.

    Parameters
    ----------
    path : path
        The folder, or its ``manifest.json``.
    at_least : int
        The lowest version to accept: the last one you trusted.

    Raises
    ------
    ManifestError
        When a file is missing, cut, altered or malformed, or the version is below ``at_least``; naming the file and line.
    """
    folder = Path(path)
    if folder.name == HEADER:
        folder = folder.parent
    _refuse_interrupted(folder)
    header, lines = _read_file(folder / HEADER), _read_file(folder / ENTRIES)
    try:
        whole = load_strict(header, str(folder / HEADER))
        stated, annotations = whole.pop("content_id"), whole.pop("annotations")
        _check(folder / HEADER, "type", MANIFEST_TYPE, whole["type"])
        _check(folder / ENTRIES, "size in bytes", whole["entries"]["size"], len(lines))
        _check(folder / ENTRIES, "digest", whole["entries"]["digest"], digest_bytes(lines))
        _check(folder / HEADER, "content id", stated, digest_json(whole))
        entries = [load_strict(line, f"{folder / ENTRIES}:{n}") for n, line in enumerate(lines.splitlines(), 1)]
        manifest = _build(whole, annotations, entries)
    except LogFormatError as error:
        raise ManifestError(error.what, where=error.where, found=error.found) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"a field is missing or of the wrong type ({error!r})", where=folder / HEADER) from error
    if (version := manifest.version) < at_least:
        what = "an older manifest than one already trusted"
        raise ManifestError(what, where=folder, expected=f">= {at_least}", found=version)
    _check(folder / HEADER, "content id of what was read", stated, manifest.content_id)
    return manifest


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ManifestError(f"cannot be read ({error.strerror})", where=path, expected="a manifest folder") from error


def _check(where: Path, what: str, expected: object, found: object) -> None:
    if expected != found:
        raise ManifestError(f"{what} disagrees: the file was cut or altered", where=where, expected=expected, found=found)


def _build(header: dict[str, Any], annotations: dict[str, Any], lines: list[dict[str, Any]]) -> OracleManifest:
    return OracleManifest(
        entries=tuple(Entry(**line | {"key": tuple(line["key"])}) for line in lines),
        benchmark=header["benchmark"]["name"],
        benchmark_version=header["benchmark"]["version"],
        harness=header["harness"]["name"],
        harness_version=header["harness"]["version"],
        policies={name: Policy(**policy) for name, policy in header["policies"].items()},
        controls=tuple(Control(**control) for control in header["controls"]),
        references=frozenset(header["references"]),
        annotations=annotations,
        **{name: header[name] for name in ("version", "supersedes", "source", "generator")},
    )
