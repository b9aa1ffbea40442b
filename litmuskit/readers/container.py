"""Where logs lie: a file, a folder, or an archive of runs.

`walk_members` finds every file a reader could want, in one order, and opens nothing it need not open. Archives are read as
streams: a member's name is only a name, nothing is unpacked to disk, and what a compressed stream may grow to is bounded,
because declared sizes lie. What cannot be read is a `Failure` in the walk, never a gap in it.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from litmuskit.errors import LogFormatError
from litmuskit.records import Failure, Source

__all__ = ["Member", "walk_members"]

LOGS = (".json", ".jsonl", ".eval")
PACKED = (".gz", ".zst", ".tgz", ".tar", ".zip")
LARGEST = 1 << 30  # bytes of one member held in memory, or inflated from one compressed file
SLACK = 1 << 26  # inflation below this is never suspicious
STEEPEST = 250  # inflated bytes per compressed byte beyond `SLACK`; logs reach about 75, a bomb 1,000
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_DAMAGE = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError, zstandard.ZstdError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One log file: where it stands, its name relative to the argument, and its bytes on demand.

    ``path`` is None inside an archive. Opening or reading raises `LogFormatError` naming the source.
    """

    source: Source
    name: str
    path: Path | None = None
    held: bytes | None = field(default=None, repr=False)

    def open(self) -> BinaryIO:
        """A binary stream from the first byte; seekable unless the file is compressed."""
        if self.held is not None:
            return io.BytesIO(self.held)
        with _typed(self.source):
            return _open_inflated(cast("Path", self.path), self.source)

    def read(self) -> bytes:
        """All bytes."""
        if self.held is not None:
            return self.held
        with self.open() as stream, _typed(self.source):
            whole = stream.read(LARGEST + 1)
        if len(whole) > LARGEST:
            raise LogFormatError("too large to be read whole", where=self.source, expected=f"at most {LARGEST:,} bytes")
        return whole

    def peek(self, size: int = 4096) -> bytes:
        """The first bytes, for sniffing; an empty file is an error."""
        with self.open() as stream, _typed(self.source):
            head = stream.read(size)
        if not head:
            raise LogFormatError("file is empty", where=self.source, expected="a log", found=head)
        return head


def walk_members(argument: str | Path) -> Iterator[Member | Failure]:
    """Every log under a path, sorted by name at each level (an archive read as a stream keeps its own order).

    A folder is searched for ``.json``, ``.jsonl``, ``.eval`` and archives, through links but in no circle; names that begin
    with a dot are no logs. A file named outright may have any suffix. An ``.eval`` is a leaf although it is a zip.

    Raises
    ------
    LogFormatError
        When the path does not exist, or the folder holds no log (naming what it does hold).

    Examples
    --------
    >>> next(walk_members("no/such/path"))
    Traceback (most recent call last):
    ...
    litmuskit.errors.LogFormatError: no/such/path: no such file or folder
    """
    path = Path(argument)
    if not os.path.lexists(path):
        raise LogFormatError("no such file or folder", where=path)
    if not path.is_dir():
        yield from _open_file(path, path.name)
        return
    ignored: Counter[str] = Counter()
    empty = True
    for found in _walk_folder(path, "", frozenset(), ignored):
        empty = False
        yield from [found] if isinstance(found, Failure) else _open_file(*found)
    if empty:
        held = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in ignored.most_common(8)) or "nothing"
        raise LogFormatError("folder holds no log", where=path, expected=", ".join(LOGS + PACKED), found=held)


def _walk_folder(
    folder: Path, prefix: str, parents: frozenset[tuple[int, int]], ignored: Counter[str]
) -> Iterator[tuple[Path, str] | Failure]:
    source = Source(path=str(folder))
    try:
        with _typed(source):
            status = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        here = (status.st_dev, status.st_ino)
        if here in parents:
            raise LogFormatError("a link leads back to a folder above it", where=source)
    except LogFormatError as error:
        yield Failure(source=source, error=error)
        return
    for entry in entries:
        name = entry.name
        if name.startswith("."):
            ignored[name] += 1
        elif entry.is_dir():
            yield from _walk_folder(folder / name, f"{prefix}{name}/", parents | {here}, ignored)
        elif name.endswith(LOGS + PACKED):
            yield Path(entry.path), f"{prefix}{name}"
        else:
            ignored[os.path.splitext(name)[1]] += 1  # noqa: PTH122  # a Path per file is the cost of the walk


