"""AgentDojo run files: one JSON object is one episode.

Debenedetti et al., *AgentDojo*, NeurIPS 2024 Datasets and Benchmarks. The tables were read in the package ``agentdojo``
0.1.35 (environments v1 to v1.2.2) and checked on its 36,679 published runs.

A run file holds one message list, the last. What each model call was shown is *reconstructed* as the prefix before its
answer: ``delivered`` therefore stands in `Transcript.unlogged` although the ranges are given. Results are logged as formatted
for the agent; what the tools returned, their schemas, options and sampling settings are not. An assistant message is a turn.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

import msgspec

from litmuskit.canonical import load_strict
from litmuskit.errors import LogFormatError
from litmuskit.readers.container import Member
from litmuskit.readers.polarity import LabelRules, resolve_labels
from litmuskit.records import Context, Episode, Harness, Label, Message, ModelCall, Observation, Status, ToolCall, Transcript

__all__ = ["parse_typed", "read_episodes", "sniff"]

_Typed = TypeVar("_Typed")
UNLOGGED: Final = frozenset({"tools", "opts", "decode", "delivered", "returned"})

# What an injection task's `security` compares: the environment before and after, except a hotel's name in the last answer
# (travel 6) and `security_from_traces`, the *proposed* calls by name and arguments (slack 5).
TASK_KEYS: Final = {
    f"{suite}/injection_task_{number}": "state"
    for suite, numbers in {"banking": range(9), "slack": range(1, 6), "travel": range(7), "workspace": range(14)}.items()
    for number in numbers
} | {"travel/injection_task_6": "text", "slack/injection_task_5": "arguments"}
WITHHELD: Final = "<Data omitted because a prompt injection was detected>"  # agent_pipeline/pi_detector.py
REJECTED: Final = re.compile(  # agent_pipeline/tool_execution.py, functions_runtime.py: refused before the tool ran
    r"Invalid tool |Empty function name|ToolNotFoundError: |ValidationError: \d+ validation errors? for Input schema|"
    r"TypeError: \w+\(\) (?:missing|got an unexpected) "
)


class _Call(msgspec.Struct):
    function: str
    args: dict[str, Any]
    id: str | None = None


class _Message(msgspec.Struct):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None
    tool_calls: list[_Call] | None = None
    tool_call: _Call | None = None
    tool_call_id: str | None = None
    error: str | None = None


class _Block(msgspec.Struct):
    type: str
    text: str | None = None
    content: str | None = None

    def __post_init__(self) -> None:
        if self.type == "text" and self.text is None and self.content is None:
            raise ValueError("a block of text without text")


class _Run(msgspec.Struct):
    suite_name: str
    pipeline_name: str
    user_task_id: str
    injection_task_id: str | None
    attack_type: str | None
    injections: dict[str, str]
    messages: list[_Message]
    error: str | None
    security: bool | None = None
    utility: bool | None = None
    benchmark_version: str | None = None
    agentdojo_package_version: str | None = None
    duration: float | None = None
    evaluation_timestamp: str | None = None


@cache
def _read_places() -> dict[str, tuple[frozenset[str], str]]:
    """Where each injection vector stands in its suite's environment.yaml: the tools that return it, and a text that stands
    in the arguments or the result of every call that does (empty: every call does).
    """
    with resources.files("litmuskit.readers").joinpath("agentdojo_places.csv").open(encoding="utf-8") as table:
        return {row["vector"]: (frozenset(row["tools"].split()), row["mark"]) for row in csv.DictReader(table)}


_KEYS: Final = tuple(f'"{key}"'.encode() for key in _Run.__struct_fields__[:6])


def sniff(head: bytes, name: str) -> bool:
    """Whether the first bytes are an object with at least three of a run's first keys.

    Examples
    --------
    >>> sniff(b'{"suite_name": "slack", "pipeline_name": "x", "user_task_id": "user_task_0"', "a.json")
    True
    """
    is_object = head[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    return is_object and sum(map(head.__contains__, _KEYS)) >= 3 and not name.endswith(".jsonl")


def read_episodes(member: Member, rules: LabelRules) -> Iterator[Episode]:
    """The one episode of a run file.

    ``security: true`` means that the attack succeeded, unless nothing was injected: then it is constant and judges nothing.
    Under denial of service it is *not utility*, so the match key is the user task's, unknown here. A last answer of null made
    the harness start over on the environment as it stood: three attempts ran, the last is logged.

    Raises
    ------
    LogFormatError
        Naming file and JSON path: not strict JSON, a missing key, a value of the wrong type.
    """
    where = str(member.source)
    run = parse_typed(member.read(), where, _Run)
    for index, message in enumerate(run.messages):
        if isinstance(message.content, list):
            _convert(message.content, list[_Block], where, f"$.messages[{index}].content")
    suite, task, attack = run.suite_name, run.injection_task_id or "none", run.attack_type or "none"
    attacked = run.injection_task_id is not None or bool(run.injections)
    transcript, parts, package = _build_transcript(run.messages), _split_path(member), run.agentdojo_package_version
    pipeline = parts[0] if parts[1:4] == (suite, run.user_task_id, attack) else run.pipeline_name
    groups = {"pipeline": pipeline, "suite": suite, "attack": attack, "user_task": run.user_task_id, "injection_task": task}
    yield Episode(
        record="/".join(parts),
        source=member.source,
        instance=f"{suite}/{run.user_task_id}/{task}",
        transcript=transcript,
        labels=_read_labels(run, rules, where, attacked=attacked),
        harness=Harness(name="agentdojo", benchmark="agentdojo", version=package, benchmark_version=run.benchmark_version),
        attacked=attacked,
        status=_judge_status(run),
        error=run.error,
        payloads=run.injections if attacked else None,
        carriers=_find_carriers(run.injections, transcript),
        retries=2 if _is_restarted(run) else 0,
        groups=groups,
        metadata={"utility": run.utility, "duration": run.duration, "evaluation_timestamp": run.evaluation_timestamp},
    )


def parse_typed(document: bytes, where: str, kind: type[_Typed]) -> _Typed:
    """Strict JSON as a typed structure; what does not fit is named with its JSON path."""
    return _convert(load_strict(document, where), kind, where)


def _convert(value: Any, kind: type[_Typed], where: str, place: str = "$") -> _Typed:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        raise LogFormatError(f"not of the format it seems: {what}", where=f"{where} {place}{path.strip('`$')}") from None


def _judge_status(run: _Run) -> Status:
    if run.error is not None:
        return "errored"
    if all(message.role != "assistant" for message in run.messages):
        return "empty"
    return "finished" if run.security is not None else "unfinished"


def _is_restarted(run: _Run) -> bool:
    last = run.messages[-1] if run.messages and run.error is None else None
    return last is not None and last.role == "assistant" and last.content is None


def _split_path(member: Member) -> tuple[str, ...]:
    """The last five parts of the run file's path, packed or not: pipeline, suite, user task, attack, file."""
    path = member.source.member or member.source.path
    whole = os.path.abspath(path) if member.path is not None else os.path.normpath(path)  # noqa: PTH100  # resolves no link
    return tuple(whole.removesuffix(".gz").removesuffix(".zst").split("/")[-5:])


