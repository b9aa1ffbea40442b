"""Cost of a fingerprint as a ratio to one SHA-256 pass over the same payload, in one process, best of several.

Usage: python benchmarks/stimulus.py [--size 4096] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from litmuskit.messages import parse_message
from litmuskit.records import Context, ModelCall, Transcript
from litmuskit.stimulus import fingerprint, fingerprint_turns


def make_stimulus(turns: int, size: int) -> dict[str, Any]:
    """A tool loop of ``turns`` turns whose every message holds ``size`` characters."""
    text = ("The quick brown fox jumps over the lazy dog; naïve café. " * (size // 50 + 1))[:size]
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    for turn in range(turns):
        call = {"id": f"call_{turn}", "name": "read", "arguments": {"path": f"file-{turn}", "n": turn}}
        messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": text})
    return {"system": "s", "tools": [], "opts": {}, "messages": messages}


def time_best(run: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for turns, repeats in ((10, 200), (100, 40), (1000, 8)):
        stimulus = make_stimulus(turns, arguments.size)
        payload = "".join(message["content"] for message in stimulus["messages"]).encode()
        messages = tuple(parse_message(message, "$") for message in stimulus["messages"])
        context = Context(system="s")
        calls = tuple(
            ModelCall(turn=t, context=context, delivered=((0, 2 * t - 1),), proposed=None) for t in range(1, turns + 1)
        )
        transcript = Transcript(messages=messages, calls=calls)
        sha = time_best(lambda p=payload: hashlib.sha256(p).digest(), repeats)
        whole = time_best(lambda s=stimulus: fingerprint(s), repeats)
        every = time_best(lambda t=transcript: fingerprint_turns(t), repeats)
        rows.append(
            {
                "turns": turns,
                "bytes": len(payload),
                "ns_per_byte": whole / len(payload) * 1e9,
                "to_sha256": whole / sha,
                "every_turn_to_sha256": every / sha,
            }
        )
    growth = rows[-1]["ns_per_byte"] / rows[0]["ns_per_byte"]
    if arguments.json:
        print(json.dumps({"rows": rows, "per_byte_1000_to_10": growth}))
        return
    for row in rows:
        print(
            f"{row['turns']:5} turns  {row['to_sha256']:.2f} x SHA-256 (every turn: {row['every_turn_to_sha256']:.2f} x)  "
            f"{row['ns_per_byte']:.2f} ns/byte"
        )
    print(f"per byte at 1,000 turns to 10: {growth:.2f}")


if __name__ == "__main__":
    main()
