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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from litmuskit.errors import LogFormatError
from litmuskit.records import Failure, Source

__all__ = ["LARGEST", "Member", "walk_members"]

LOGS = (".json", ".jsonl", ".eval")
PACKED = (".gz", ".zst", ".tgz", ".tar", ".zip")
_PACKED = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")  # how zstd and gzip begin
LARGEST = 1 << 30  # bytes of one member held in memory
SLACK = 1 << 26  # inflating to less is never suspicious
STEEPEST = 250  # inflated bytes per packed byte beyond that: archives of logs reach about 75, a bomb 1,000
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
        if self.path is None or self.held is not None:
            return io.BytesIO(self.held or b"")
        return _open_inflated(self.path, self.source)

    def hold(self, most: int = 1 << 20) -> Member:
        """The member with its bytes in memory where it is a plain file of at most ``most`` bytes: it is then opened once."""
        if self.path is None or self.held is not None:
            return self
        with _typed(self.source), self.path.open("rb", buffering=0) as raw:
            whole = raw.readall() if os.fstat(raw.fileno()).st_size <= most else _PACKED[0]
        return self if whole.startswith(_PACKED) else replace(self, held=whole)

    def read(self) -> bytes:
        """All bytes."""
        if self.held is not None:
            return self.held
        whole = io.BytesIO()
        with _typed(self.source), self.open() as stream:
            while chunk := stream.read(1 << 20):
                whole.write(chunk)
                if whole.tell() > LARGEST:
                    raise LogFormatError("too large to be read whole", where=self.source, expected=f"at most {LARGEST:,} bytes")
        return whole.getvalue()  # not a copy

    def peek(self, size: int = 4096) -> bytes:
        """The first bytes, for sniffing; an empty file is an error."""
        with _typed(self.source), self.open() as stream:
            if head := stream.read(size):
                return head
        raise LogFormatError("file is empty", where=self.source, expected="a log", found=b"")


def walk_members(argument: str | Path) -> Iterator[Member | Failure]:
    """Every log under a path, sorted by name at each level (an archive read as a stream keeps its own order).

    A folder is searched for ``.json``, ``.jsonl``, ``.eval`` and archives, through links but in no circle; names that begin
    with a dot are no logs. A file named outright may have any suffix. An ``.eval`` is a leaf although it is a zip. A path
    that does not exist, and a folder without logs, are one `Failure` (which says what the folder does hold).

    Examples
    --------
    >>> print(next(walk_members("no/such/path")).error)
    no/such/path: cannot be read; found 'FileNotFoundError: No such file or directory'
    """
    path = Path(argument)
    if not os.path.isdir(path):  # noqa: PTH112  # which does not raise where Path.is_dir does
        yield from _open_file(path, path.name)
        return
    ignored: Counter[str] = Counter()
    empty = True
    for found in _walk_folder(path, "", (), ignored):
        empty = False
        yield from [found] if isinstance(found, Failure) else _open_file(*found)
    if empty:
        held = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in ignored.most_common(8)) or "nothing"
        yield _fail(Source(path=str(path)), "folder holds no log", expected=", ".join(LOGS + PACKED), found=held)


def _fail(source: Source, what: str, **facts: Any) -> Failure:
    return Failure(source=source, error=LogFormatError(what, where=source, **facts))


def _open_file(path: Path, name: str) -> Iterator[Member | Failure]:
    source = Source(path=str(path))
    try:
        with _typed(source):
            if not stat.S_ISREG(path.stat().st_mode):
                yield _fail(source, "is no regular file")
            elif name.endswith(LOGS):
                yield Member(source=source, name=name, path=path)
            else:
                yield from _open_packed(path, name, source)
    except LogFormatError as error:
        yield Failure(source=source, error=error)


def _walk_folder(
    folder: Path, prefix: str, above: tuple[tuple[int, int], ...], ignored: Counter[str]
) -> Iterator[tuple[Path, str] | Failure]:
    source = Source(path=str(folder))
    try:
        with _typed(source):
            status, entries = folder.stat(), sorted(os.scandir(folder), key=lambda entry: entry.name)
    except LogFormatError as error:
        yield Failure(source=source, error=error)
        return
    here = (status.st_dev, status.st_ino)
    if here in above:
        yield _fail(source, "a link leads back to a folder above it")
        return
    for entry in entries:
        name = entry.name
        is_folder = os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112  # a link may lead nowhere
        if is_folder and not name.startswith("."):
            yield from _walk_folder(folder / name, f"{prefix}{name}/", (*above, here), ignored)
        elif not name.startswith(".") and name.endswith(LOGS + PACKED):
            yield Path(entry.path), f"{prefix}{name}"
        else:
            ignored[name[name.rfind(".") :] if "." in name else ""] += 1