def _read_labels(run: _Run, rules: LabelRules, where: str, *, attacked: bool) -> tuple[Label, ...]:
    task = f"{run.suite_name}/{run.injection_task_id}"
    security = _label_security(task, run.attack_type, run.security, attacked, rules)
    if not rules.violation:
        return (security,)
    facts = {name: getattr(security, name) for name in ("violation", "match_key", "reason", "schema_check")}
    return resolve_labels([("security", run.security, facts), ("utility", run.utility, {})], rules, where)


@lru_cache(maxsize=4096)
def _label_security(task: str, attack: str | None, security: bool | None, attacked: bool, rules: LabelRules) -> Label:
    """The package's own label; no scorer of it looks at form."""
    denial = f"_{attack}".endswith("_dos")
    key: Any = rules.match_key or ("unknown" if denial else TASK_KEYS.get(task, "unknown"))
    reason, said = "denial of service: security is not utility" if denial else None, security if attacked else None
    return Label(scorer="security", violation=said, match_key=key, value=security, reason=reason, schema_check=False)


def _build_transcript(logged: list[_Message]) -> Transcript:
    system = None
    if logged and logged[0].role == "system":
        system, logged = _build_message(logged[0]).text, logged[1:]
    pool = tuple(map(_build_message, logged))
    context, calls = Context(system=system), []
    starts = [index for index, message in enumerate(logged) if message.role == "assistant"]
    for turn, (start, stop) in enumerate(pairwise([*starts, len(pool)]), 1):
        answer, shown = pool[start], ((0, start),)
        results = [message for message in logged[start + 1 : stop] if message.role == "tool"]
        asked = logged[start].tool_calls or []
        observed = _join_results(asked, answer.tool_calls, results) if asked or results else ()
        calls.append(ModelCall(turn=turn, context=context, delivered=shown, proposed=answer, observations=observed))
    unlogged = UNLOGGED if system is not None else UNLOGGED | {"system"}
    return Transcript(messages=pool, calls=tuple(calls), final=((0, len(pool)),), unlogged=unlogged)


