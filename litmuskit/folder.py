"""A folder of files that is replaced whole, on the disk too, or not at all."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["find_aside", "write_folder"]

_ASIDE = "-old"


def write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Let a folder of just these files stand at ``target``, in the place of the folder that stands there.

    Built beside its place, put on the disk, and exchanged with the old one in one step where the system can. Elsewhere an
    interruption between two renames leaves the old one whole under another name: see `find_aside`.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fresh.chmod(0o755)
        for name, content in files.items():
            with (fresh / name).open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        _sync_folder(fresh)
        aside = fresh if _exchange(fresh, target) else _put_in_place(fresh, target)
        _sync_folder(target.parent)
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def find_aside(target: Path) -> Path | None:
    """Where the folder stands that an interrupted `write_folder` took from its place; None where nothing is amiss."""
    place = target.resolve()
    found = () if place.exists() else place.parent.glob(f".{glob.escape(place.name)}-*{_ASIDE}")
    return max(found, default=None)


def _exchange(one: Path, other: Path) -> bool:
    """Whether two folders were exchanged in one step, as Linux can (``renameat2`` from here, with ``RENAME_EXCHANGE``)."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    return rename is not None and rename(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


def _put_in_place(fresh: Path, target: Path) -> Path:
    """Rename ``target`` aside and ``fresh`` to its place; where the old one stands."""
    aside = fresh.with_name(f"{fresh.name}{_ASIDE}")
    if target.exists():
        target.rename(aside)
    try:
        fresh.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    return aside


def _sync_folder(path: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
