"""Inspect logs (``.eval``, ``.json``; inspect_ai 0.3.41 to 0.3.285), one sample at a time.

Inspect's own reader shows an empty input for a dangling reference and follows a reference that a tool wrote itself; here
both are errors or literal text, because an audit must never show a stimulus the model did not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from litmuskit.canonical import digest_json
from litmuskit.errors import InputError, LogFormatError, OutOfScopeError
from litmuskit.readers.container import Member
from litmuskit.readers.inspect_archive import Archive, decode_json, open_archive
from litmuskit.readers.inspect_events import Reading, read_tools, read_transcript
from litmuskit.readers.inspect_samples import ChunkedSample, Sample, VerbatimSample, dig
from litmuskit.readers.polarity import LabelRules, resolve_labels
from litmuskit.readers.reasons import rests_on_form
from litmuskit.records import MATCH_KEYS, Episode, Failure, Harness, Label, Policy, Source, Status

__all__ = ["OWN_SCORER", "read_episodes", "sniff"]

OWN_SCORER = "litmuskit"  # the verdicts that `inspect_hook` writes back judge the harness, not the agent
NEWEST = 3  # version of the log format
_KEYS = {key: key for key in MATCH_KEYS} | {"argument_hash": "arguments", "arguments_hash": "arguments"}
_CUTS = (((0, 3, 252), "middle, between code points"), ((0, 3, 117), "middle"), ((0,), "head"))


class _Header(msgspec.Struct):
    eval: dict[str, Any]
    version: int = 2
    status: str = "started"
    results: Any = None
    stats: Any = None
    samples: list[Any] | None = None


class _Document(_Header):
    samples: list[msgspec.Raw] | None = None


class _Log(NamedTuple):
    """A header, and where each sample stands with what reads it; ``superseded`` names the sources that stand twice."""

    name: str
    header: _Header
    samples: Sequence[tuple[Source, Callable[[], Sample]]]
    superseded: frozenset[Source] = frozenset()


def sniff(head: bytes, name: str) -> bool:
    """Whether the first bytes, or the name where they are damaged, are an Inspect log's or an ATIF trajectory's."""
    if name.endswith(".eval") or head.startswith(b"PK"):
        return True
    spec = b'"eval"' in head[:400] and (b'"status"' in head[:200] or b'"created"' in head)  # as written, or keys sorted
    return head[:64].lstrip()[:1] == b"{" and (b'"ATIF' in head or spec)


def read_episodes(member: Member, rules: LabelRules) -> Iterator[Episode | Failure]:
    """The samples of a log as episodes, then as a `Failure` how many the header promises beyond them.

    Raises
    ------
    OutOfScopeError
        For a log without tools, and for an ATIF trajectory.
    LogFormatError
        When the container or the header cannot be read. A sample that cannot be read is yielded as a `Failure`.
    """
    if member.name.endswith(".eval") or member.peek(2) == b"PK":
        with open_archive(member) as archive:
            yield from _read_log(_open_eval(archive, member), member.source, rules)
    else:
        yield from _read_log(_open_document(member), member.source, rules)


def _open_eval(archive: Archive, member: Member) -> _Log:
    known = next((name for name in ("header.json", "_journal/start.json") if name in archive.entries), None)
    if known is None:
        raise LogFormatError("neither header.json nor _journal/start.json is in the log", where=member.source)
    header = decode_json(archive.read(known), _Header, archive.locate(known))
    samples = [(archive.locate(name), partial(_read_member, archive, name)) for name in archive.samples]
    return _Log(member.name, header, samples, frozenset(map(archive.locate, archive.repeated)))


def _read_member(archive: Archive, name: str) -> Sample:
    if not name.endswith("/sample.json"):
        return decode_json(archive.read(name), VerbatimSample, archive.locate(name), Sample)
    sample = decode_json(archive.read(name), ChunkedSample, archive.locate(name))
    events, messages, texts = (archive.read_chunks(name, kind) for kind in ("events", "messages", "attachments"))
    attachments = {str(index): text for index, text in enumerate(texts)}
    chunks = {"id": sample.id, "epoch": sample.epoch, "events": events, "message_pool": messages, "attachments": attachments}
    whole = decode_json(chunks, Sample, archive.locate(name))
    sample.events, sample.message_pool, sample.attachments = whole.events, whole.message_pool, whole.attachments
    skeleton = name.replace("/sample.json", "/skeleton.json")
    if skeleton in archive.entries:
        told = dig(decode_json(archive.read(skeleton), dict[str, Any], archive.locate(skeleton)), "counts", "events")
        if told != len(events):
            raise LogFormatError("chunks of events are missing", where=archive.locate(name), expected=told, found=len(events))
    return sample


def _open_document(member: Member) -> _Log:
    text = member.read()
    if b'"ATIF' in text[:4096]:
        what = "ATIF trajectory: an agent's steps without the stimulus of each model call"
        raise OutOfScopeError(what, where=member.source, remedy="audit the log of the harness that wrote it")
    header = decode_json(text, _Document, member.source, _Header)
    outer, samples = f"{member.source.member}!" if member.source.member else "", header.samples or ()
    pairs = [(Source(path=member.source.path, member=f"{outer}samples[{i}]"), sample) for i, sample in enumerate(samples)]
    read = [(source, partial(decode_json, sample, VerbatimSample, source, Sample)) for source, sample in pairs]
    return _Log(member.name, header, read)


def _read_log(log: _Log, source: Source, rules: LabelRules) -> Iterator[Episode | Failure]:
    if log.header.version > NEWEST:
        raise LogFormatError("newer log format", where=source, expected=f"version {NEWEST}", found=log.header.version)
    if not any(_offers_tools(read) for _, read in log.samples) and any(_offers_tools(read) is False for _, read in log.samples):
        held = f"{len(log.samples)} samples of {dig(log.header.eval, 'task')}"
        raise OutOfScopeError("no sample offers or calls a tool: there is no tool loop to audit", where=source, found=held)
    found = re.match(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", str(dig(log.header.eval, "packages", "inspect_ai")))
    version = tuple(map(int, found.groups())) if found else (0,)
    for place, read in log.samples:
        try:
            yield _read_episode(log, version, read(), place, rules)
        except InputError as error:
            yield Failure(source=place, error=error)
        except RecursionError:
            yield Failure(source=place, error=LogFormatError("nested too deeply", where=place))
    missing, unfinished = _count_promised(log.header) - len(log.samples), log.header.status == "started"
    if missing > 0 or unfinished:
        short = f"the header promises {missing} more samples than the log holds" if missing > 0 else ""
        what = ": ".join(filter(None, ("the run never finished" if unfinished else "", short)))
        expected = f"{len(log.samples) + max(missing, 0)} samples ({log.header.status})"
        shortfall = LogFormatError(what, where=source, expected=expected, found=len(log.samples))
        yield Failure(source=source, error=shortfall, missing=max(missing, 1))


def _count_promised(header: _Header) -> int:
    """How many samples the run was to have: what its results say, or its plan where that is more.

    Results are counted anew from what is left in the log when a score is edited or added.
    """
    total, ids = dig(header.results, "total_samples"), dig(header.eval, "dataset", "sample_ids")
    planned, epochs = dig(header.eval, "dataset", "samples"), dig(header.eval, "config", "epochs")
    if isinstance(ids, list):
        planned = len(ids)
    elif isinstance(total, int) or not isinstance(planned, int) or dig(header.eval, "config", "sample_id") is not None:
        planned = 0
    else:  # old logs
        limit = dig(header.eval, "config", "limit")
        start, stop = limit if isinstance(limit, list) and len(limit) == 2 else (0, limit)
        left = range(planned)[start:stop] if all(isinstance(end, int | None) for end in (start, stop)) else range(0)
        planned = max(left.stop - left.start, 0)  # a header may claim more than a length can be
    return max(total if isinstance(total, int) else 0, planned * (epochs if isinstance(epochs, int) else 1))


def _offers_tools(read: Callable[[], Sample]) -> bool | None:
    """Whether a sample is in scope; one that cannot be read is, so that its error is seen. None: lost before a model call."""
    try:
        sample = read()
        offered = any(read_tools(event, sample.id) for event in sample.events if event.event == "model")
    except InputError:
        return True
    kinds = {event.event for event in sample.events}
    offered |= "tool" in kinds or any(logged.role == "tool" or logged.tool_calls for logged in sample.messages)
    return None if not offered and sample.error is not None and "model" not in kinds else offered


def _read_episode(log: _Log, version: tuple[int, ...], sample: Sample, source: Source, rules: LabelRules) -> Episode:
    header, scores = log.header, {name: score for name, score in (sample.scores or {}).items() if name != OWN_SCORER}
    copied = _is_older(sample.started_at, dig(header.stats, "started_at") or dig(header.eval, "created"))
    reading = read_transcript(sample, (0,) if copied else version, source)  # by whichever Inspect the copy was logged
    error, payloads = dig(sample.error, "message") or sample.error, dig(sample.metadata, "injections")
    is_own = OWN_SCORER in (sample.scores or {}) and dig(sample.invalidation, "author") == OWN_SCORER  # a verdict written back
    where = f"{source} sample {sample.id!r} epoch {sample.epoch}"
    return Episode(
        record=f"{log.name}#{sample.id}#{sample.epoch}",
        source=source,
        instance=str(sample.id),
        epoch=sample.epoch,
        run=_name_run(header.eval, sample),
        transcript=reading.transcript,
        labels=_read_labels(scores, len(reading.transcript.calls), rules, where),
        harness=_read_harness(header.eval, reading.caps, version, sample.metadata, copied=copied),
        status=_read_status(header.status, sample, reading),
        error=None if error is None else str(error),
        payloads={str(k): str(v) for k, v in payloads.items()} if isinstance(payloads, dict) else None,
        events=reading.declared or None,
        live=reading.live,
        limit=None if sample.limit is None else str(dig(sample.limit, "type")),
        retries=len(sample.error_retries or ()),
        copied=copied,
        invalidated=sample.invalidation is not None and not is_own,
        edited=source in log.superseded or any(dig(score, "history") for score in scores.values()),
        groups={"task": str(dig(header.eval, "task")), "model": str(dig(header.eval, "model"))},
        metadata={"superseded copy": True} if source in log.superseded else {},
    )


def _read_labels(scores: Mapping[str, Any], turns: int, rules: LabelRules, where: str) -> tuple[Label, ...]:
    judged: list[tuple[str, Any, dict[str, Any]]] = []
    for name, score in scores.items():
        if not isinstance(score, dict) or "value" not in score:
            raise LogFormatError(f"scorer {name!r}: not a score", where=where, expected="an object with a value", found=score)
        told, key, form = score.get("explanation"), dig(score, "metadata", "match_key"), dig(score, "metadata", "schema_check")
        reason = ";".join(map(str, told)) if isinstance(told, list) else str(told or "")
        facts: dict[str, Any] = {"reason": reason or None}
        facts["turn"] = _read_turn(name, dig(score, "metadata", "turn"), turns, where)
        facts["schema_check"] = form if isinstance(form, bool) else rests_on_form(reason)
        facts |= {"match_key": _KEYS[key]} if isinstance(key, str) and key in _KEYS else {}
        judged.append((name, score["value"], facts))
    return resolve_labels(judged, rules, where)


def _read_turn(scorer: str, told: Any, turns: int, where: str) -> int | None:
    if told is None or isinstance(told, bool):
        return None
    number = float(told) if isinstance(told, str) and re.fullmatch(r"\d{1,9}(\.0*)?", told) else told
    if number not in range(1, turns + 1):
        raise LogFormatError(f"scorer {scorer!r}: no such turn", where=where, expected=f"1..{turns}", found=told)
    return int(number)


def _read_harness(spec: Any, caps: Sequence[int], version: tuple[int, ...], metadata: Any, *, copied: bool | None) -> Harness:
    policies = {}
    if caps:
        cut = next(name for start, name in _CUTS if version >= start)
        digest = digest_json({"max_tool_output": list(caps), "cut": cut})
        policies["truncation"] = Policy(name="max_tool_output", version=f"{caps[-1]} bytes, {cut}", digest=digest)
    of_run = None if copied else dig(spec, "metadata", "mutation_policy")  # a copied sample ran before this run had one
    named = dig(metadata, "mutation_policy") or of_run
    if isinstance(named, str):
        policies["mutation"] = Policy(name=named, version="by name only", digest=digest_json({"mutation_policy": named}))
    benchmark = str(dig(spec, "task_registry_name") or dig(spec, "task"))
    package, revision = dig(spec, "packages", benchmark.partition("/")[0]), dig(spec, "revision")
    return Harness(
        name="inspect_ai",
        version=dig(spec, "packages", "inspect_ai"),
        benchmark=benchmark,
        benchmark_version=str(package or dig(spec, "task_version")),
        model=dig(spec, "model"),
        source=revision if isinstance(revision, dict) else None,
        policies=policies,
    )


def _name_run(spec: Any, sample: Sample) -> str | None:
    """The execution itself, wherever its log stands: the sample's uuid, before there were any its place in the evaluation."""
    if isinstance(sample.uuid, str) and sample.uuid:
        return sample.uuid
    evaluation = dig(spec, "eval_id") or dig(spec, "run_id")
    return f"{evaluation}/{sample.id}/{sample.epoch}" if isinstance(evaluation, str) and evaluation else None


def _read_status(run: str, sample: Sample, reading: Reading) -> Status:
    """How the sample ended; that its run never finished is said of the log, whose written samples are whole."""
    said = any(call.proposed and (call.proposed.text.strip() or call.proposed.tool_calls) for call in reading.transcript.calls)
    if dig(sample.limit, "type") == "operator" or (run == "cancelled" and (not sample.scores or sample.error)):
        return "cancelled"
    if sample.error is not None:
        return "errored"
    return "limited" if sample.limit is not None else "finished" if said else "empty"


def _is_older(sample: str | None, run: Any) -> bool | None:
    """Whether a sample began before the run that holds it, hence was copied by a retry."""
    try:
        return None if sample is None or run is None else datetime.fromisoformat(sample) < datetime.fromisoformat(run)
    except (TypeError, ValueError):
        return None