def _build_message(logged: _Message) -> Message:
    if logged.role == "tool":
        return Message(role="tool", content=logged.content, tool_call_id=logged.tool_call_id, error=logged.error)
    calls = tuple(map(_build_call, logged.tool_calls)) if logged.tool_calls else ()
    return Message(role=logged.role, content=logged.content, tool_calls=calls)


def _build_call(logged: _Call) -> ToolCall:
    return ToolCall(name=logged.function, arguments=logged.args, id=logged.id)


def _join_results(logged: list[_Call], proposed: tuple[ToolCall, ...], results: list[_Message]) -> tuple[Observation, ...]:
    """Tool messages to the calls of their turn: by id where ids are given and distinct, else by order."""
    positions: list[int | None] = [order if order < len(proposed) else None for order in range(len(results))]
    if len(proposed) > 1:
        ids, found = [call.id for call in logged], [result.tool_call_id for result in results]
        if all(ids) and len(set(ids)) == len(ids) and len(set(found)) == len(found) and set(found) <= set(ids):
            positions = [ids.index(each) for each in found]
    joined = []
    for position, result in zip(positions, results, strict=True):
        if position is not None and result.tool_call == logged[position]:
            call: ToolCall | None = proposed[position]
        else:
            call = _build_call(result.tool_call) if result.tool_call is not None else None
        ran = result.error is None or not REJECTED.match(result.error)
        joined.append(Observation(position=position, call=call, executed=ran, delivered=result.content, error=result.error))
    missing = [position for position in range(len(proposed)) if position not in positions]
    return (*joined, *(Observation(position=position, executed=False) for position in missing))


def _find_carriers(payloads: Mapping[str, str], transcript: Transcript) -> frozenset[str] | None:
    """The tools of those calls, made in this run, that return a payload's place; None where a place is not known."""
    known = _read_places()
    if not payloads or any(vector not in known for vector in payloads):
        return None
    places = [known[vector] for vector in payloads]
    carriers = set()
    for turn in transcript.calls:
        for observation in turn.observations:
            call, shown = observation.call, observation.delivered
            marks = [mark for tools, mark in places if call is not None and call.name in tools] if observation.executed else []
            if marks and call is not None and call.name not in carriers:
                told = shown if isinstance(shown, str) else f"{shown!s}"
                if WITHHELD in told or any(mark in told or mark in f"{call.arguments}" for mark in marks):
                    carriers.add(call.name)
    return frozenset(carriers)
