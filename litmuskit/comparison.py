"""Where two stimuli part: which component, which tool, which turn, and whose doing it was."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from litmuskit.display import Table, Tabular
from litmuskit.records import Transcript
from litmuskit.stimulus import Fingerprint, fingerprint

__all__ = ["Comparison", "compare"]

Stimulus = Fingerprint | Transcript | Mapping[str, Any]
WIDTH = 32  # characters of a name, or of the digest that stands for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One component that differs: its ``index`` (tool or message, from 0), both digests, and what kind of difference."""

    component: str
    index: int | None
    left: str | None
    right: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Tabular):
    """The differences between two stimuli; ``by`` names whose doing the first one is.

    ``by`` is ``agent`` when every harness-supplied part up to there is equal (env goes on alike, chain does not),
    ``harness`` when one differs, and None when nothing does.
    """

    equal: bool
    differences: tuple[Difference, ...]
    first_message: int | None
    by: str | None

    def __bool__(self) -> bool:
        return self.equal

    def __repr__(self) -> str:
        if self.equal:
            return "Comparison(equal)"
        return f"Comparison(differ in {', '.join(dict.fromkeys(d.component for d in self.differences))}, by the {self.by})"

    def to_table(self) -> Table:
        """One row per difference."""
        rows = tuple((d.component, d.index, (d.left or "")[:16], (d.right or "")[:16], d.detail) for d in self.differences)
        return Table(columns=("component", "index", "left", "right", "detail"), rows=rows, caption=repr(self))


def compare(left: Stimulus, right: Stimulus) -> Comparison:
    """Localise the difference between two stimuli.

    Parameters
    ----------
    left, right : Fingerprint, Transcript or mapping
        Fingerprints, or anything `fingerprint` takes; a fingerprint does not hold the names of its tools.

    Returns
    -------
    Comparison
        Empty and true when the two are the same stimulus.

    Examples
    --------
    >>> a = {"system": "s", "messages": [{"role": "user", "content": "pay"}]}
    >>> b = {"system": "s", "messages": [{"role": "user", "content": "pay!"}]}
    >>> compare(a, b)
    Comparison(differ in message, by the harness)
    """
    a, b = (x if isinstance(x, Fingerprint) else fingerprint(x) for x in (left, right))
    around = _compare_surroundings(a, b, left, right)
    first = _first_difference(a, b)
    found = around if first is None else [*around, _describe_message(a, b, first)]
    equal = a.stimulus[-1] == b.stimulus[-1]
    by = None if equal else "agent" if not around and _is_agents(a, b, first or 0) else "harness"
    return Comparison(equal=equal, differences=tuple(found), first_message=first, by=by)


def _compare_surroundings(a: Fingerprint, b: Fingerprint, left: Stimulus, right: Stimulus) -> list[Difference]:
    """What differs around the messages: text, options, tools one by one; what only one side logged is said so."""
    texts = {"system": "text differs", "opts": "options differ", "tools": "order only" if a.toolset == b.toolset else None}
    found: list[Difference] = []
    for name, detail in texts.items():
        x, y = getattr(a, name), getattr(b, name)
        told = "not logged on one side" if name in set(a.unlogged) ^ set(b.unlogged) else detail
        if x != y and told:
            found.append(Difference(component=name, index=None, left=x, right=y, detail=told))
        elif x != y:
            names = [a.tool, b.tool]  # bare fingerprints hold no names
            if not isinstance(left, Fingerprint) and not isinstance(right, Fingerprint):
                names = [_name_tools(left, a.tool), _name_tools(right, b.tool)]
            found += _compare_tools(a.tool, b.tool, *names)
    return found


def _name_tools(stimulus: Transcript | Mapping[str, Any], digests: Sequence[str]) -> list[str]:
    """The names of the last model call's tools, the digest for a tool without."""
    tools = stimulus.calls[-1].context.tools if isinstance(stimulus, Transcript) else stimulus.get("tools") or ()
    known = (tool if isinstance(tool, Mapping) else {} for tool in tools)
    named = ((tool["function"] if isinstance(tool.get("function"), Mapping) else tool).get("name") for tool in known)
    return [str(name or digest) for name, digest in zip(named, digests, strict=True)]


def _compare_tools(a: list[str], b: list[str], left: list[str], right: list[str]) -> list[Difference]:
    """Tools paired by name, wherever they stand: pairs that changed or moved, and tools that only one side has."""
    found: list[Difference] = []

    def note(i: int | None, j: int | None, detail: str) -> None:
        x, y = (None if i is None else a[i]), (None if j is None else b[j])
        found.append(Difference(component="tool", index=j if i is None else i, left=x, right=y, detail=detail))

    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    pairs = {block.a + n: block.b + n for block in blocks for n in range(block.size)}
    spare = [j for j in range(len(b)) if j not in pairs.values()]
    for i, name in enumerate(left):
        told = []
        if i not in pairs and (twin := next((j for j in spare if right[j] == name), None)) is not None:
            spare.remove(twin)
            pairs[i] = twin
            told.append(f"moved: {name[:WIDTH]} is at {twin} in the right")
        if i in pairs and a[i] != b[pairs[i]]:
            told.append(f"changed: schema of {name[:WIDTH]} differs")
        if told:
            note(i, pairs[i], "; ".join(told))
    for i in (i for i in range(len(a)) if i not in pairs):
        if i in spare:
            spare.remove(i)
            note(i, i, f"replaced: {left[i][:WIDTH]} in the left, {right[i][:WIDTH]} in the right")
        else:
            note(i, None, f"removed: {left[i][:WIDTH]} is only in the left")
    for j in spare:
        note(None, j, f"inserted: {right[j][:WIDTH]} is only in the right")
    return found


def _first_difference(a: Fingerprint, b: Fingerprint) -> int | None:
    """The first message at which the two part: the shared prefix of msg digests, by bisection over the chains."""
    length = min(len(a.msg), len(b.msg))
    if a.chain[0] == b.chain[0]:
        first = bisect_left(range(length + 1), 1, key=lambda i: int(a.chain[i] != b.chain[i])) - 1
    else:
        first = next((i for i in range(length) if a.msg[i] != b.msg[i]), length)
    return None if first == length == max(len(a.msg), len(b.msg)) else first


def _is_agents(a: Fingerprint, b: Fingerprint, first: int) -> bool:
    """Whether the first differing message is the agent's own: env goes on alike where chain does not."""
    if first < min(len(a.msg), len(b.msg)):
        return a.env[first + 1] == b.env[first + 1]
    longer = a if len(a.msg) > len(b.msg) else b
    return longer.roles[first] == "assistant"


def _describe_message(a: Fingerprint, b: Fingerprint, index: int) -> Difference:
    left, right = (x.msg[index] if index < len(x.msg) else None for x in (a, b))
    roles = [x.roles[index] for x in (a, b) if index < len(x.roles)]
    if left is None or right is None:
        detail = f"only the {'right' if left is None else 'left'} goes on ({roles[0]})"
    elif roles[0] != roles[1]:
        detail = f"{roles[0]} against {roles[1]}"
    elif roles[0] == "tool" and a.obs[index] == b.obs[index]:
        detail = "same observation, bound to another call or with another error"
    else:
        detail = f"{roles[0]} message differs"
    return Difference(component="message", index=index, left=left, right=right, detail=detail)
