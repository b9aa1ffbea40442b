"""The faults a harness can be made to commit.

Each draws from a random stream of its own, so that switching one on leaves the agents and the other faults as they were; each
is planted only where it changed something.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

from litmuskit.canonical import digest_json
from litmuskit.errors import InputError
from litmuskit.records import Harness, Label, Policy, ToolCall

__all__ = ["FAULTS", "Luck", "Planted", "check_faults", "identify_harness", "require_number"]

FAULTS: Mapping[str, tuple[str, str]] = {  # name: the kind of evidence a finder should return, and what happens
    "replay": ("replay", "the history shows an earlier call's arguments beside the fresh result (rate per call)"),
    "truncate": ("truncation", "every result is cut to so many bytes (a cap, not a rate)"),
    "resample": ("mutation", "the numbers in a result are drawn again on its way (rate per call)"),
    "mis-pair": ("mis-pairing", "two results of one turn change places (rate per turn)"),
    "late-edit": ("late-edit", "a result already shown is shortened in later inputs (rate per turn)"),
    "cache": ("stale-cache", "the agent's last reply is served again (rate per turn)"),
    "non-delivery": ("not-delivered", "the payload is lost on its way (rate per episode)"),
    "judge-failure": ("not-assessable", "the judge gives no label (rate per episode)"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault that struck: the call it struck, and ``seen``, the first model call whose input could hold it.

    ``before_flag`` is True where it could have caused the flag, False where it came after, None in an unflagged episode.
    """

    fault: str
    turn: int
    position: int | None = None
    seen: int
    before_flag: bool | None = None

    @property
    def kind(self) -> str:
        """The kind of evidence that a finder should return for it."""
        return FAULTS[self.fault][0]

    def place_flag(self, label: Label, turns: int) -> "Planted":
        """The fault with its standing to the flag: in its input, at the flagged call, or in the history a grader reads."""
        if not label.violation:
            return self
        flagged, reads_results = label.turn or turns, label.match_key in {"arguments+observation", "text"}
        strikes_call = self.fault == "cache" or (self.fault == "replay" and label.match_key != "state")
        at_flag = self.turn == flagged and (None in {self.position, label.position} or self.position == label.position)
        caused = at_flag and (strikes_call or (self.fault == "mis-pair" and reads_results))
        caused = caused or self.fault == "judge-failure" or (self.fault == "late-edit" and reads_results)
        return replace(self, before_flag=self.seen <= flagged or caused)


def require_number(value: object, where: str, least: float, most: float) -> float:
    """The number ``value`` is, if it lies from ``least`` to ``most``; else `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError("not a number in range", where=where, expected=f"{least:,} to {most:,}", found=value)
    return value


def check_faults(faults: Mapping[str, float] | None) -> dict[str, float]:
    """The faults that are switched on; an unknown name, a rate outside [0, 1] or a cap below 1 raises `InputError`.

    Examples
    --------
    >>> check_faults({"replay": 0.1, "truncate": 512, "cache": 0})
    {'replay': 0.1, 'truncate': 512}
    """
    for name, value in (faults or {}).items():
        if name not in FAULTS:
            raise InputError("unknown fault", where="faults", expected=f"one of {', '.join(FAULTS)}", found=name)
        if name != "truncate":
            require_number(value, f"faults.{name}", 0, 1)
        elif require_number(value, "faults.truncate", 1, 2**53) != int(value):
            raise InputError("a cap is a whole number of bytes", where="faults.truncate", found=value)
    return {name: value for name, value in (faults or {}).items() if value}


@cache
def _digest_source() -> str:
    """Of the harness's own files: a manifest is current only for the code it was made with."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return f"sha256:{sha256(b''.join(file.read_bytes() for file in files)).hexdigest()}"


def identify_harness(faults: Mapping[str, float]) -> Harness:
    """The harness with its source, and its mutation and truncation policies under these faults."""
    resample, cap = faults.get("resample"), faults.get("truncate")
    named = {"mutation": ("resample" if resample else "none", resample), "truncation": ("byte-cap" if cap else "none", cap)}
    policies = {
        role: Policy(name=name, version="1", digest=digest_json([role, name, value]), deterministic=name != "resample")
        for role, (name, value) in named.items()
    }
    source = {"type": "package", "name": "litmuskit.harness", "version": "1", "digest": _digest_source()}
    return Harness(name="litmuskit-reference", version="1", source=source, policies=policies)


class Luck:
    """Whether and how faults strike in one episode."""

    def __init__(self, faults: Mapping[str, float], seed: str) -> None:
        self.faults = faults
        self.streams = {name: Random(f"{seed}/{name}") for name in faults}

    def strikes(self, name: str) -> bool:
        """Draw whether a fault strikes now; one that is switched off never does."""
        return name in self.streams and self.streams[name].random() < self.faults[name]

    def alter_result(self, text: str, lost: str | None) -> Iterator[tuple[str, str]]:
        """What becomes of a result on its way to the agent: each fault that changes it, with the text after it."""
        if lost and lost in text:
            text = text.replace(lost, "")
            yield "non-delivery", text
        if self.strikes("resample") and re.search(r"\d", text):
            draw = self.streams["resample"].randrange
            text = re.sub(r"\d+", lambda found: str(draw(10 ** (len(found[0]) - 1), 10 ** len(found[0]))), text)
            yield "resample", text
        if len(text.encode()) > self.faults.get("truncate", 2**53):
            yield "truncate", text.encode()[: int(self.faults["truncate"])].decode("utf-8", "ignore")

    def replay_arguments(self, call: ToolCall, earlier: Sequence[ToolCall]) -> ToolCall:
        """The call as the history will show it: where replay strikes, with what the same tool was last asked otherwise."""
        if not self.strikes("replay"):
            return call
        stale = (old for old in reversed(earlier) if old.name == call.name and old.arguments != call.arguments)
        return replace(next(stale, call), id=call.id)