def _open_packed(path: Path, name: str, source: Source) -> Iterator[Member | Failure]:
    """The members of a file whose name does not say log: those of an archive, else itself."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
            if not any(entry.filename == "header.json" or entry.filename.startswith("_journal/") for entry in entries):
                for entry in entries:
                    if _is_log(entry.filename):
                        yield _hold(path, entry.filename, partial(archive.open, entry), entry.file_size, entry.compress_size)
                return
    with _open_inflated(path, source) as stream:
        head = stream.read(512)
    if head[257:262] != b"ustar":
        yield Member(source=source, name=name.removesuffix(".gz").removesuffix(".zst"), path=path)
        return
    with _open_inflated(path, source, watched=True) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        while (found := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # a stream is not searched again
            if found.isreg() and _is_log(found.name):
                yield _hold(path, found.name, partial(tar.extractfile, found), found.size, found.size)
        while stream.read(1 << 18):
            pass
        last = cast("_Bounded", stream.raw).last
    if len(last) < 1024 or any(last):  # tarfile takes a cut archive for a finished one
        raise LogFormatError("archive is cut", where=source, expected="1,024 zero bytes at its end", found=last[-8:])


def _is_log(name: str) -> bool:
    parts = name.split("/")
    return name.endswith(LOGS + PACKED) and not any(part.startswith(".") and part != ".." for part in parts)


def _hold(path: Path, name: str, opener: Callable[[], Any], size: int, packed: int) -> Member | Failure:
    """A member of an archive with its bytes."""
    source = Source(path=str(path), member=name)
    try:
        return Member(source=source, name=name.removesuffix(".gz"), held=_read_entry(opener, size, packed, source))
    except LogFormatError as error:
        return Failure(source=source, error=error)


def _read_entry(opener: Callable[[], Any], size: int, packed: int, source: Source) -> bytes:
    name = source.member or ""
    if not name.endswith((*LOGS, ".json.gz", ".jsonl.gz")):
        raise LogFormatError("an archive inside an archive is not opened", where=source, remedy="unpack it first")
    if size > LARGEST:
        raise LogFormatError("too large to be held", where=source, expected=f"at most {LARGEST:,} bytes", found=size)
    with _typed(source), io.BufferedReader(_Bounded(opener(), packed, source)) as bounded:
        held = bounded.read()
    if not name.endswith(".gz"):
        return held
    with _typed(source), io.BufferedReader(_Bounded(gzip.open(io.BytesIO(held)), len(held), source)) as bounded:
        return bounded.read()


def _open_inflated(path: Path, source: Source, *, watched: bool = False) -> io.BufferedReader:
    with _typed(source):
        raw = path.open("rb")
        head, packed = raw.peek(4)[:4], os.fstat(raw.fileno()).st_size
    stream: Any = raw
    if head == _PACKED[0]:
        stream = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(raw, read_across_frames=True)
    elif head[:2] == _PACKED[1]:
        raw.close()
        stream = gzip.open(path)  # noqa: SIM115  # closed with the reader around it
    elif not watched:
        return raw
    return io.BufferedReader(_Bounded(stream, packed, source), 1 << 18)


class _Bounded(io.RawIOBase):
    """An inflated stream that ends in an error, not in memory, when it grows as no log does; it knows its last bytes."""

    def __init__(self, stream: Any, packed: int, source: Source) -> None:
        self.stream, self.source, self.last = stream, source, b""
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
        self.last = (self.last + chunk[-1024:])[-1024:]
        return len(chunk)

    def close(self) -> None:
        self.stream.close()
        super().close()


@contextmanager
def _typed(source: Source) -> Iterator[None]:
    """Turn what the operating system and the decompressors raise into one typed error."""
    try:
        yield
    except _DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{error}"
        raise LogFormatError("cannot be read", where=source, found=f"{type(error).__name__}: {reason}") from error
