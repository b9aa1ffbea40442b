"""Calls against what became of them: executed otherwise, for another call, never, or cut off as the agent wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from litmuskit.artifacts.evidence import Evidence, cite
from litmuskit.records import Context, Episode, Message, ModelCall, Observation, ToolCall, Transcript

__all__ = [
    "find_execution_faults", "is_filled", "is_flat", "is_same_call", "key_call", "pair_results", "read_text", "show_call",
]  # fmt: skip


def read_text(content: str | bytes | list[Any] | None) -> str | None:
    """The text of a raw or delivered result as the agent reads it; None where none was logged."""
    return content if content is None or isinstance(content, str) else Message(role="tool", content=content).text


def is_flat(transcript: Transcript) -> bool:
    """Whether the log holds one list only: inputs cut from it show neither a replay nor a late edit.

    Inputs that were logged, if only by reference, differ from it somewhere as soon as there is one to show.
    """
    if all(call.delivered is None for call in transcript.calls):
        return True
    return "delivered" in transcript.unlogged and all(_is_cut_from(transcript, call) for call in transcript.calls)


def _is_cut_from(transcript: Transcript, call: ModelCall) -> bool:
    ranges = call.delivered or ()
    if len(ranges) > 1 or (ranges and ranges[0][0] != 0):
        return False
    after = transcript.messages[ranges[0][1] : ranges[0][1] + 1] if ranges else ()
    return not after or after[0] is call.proposed or after[0].role != "assistant" or after[0] == call.proposed


def is_same_call(left: ToolCall, right: ToolCall) -> bool:
    """Whether two calls ask for the same.

    Key order, nulls, JSON text against an object, ``"1"`` against ``1`` and ``"true"`` against ``True`` do not count.

    Examples
    --------
    >>> is_same_call(ToolCall(name="f", arguments='{"a": 1, "b": null}'), ToolCall(name="f", arguments={"a": "1"}))
    True
    """
    if left.name != right.name:
        return False
    return left.arguments == right.arguments or _is_same(_parse(left.arguments), _parse(right.arguments))


def key_call(call: ToolCall) -> tuple[str, str]:
    """A hashable key, equal for equal calls up to key order."""
    arguments = _parse(call.arguments)
    try:
        return call.name, json.dumps(arguments, sort_keys=True, default=str)
    except TypeError:  # keys of several types
        return call.name, repr(arguments)


def show_call(call: ToolCall | None) -> str:
    """A call in words."""
    return f"{call.name}({call.arguments})" if call is not None else "no call"


def _parse(arguments: Mapping[str, Any] | str) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments


def _is_same(left: Any, right: Any, defaults: Mapping[str, Any] = MappingProxyType({})) -> bool:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        lone = {key: value for one in (left, right) for key, value in one.items() if not (key in left and key in right)}
        filled = all(value is None or (key in defaults and defaults[key] == value) for key, value in lone.items())
        return filled and all(_is_same(value, right[key]) for key, value in left.items() if key in right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    fold = str.lower if bool in {type(left), type(right)} else str
    return left == right or fold(str(left)) == fold(str(right))


def is_filled(asked: ToolCall, other: ToolCall, context: Context) -> bool:
    """Whether two calls differ in nothing but nulls and the tool schema's own defaults, filled in or left out."""
    before, after = _parse(asked.arguments), _parse(other.arguments)
    is_pair = asked.name == other.name and isinstance(before, Mapping) and isinstance(after, Mapping)
    return is_pair and _is_same(before, after, _read_defaults(context, asked.name))


def _read_defaults(context: Context, name: str) -> dict[str, Any]:
    for tool in context.tools:
        shape = tool.get("function", tool)
        schema = (shape.get("parameters") or shape.get("input_schema")) if isinstance(shape, Mapping) else None
        fields = schema.get("properties") if isinstance(schema, Mapping) else None
        if isinstance(fields, Mapping) and shape.get("name") == name:
            return {key: rule.get("default") for key, rule in fields.items() if isinstance(rule, Mapping)}
    return {}


def pair_results(call: ModelCall) -> Iterator[tuple[int, ToolCall, Observation | None]]:
    """Each proposed call of a turn with its position and what came back; None where nothing did."""
    by_position = {result.position: result for result in call.observations}
    for position, asked in enumerate(call.proposed.tool_calls if call.proposed is not None else ()):
        yield position, asked, by_position.get(position)


def find_execution_faults(episode: Episode) -> Iterator[Evidence]:
    """Executed-differs, mis-pairing by call, not-executed, own-output-cut; replay where one flat list is all there is."""
    is_logged = not episode.transcript.unlogged & {"executed", "returned"}
    differing: list[tuple[int, int, ToolCall, ToolCall]] = []
    for call in episode.transcript.calls:
        for position, asked, result in pair_results(call):
            if result is None and not (is_logged and all(one.position is not None for one in call.observations)):
                continue
            if result is None or result.executed is False:
                rule = "not-executed/rejected" if result is not None else "not-executed/no-result"
                yield cite(episode, rule, f"{asked.name} was proposed, not executed", turn=call.turn, position=position)
            elif result.call is None or asked.parse_error is not None or is_same_call(asked, result.call):
                continue
            elif not is_filled(asked, result.call, call.context):
                differing.append((call.turn, position, asked, result.call))
        if call.stop == "max_tokens":
            yield cite(episode, "own-output-cut/token-limit", "the agent's output ended on its token limit", turn=call.turn)
    crossed = {key_call(asked): (turn, position) for turn, position, asked, _ in differing}
    turns = episode.transcript.calls if differing and is_flat(episode.transcript) else ()
    proposed = [(asked, turn.turn) for turn in reversed(turns) for _, asked, _ in pair_results(turn)]
    earliest, names = {key_call(asked): turn for asked, turn in proposed}, {asked.name for asked, _ in proposed}
    for turn, position, asked, executed in differing:
        rule, detail = "executed-differs/arguments", f"proposed {show_call(asked)}, executed {show_call(executed)}"
        if crossed.get(key_call(executed), (turn, position)) != (turn, position):
            rule = "mis-pairing/result-of-another-call"
        elif executed.name in names and earliest.get(key_call(asked), turn) < turn:  # else a stand-in that no agent asked for
            rule = "replay/stale-arguments-in-flat-list"
        yield cite(episode, rule, detail, turn=turn, position=position)
