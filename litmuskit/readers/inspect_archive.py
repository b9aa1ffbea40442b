"""An Inspect archive: members of a zip, inflated within bounds and never believed unchecked.

The standard library reads the directory; members are inflated here, because Inspect writes zstandard (method 93, several
frames) and because a directory lies: a declared size bounds what is inflated, a checksum decides whether it is believed.
Of members with one name the last counts, as in Inspect. Names are only names: nothing is written anywhere.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import UnionType
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
import zstandard
from zlib_ng import zlib_ng

from litmuskit.errors import LogFormatError
from litmuskit.readers.container import Member
from litmuskit.records import Source

__all__ = ["Archive", "decode_json", "open_archive"]

T = TypeVar("T")
LARGEST = 1 << 29  # bytes one member may inflate to; a sample of a thousand turns takes about 1 << 26
_TAIL = 1 << 24  # bytes at the end of a cut archive in which its last member is looked for
STORED, DEFLATED, ZSTANDARD, ENCRYPTED = 0, 8, 93, 0x1
_LOCAL = struct.Struct("<4s22xHH")
_ERROR = cast("type[Exception]", zlib_ng.error)  # which its stub takes for an instance
_DAMAGE = (zipfile.BadZipFile, _ERROR, zstandard.ZstdError, struct.error, OSError, EOFError, ValueError, RuntimeError)
_SAMPLE = re.compile(r"samples/.+_epoch_\d+(/sample)?\.json", re.DOTALL)
_CHUNK = re.compile(r"((samples/.+)/(?:messages|events|attachments))/(\d+)\.json", re.DOTALL)


class Archive:
    """The members of one log; ``repeated`` counts the superseded copies of a name."""

    def __init__(self, stream: BinaryIO, source: Source) -> None:
        self.stream, self.source, self.inflater = stream, source, zstandard.ZstdDecompressor()
        with _typed(source, stream):
            directory = zipfile.ZipFile(stream).infolist()
        self.entries = {entry.filename: entry for entry in directory}
        self.repeated = Counter(entry.filename for entry in directory) - Counter(list(self.entries))
        self.chunks: dict[str, dict[int, str]] = {}
        for found in filter(None, map(_CHUNK.fullmatch, self.entries)):
            self.chunks.setdefault(found[1], {})[int(found[3])] = found[0]
        inside = tuple({f"{sequence.rpartition('/')[0]}/" for sequence in self.chunks})
        samples = [name for name in self.entries if _SAMPLE.fullmatch(name)]
        self.samples = [name for name in samples if name.endswith("/sample.json") or not name.startswith(inside)]

    def locate(self, name: str) -> Source:
        """Where a member stands, also in an archive that stands in an archive."""
        return Source(path=self.source.path, member=f"{self.source.member}!{name}" if self.source.member else name)

    def read(self, name: str) -> bytes:
        """A member's bytes, inflated at most to its declared size and checked; errors name member and offset."""
        entry = self.entries[name]
        where, size = f"{self.locate(name)} at byte {entry.header_offset}", entry.file_size
        if entry.flag_bits & ENCRYPTED or entry.compress_type not in {STORED, DEFLATED, ZSTANDARD}:
            allowed, found = "stored (0), deflate (8) or zstandard (93), unencrypted", entry.compress_type
            raise LogFormatError("unknown compression method", where=where, expected=allowed, found=found)
        if size > LARGEST:
            raise LogFormatError("member is too large", where=where, expected=f"at most {LARGEST:,} bytes", found=size)
        with _typed(where):
            self.stream.seek(entry.header_offset)
            mark, name_size, extra_size = _LOCAL.unpack(self.stream.read(_LOCAL.size))
            self.stream.seek(name_size + extra_size, io.SEEK_CUR)
            packed = self.stream.read(entry.compress_size)
            if mark != b"PK\x03\x04" or len(packed) < entry.compress_size:
                raise LogFormatError("member is cut, or not where the directory says", where=where, found=mark)
            whole = self._inflate(packed, entry.compress_type, size + 1)
        if len(whole) != size:
            inflated = f"{'more than ' if len(whole) > size else ''}{min(len(whole), size):,}"
            raise LogFormatError("member is not of its declared size", where=where, expected=f"{size:,} bytes", found=inflated)
        if (checksum := zlib_ng.crc32(whole)) != entry.CRC:
            raise LogFormatError("checksum is wrong", where=where, expected=f"{entry.CRC:08x}", found=f"{checksum:08x}")
        return whole

    def _inflate(self, packed: bytes, method: int, bound: int) -> bytes:
        if method == DEFLATED:
            return zlib_ng.decompressobj(-zlib_ng.MAX_WBITS).decompress(packed, bound)
        if method == ZSTANDARD:
            return bytes(self.inflater.stream_reader(packed, read_across_frames=True).read(bound))
        return packed

    def read_chunks(self, shell: str, kind: str) -> list[Any]:
        """One sequence of a chunked sample; chunks are named by their first index and must leave no gap."""
        whole: list[Any] = []
        for start, name in sorted(self.chunks.get(f"{shell.removesuffix('/sample.json')}/{kind}", {}).items()):
            place = self.locate(name)
            if start != len(whole):
                raise LogFormatError("a chunk is missing before this one", where=place, expected=len(whole), found=start)
            whole += decode_json(self.read(name), list[Any], place)
        return whole


@contextmanager
def open_archive(member: Member) -> Iterator[Archive]:
    """The archive of a log file, wherever it lies."""
    with member.open() as stream:
        yield Archive(stream if stream.seekable() else io.BytesIO(member.read()), member.source)


@contextmanager
def _typed(where: object, cut: BinaryIO | None = None) -> Iterator[None]:
    try:
        yield
    except LogFormatError:
        raise
    except _DAMAGE as error:
        found = f"{type(error).__name__}: {error}{_find_end(cut) if cut else ''}"
        raise LogFormatError("archive cannot be read", where=where, found=found) from error


def _find_end(stream: BinaryIO) -> str:
    """The last member of a cut archive, and where the bytes end."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(size - _TAIL, 0))
    tail = stream.read()
    start = tail.rfind(b"PK\x03\x04")
    if start < 0 or len(tail) < start + _LOCAL.size:
        return f"; ends at byte {size:,}"
    _, length, _ = _LOCAL.unpack_from(tail, start)
    name = tail[start + _LOCAL.size : start + _LOCAL.size + length].decode("utf-8", "replace")
    return f"; ends at byte {size:,}, behind or in member {name} at byte {max(size - _TAIL, 0) + start:,}"


@cache
def _build_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode_json(value: Any, kind: type[T] | UnionType, where: object, otherwise: type[T] | None = None) -> T:
    """JSON, or what was parsed of it, as a typed struct; NaN, infinities and lone surrogates are read as Inspect writes them.

    ``otherwise`` is the type where the strict parser refuses or ``value`` was parsed already: only bytes can be kept verbatim.
    Raises `LogFormatError` when it is no JSON, or a field is missing or of another type (with its JSON path).
    """
    verbatim = isinstance(value, bytes | msgspec.Raw)
    if verbatim:
        with suppress(msgspec.DecodeError, RecursionError):  # the slow parser reads more, and says better where it cannot
            return cast("T", _build_decoder(cast("Any", kind)).decode(value))
    try:
        return cast("T", msgspec.convert(json.loads(bytes(value)) if verbatim else value, otherwise or kind))
    except (ValueError, RecursionError) as error:
        raise LogFormatError("is not an Inspect log", where=where, found=f"{type(error).__name__}: {error}") from error
