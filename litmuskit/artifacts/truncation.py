"""Results cut before the agent saw them. Valid JSON proves nothing here: a middle cut often stays valid."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from litmuskit.artifacts.evidence import Evidence, cite
from litmuskit.artifacts.execution import read_text
from litmuskit.records import Episode

__all__ = ["describe_cut", "find_truncations", "is_marked"]

# Inspect (all three eras), OpenHands, SWE-agent and their like. A mark frames or ends a result: text that quotes one is no cut.
_WRAPPER = re.compile(
    r"\s*The output of your call to .{1,200} was too long to be displayed\.\s+Here is a truncated version:\s+"
    r"<START_TOOL_OUTPUT>(?P<kept>.*)<END_TOOL_OUTPUT>\s*",
    re.DOTALL,
)
_OUTPUT = r"((tool |the )?(observation|output|response|result|content|text|file)s? )?(was |is |been )?"
_UNITS = r"(\d[\d,]* )?(more )?(bytes|characters|chars|lines|tokens)?"
_ENDING = re.compile(
    rf"(<response clipped>|[\[(<][^\w\n]*{_OUTPUT}(truncated|clipped)\b[^\n]{{0,120}}[\])>]"
    rf"|(\.\.\.|…|[-=*~]{{3,}})\s*[\[(]?{_OUTPUT}{_UNITS}\s*(truncated|clipped|omitted|elided)\W*)\s*\Z",
    re.IGNORECASE,
)
_WORDS = ("trunc", "clipp", "omit", "elid")
_JOINT = re.compile(r"trunc|omitt|clipp|elid|cut|\.\.\.|…|removed|more|limit", re.IGNORECASE)
_ENOUGH, _SHORTEST = 3, 200  # results of one length, and its bytes, below which equal lengths mean nothing


def is_marked(text: str) -> bool:
    r"""Whether a known harness's mark of a cut frames or ends the text.

    Examples
    --------
    >>> is_marked("abc\n[Observation truncated due to length]"), is_marked("see '[truncated]' in the manual")
    (True, False)
    """
    end = text[-300:]
    if any(map(end.lower().__contains__, _WORDS)) and _ENDING.search(end):
        return True
    return text[:40].lstrip().startswith("The output of") and _WRAPPER.fullmatch(text) is not None


def _share(left: str, right: str) -> int:
    """The length of the common prefix, by bisection."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle - 1)
    return low


def _halve(char: str, side: int) -> list[str]:
    """What a cut through a character's bytes or code units leaves of it on one side, as any decoder shows it."""
    units, raw = char.encode("utf-16-be", "surrogatepass"), char.encode("utf-8", "surrogatepass")
    halves = [(raw[:at], raw[at:])[side] for at in range(1, len(raw))]
    shown = [half.decode("utf-8", way) for half in halves for way in ("replace", "backslashreplace", "surrogateescape")]
    unit = (units[:2], units[2:])[side].decode("utf-16-be", "surrogatepass")
    return [*shown, *("\ufffd" * len(half) for half in halves), *[unit] * (len(units) == 4)]


def _is_joint(joint: str, missing: str, front: int, back: int, payloads: Collection[str]) -> bool:
    """Whether what stands at a joint comes of the cut: nothing, a broken character, or a mark.

    A mark is told by its words, by the count of what is missing, or, at an end, by how little stands for how much.
    """
    kept, is_end = front + back, not (front and back)
    if missing.strip() in payloads:
        return False
    if joint and (is_end or len(missing) > 1):  # one character replaced is no cut
        joint = joint.removeprefix(max(filter(joint.startswith, _halve(missing[0], 0)), key=len, default=""))
        joint = joint.removesuffix(max(filter(joint.endswith, _halve(missing[-1], 1)), key=len, default=""))
    if not joint or is_marked(joint):
        return True
    if kept < len(joint) / 2:
        return False
    sizes = {len(missing), len(missing.encode("utf-8", "replace")), missing.count("\n"), len(missing.split())}
    told = re.findall(r"(?ai)(?<![^\W_])\d{2,9}(?=[a-z]{0,5}\b)", joint) if len(joint) < len(missing) else ()
    counts = set(map(int, told)) if not joint.isalnum() else set()
    is_little = is_end and 3 * len(joint) <= min(kept, len(missing))
    return bool(_JOINT.search(joint) or counts & sizes or is_little)