def _open_file(path: Path, name: str) -> Iterator[Member | Failure]:
    """The members of one file: itself, unless its content says archive."""
    source = Source(path=str(path))
    if name.endswith(LOGS):
        yield Member(source=source, name=name, path=path)
        return
    try:
        with _typed(source):
            if not stat.S_ISREG(path.stat().st_mode):
                raise LogFormatError("not a regular file", where=source)
            with path.open("rb") as stream:
                head = stream.read(4)
            if head == _ZIP and not _is_inspect(path):
                yield from _open_zip(path)
                return
            with _open_inflated(path, source) as inflated:
                if inflated.read(512)[257:262] == b"ustar":
                    inflated.close()
                    yield from _stream_tar(path, source)
                    return
        yield Member(source=source, name=name.removesuffix(".gz").removesuffix(".zst"), path=path)
    except LogFormatError as error:
        yield Failure(source=source, error=error)


def _is_inspect(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name == "header.json" or name.startswith("_journal/") for name in archive.namelist())


def _open_zip(path: Path) -> Iterator[Member | Failure]:
    with zipfile.ZipFile(path) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            if _is_log(info.filename):
                with archive.open(info) as stream:
                    yield _hold(path, info.filename, stream, info.file_size)


def _stream_tar(path: Path, source: Source) -> Iterator[Member | Failure]:
    with _open_inflated(path, source) as inflated:
        ending = _Tail(inflated)
        with tarfile.open(fileobj=cast("BinaryIO", ending), mode="r|") as archive:
            while (info := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # a stream is not searched again: keep no list of it
                if info.isreg() and _is_log(info.name):
                    yield _hold(path, info.name, cast("BinaryIO", archive.extractfile(info)), info.size)
        if not ending.is_complete():
            raise LogFormatError("archive is cut: its end mark is missing", where=source)


def _is_log(name: str) -> bool:
    return name.endswith((*LOGS, *PACKED)) and not any(part.startswith(".") and part != ".." for part in name.split("/"))


def _hold(path: Path, name: str, stream: BinaryIO, size: int) -> Member | Failure:
    source = Source(path=str(path), member=name)
    try:
        if size > LARGEST:
            raise LogFormatError("member is too large to be held", where=source, expected=f"at most {LARGEST:,}", found=size)
        if not name.endswith((*LOGS, ".gz")) or name.endswith(".tar.gz"):
            raise LogFormatError("an archive inside an archive is not opened", where=source, remedy="unpack it first")
        with _typed(source):
            held = stream.read()
            if name.endswith(".gz"):
                with _bound(gzip.open(io.BytesIO(held)), len(held), source) as inflated:
                    held = inflated.read()
        return Member(source=source, name=name.removesuffix(".gz"), held=held)
    except LogFormatError as error:
        return Failure(source=source, error=error)


def _open_inflated(path: Path, source: Source) -> BinaryIO:
    raw = path.open("rb")
    head = raw.peek(4)[:4]
    if head[:2] == _GZIP:
        return _bound(gzip.open(raw), path.stat().st_size, source)
    if head == _ZSTD:
        opened = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(raw, read_across_frames=True)
        return _bound(opened, path.stat().st_size, source)
    return raw


def _bound(stream: Any, packed: int, source: Source) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Bounded(stream, packed, source), 1 << 18))


class _Bounded(io.RawIOBase):
    """An inflated stream that ends in an error, not in memory, when it grows as no log does."""

    def __init__(self, stream: Any, packed: int, source: Source) -> None:
        self.stream, self.source = stream, source
        self.left = max(SLACK, packed * STEEPEST)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _typed(self.source):
            chunk = self.stream.read(len(buffer))
        self.left -= len(chunk)
        if self.left < 0:
            raise LogFormatError("inflates as no log does", where=self.source, expected=f"at most {STEEPEST} times its size")
        buffer[: len(chunk)] = chunk
        return len(chunk)


class _Tail:
    """A stream that remembers its last 1,024 bytes: `tarfile` takes a cut archive for a finished one."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.last = stream, b""

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.last = (self.last + chunk)[-1024:]
        return chunk

    def is_complete(self) -> bool:
        while self.read(1 << 18):
            pass
        return len(self.last) == 1024 and not any(self.last)


@contextmanager
def _typed(source: Source) -> Iterator[None]:
    """Turn what the operating system and the decompressors raise into one typed error."""
    try:
        yield
    except _DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{error}"
        raise LogFormatError("cannot be read", where=source, found=f"{type(error).__name__}: {reason}") from error
