"""``litmuskit-log/1``: our own format, and the reference for other harnesses.

One JSON object per line: a header ``{"type": "litmuskit-log/1", "harness": {...}}``, then episodes
``{"type": "episode", "record": ..., ...}``, then ``{"type": "end", "episodes": n}``, so that a log cut between two lines is
seen to be cut. The keys are the fields of `litmuskit.records`, whose annotations are the parser: a field at its default may
be left out, an unknown key is refused by name (``metadata`` takes what is for people). A transcript holds its ``contexts``
once and its calls name them by index; bytes are ``{"b64": ...}``. ``log.schema.json`` beside this module says the same.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from litmuskit.canonical import load_lossless, load_strict
from litmuskit.errors import InputError, LogFormatError
from litmuskit.readers.container import LARGEST, Member
from litmuskit.readers.polarity import LabelRules, resolve_labels
from litmuskit.readers.shapes import encode_record, parse_at, parse_fields, parse_record, refuse
from litmuskit.records import Context, Episode, Failure, Harness, Label, Source

__all__ = ["FORMAT", "encode_episode", "encode_line", "read_episodes", "sniff", "write_log"]

FORMAT = "litmuskit-log/1"
_HEAD = re.compile(rb'(\xef\xbb\xbf)?\s*\{[^\n]*"type"\s*:\s*"litmuskit-log/')
_PERHAPS_INFINITE = re.compile(rb"NaN|Infinity|\d[eE]\+?\d{3}")


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001  # a log is known by its content
    """Whether the first line is a header of this format, of any version."""
    return _HEAD.match(head) is not None


def read_episodes(member: Member, rules: LabelRules) -> Iterator[Episode | Failure]:
    """Stream the episodes of one log; logs written one after another into one file are read one after another.

    Labels carry their ``violation``. Where they hold only a ``value``, or a rule names their scorer, the rules decide.

    Raises
    ------
    LogFormatError
        When a header is wrong. A line that cannot be read, and a missing end, are yielded as `Failure`.
    """
    harness: Harness | None = None
    count = number = 0
    with member.open() as stream:
        while line := stream.readline(LARGEST):
            number += 1
            source = replace(member.source, line=number)
            if not line.strip():
                continue
            if harness is None:
                harness, count = _read_header(_load(line, source), source), 0
                continue
            try:
                entry = _load(line, source)
                if entry.get("type") == "end":
                    harness = None
                    if entry != {"type": "end", "episodes": count}:
                        refuse(f"{source} $", f"an end after {count} episodes", entry)
                else:
                    count += 1
                    yield parse_at(f"{source} $", _build_episode, entry, harness, source, rules)
            except InputError as error:
                yield Failure(source=source, error=error)
    if harness is not None:
        cut = LogFormatError("log is cut: it has no end line", where=member.source, found=f"{count} episodes in {number} lines")
        yield Failure(source=member.source, error=cut)


def write_log(path: str | Path, episodes: Iterable[Episode], header: Harness | None = None) -> None:
    """Write a log whole or not at all (a temporary file beside it, then a rename).

    Parameters
    ----------
    path : path
    episodes : iterable of Episode
        Taken one by one. Where a record stood (`Episode.source`) is not written.
    header : Harness, optional
        Who produced the log, by default the first episode's harness; an episode of another harness carries its own.

    Raises
    ------
    InputError
        When an episode would not read back equal: bytes, tuples, NaN or keys that are not text, inside free JSON.
    """
    target, count = Path(path), 0
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as stream:
            for count, episode in enumerate(episodes, 1):
                if count == 1:
                    header = header or episode.harness
                    stream.write(encode_line({"type": FORMAT, "harness": header}))
                stream.write(encode_episode(episode, header or episode.harness))
            if count == 0:
                raise InputError("a log needs an episode", where=target)
            stream.write(encode_line({"type": "end", "episodes": count}))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def encode_episode(episode: Episode, header: Harness) -> bytes:
    """One episode as a line that is known to read back equal."""
    entry = {"type": "episode", **encode_record(episode)}
    del entry["source"]
    if episode.harness == header:
        del entry["harness"]
    contexts: dict[str, int] = {}
    for call in entry["transcript"]["calls"]:
        call["context"] = contexts.setdefault(json.dumps(call["context"], default=_unwrap), len(contexts))
    entry["transcript"]["contexts"] = [json.loads(text) for text in contexts]
    line = encode_line(entry)
    where = f"episode {episode.record!r} $"
    back = parse_at(where, _build_episode, _load(line, episode.source), header, episode.source, LabelRules())
    if back != episode:
        free = "in free fields only text, numbers, booleans, lists and mappings with text keys"
        raise InputError("would not read back equal", where=where, expected=free)
    return line


def encode_line(entry: Mapping[str, Any]) -> bytes:
    """One line of the format: compact JSON in UTF-8, lone surrogates as escapes."""
    plain = {key: encode_record(value) for key, value in entry.items()}
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_unwrap)
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":"), default=_unwrap).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"is not JSON ({error})", where=f"episode {entry.get('record')!r}") from None


def _unwrap(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} in a free field")


def _load(line: bytes, source: Source) -> dict[str, Any]:
    """One line, strictly: no duplicate keys and no infinities, but integers of any length and lone surrogates pass."""
    parsed = load_lossless(line, str(source))
    if _PERHAPS_INFINITE.search(line):
        try:
            json.dumps(parsed, allow_nan=False)
        except ValueError:
            load_strict(line, str(source))
    if not isinstance(parsed, dict):
        raise LogFormatError("line is no object", where=source, expected="a JSON object", found=parsed)
    return parsed


def _read_header(entry: dict[str, Any], source: Source) -> Harness:
    if (kind := entry.get("type")) != FORMAT:
        refuse(f"{source} $.type", f"a header, {FORMAT}", kind)
    if entry.keys() != {"type", "harness"}:
        refuse(f"{source} $", "the keys type and harness", sorted(entry))
    harness: Harness = parse_at(f"{source} $.harness", parse_record, Harness, entry["harness"])
    return harness


def _build_episode(entry: dict[str, Any], harness: Harness, source: Source, rules: LabelRules) -> Episode:
    kind, labels = entry.pop("type", None), entry.pop("labels", None)
    if kind != "episode":
        refuse(".type", "episode or end", kind)
    if "source" in entry:
        refuse(".source", "no such key: a record stands where it is read", entry["source"])
    if not isinstance(labels, list):
        refuse(".labels", "a list", labels)
    transcript = entry.get("transcript")
    if isinstance(transcript, dict):
        _place_contexts(transcript)
    facts = {"harness": harness, **parse_fields(Episode, entry, frozenset({"harness", "labels", "source"}))}
    scores = [parse_at(f".labels[{i}]", parse_fields, Label, label, frozenset({"violation"})) for i, label in enumerate(labels)]
    judged = [(score.pop("scorer"), score.pop("value", None), score) for score in scores]
    return Episode(source=source, labels=resolve_labels(judged, rules, f"{source} $.labels"), **facts)


def _place_contexts(transcript: dict[str, Any]) -> None:
    """Put each call's context in the place of its index."""
    listed = transcript.pop("contexts", [])
    if not isinstance(listed, list):
        refuse(".transcript.contexts", "a list", listed)
    contexts = [parse_at(f".transcript.contexts[{i}]", parse_record, Context, found) for i, found in enumerate(listed)]
    calls = transcript.get("calls")
    for i, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict) and "context" in call:
            index = call["context"]
            if type(index) is not int or not 0 <= index < len(contexts):
                refuse(f".transcript.calls[{i}].context", f"an index below {len(contexts)}", index)
            call["context"] = contexts[index]