def describe_cut(raw: str, seen: str, payloads: Collection[str] = ()) -> str | None:
    """Which part of ``raw`` is missing from ``seen``, a mark or a broken character at the joint allowed; None if ``seen`` is
    no cut of it.

    ``payload`` is missing where ``seen`` is ``raw`` without one of ``payloads``, and nothing else is: that is no cut.

    Examples
    --------
    >>> describe_cut("abcdefghij", "abcd"), describe_cut("abcdefghij", "ab...ij"), describe_cut("abcdefghij", "abXdefghij")
    ('end', 'middle', None)
    """
    wrapped = _WRAPPER.fullmatch(seen)
    seen, lost = wrapped["kept"].strip("\n") if wrapped else seen, raw
    for payload in filter(None, payloads):
        lost = lost.replace(payload, "")
    if seen == lost != raw:
        return "payload"
    for whole in (raw, lost):
        head = _share(whole, seen)
        tail = min(_share(whole[::-1], seen[::-1]), len(seen) - head)
        for front, back in ((head, tail), (head, 0), (0, tail)):  # a mark may end as the text does, by chance
            missing, joint = whole[front : len(whole) - back], seen[front : len(seen) - back]
            if 0 < front + back < len(whole) and _is_joint(joint, missing, front, back, payloads):
                return "end" if not back else "middle" if front else "start"
    return None


def find_truncations(episode: Episode) -> Iterator[Evidence]:
    """Truncation: a declared flag, a known mark, a cut of the raw result, many results of one capped length."""
    lengths: dict[int, dict[str, tuple[int, int]]] = {}
    payloads = (episode.payloads or {}).values()
    for call in episode.transcript.calls:
        returned = {read_text(result.raw) for result in call.observations}
        for index, result in enumerate(call.observations):
            place = index if result.position is None else result.position
            seen, raw, cut = read_text(result.delivered), read_text(result.raw), result.truncation
            rule = detail = ""
            if cut is not None:
                rule, detail = "truncation/declared", f"{cut.raw_size} to {cut.cap} {cut.unit}"
            elif seen is None or (seen == raw and not _WRAPPER.fullmatch(seen)):
                continue
            elif raw is not None and raw != seen:
                missing = describe_cut(raw, seen, payloads) if seen not in returned else None  # else another call's
                rule = "truncation/cut-of-raw" if missing not in {None, "payload"} else ""
                detail = f"{missing} missing: {len(raw):,} to {len(seen):,} characters"
            elif is_marked(seen):
                rule, detail = "truncation/mark", "a known harness's mark of a cut"
            elif (size := len(seen.encode("utf-8", "replace"))) >= _SHORTEST:
                lengths.setdefault(size, {})[seen] = call.turn, place
            if rule:
                yield cite(episode, rule, detail, turn=call.turn, position=place, declared=cut is not None)
    cap = max(lengths, default=0)
    if cap and len(lengths[cap]) >= _ENOUGH and not (cap % 50 and cap % 64):
        proposals = [call.proposed.tool_calls for call in episode.transcript.calls if call.proposed is not None]
        if re.search(rf"(?<![\w.]){cap}(?![\w.])", str([asked.arguments for calls in proposals for asked in calls])):
            return  # the agent itself asked for pages of that size
        for turn, place in lengths[cap].values():
            detail = f"{len(lengths[cap])} results of exactly {cap:,} bytes, none longer"
            yield cite(episode, "truncation/one-capped-length", detail, turn=turn, position=place)
