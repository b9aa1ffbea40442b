"""How often a canary is seen where there is none, or thought derived where it is random, and how long a search takes.

    python benchmarks/canary.py

Ordinary text is the standard library's source, documentation strings and all. The recall for every disguise is a test.
"""

from __future__ import annotations

import random
import sysconfig
import time
from pathlib import Path

from litmuskit.canary import find_canary, find_collisions, find_derivation, make_canary
from litmuskit.rates import bound_proportion

CANARIES = 50


def main() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    modules = (path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts)
    texts = [path.read_text("utf-8", "replace") for path in modules]
    canaries = [make_canary() for _ in range(CANARIES)]
    hits = sum(find_canary(text, canary) is not None for text in texts for canary in canaries)
    searches = len(texts) * CANARIES
    upper = bound_proportion(hits, searches).upper
    size = sum(map(len, texts))
    print(f"{hits} hits of absent canaries in {searches:,} searches of {size:,} characters; at most {upper:.1e}")

    paragraphs = [part for text in texts for part in text.split("\n\n") if len(part) > 200][::40]
    derived = sum(find_derivation(part, make_canary()) is not None for part in paragraphs)
    upper = bound_proportion(derived, len(paragraphs)).upper
    print(f"{derived} of {len(paragraphs):,} random canaries thought derived from a paragraph; at most {upper:.1e}")

    text = "".join(texts)[:1_000_000]
    rng = random.Random(1)
    signals = [*(make_canary() for _ in range(500)), *(text[i : i + 25] for i in rng.sample(range(900_000), 500))]
    started = time.process_time()
    found = find_collisions(signals, {"surface": text})
    whole = sum(collision.share == 1 for collision in found)
    print(f"1 MB x {len(signals)} signals: {time.process_time() - started:.2f} s of processor, {whole} held whole")


if __name__ == "__main__":
    main()
