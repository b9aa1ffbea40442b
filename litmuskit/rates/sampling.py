"""The sheet a person fills in: a random sample of flagged (and unflagged) records, and the counts it comes back with.

Records are drawn systematically from a shuffled frame sorted by stratum: each has the same chance, each stratum its
proportional share, so the pooled share needs no weights. The sheet shows neither flag nor verdict; whoever reads a record
should not know them. Reading it back draws again: a sheet of suspicious records only is not that sample, and is refused.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from litmuskit.display import csv_cell
from litmuskit.errors import InputError, name_all
from litmuskit.rates.counts import require_nested, require_number

FrameRow = tuple[str, str, str | None, bool, str]
ANSWERS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
COLUMNS = ("row", "record", "source", "frame", "seed", "violation")


def _draw(rows: Iterable[FrameRow], sizes: tuple[int, int], seed: int) -> tuple[str, list[FrameRow]]:
    frame = sorted(rows, key=lambda row: (row[4], row[0], row[1]))
    digest = hashlib.sha256(json.dumps([(*_name(r), r[3], r[4]) for r in frame]).encode()).hexdigest()
    if require_number("seed", seed) < 0 or seed % 1:
        raise InputError("not a seed", where="seed", expected="a whole number, 0 or more", found=seed)
    rng, drawn = np.random.default_rng(int(seed)), []
    for flag, size in zip((True, False), sizes, strict=True):
        part = [row for row in frame if row[3] is flag]
        require_nested(**{"m" if flag else "unflagged": size, "flagged" if flag else "unflagged in frame": len(part)})
        mixed = sorted((part[i] for i in rng.permutation(len(part))), key=lambda row: row[4])
        places = np.floor((np.arange(size) + rng.random()) * len(part) / max(size, 1)).astype(int)
        drawn += [mixed[i] for i in places]
    return digest, [drawn[i] for i in rng.permutation(len(drawn))]


def _name(row: FrameRow) -> tuple[str, str]:
    return str(csv_cell(row[0])), str(csv_cell(str(row[1])))


def draw_sample(rows: Iterable[FrameRow], m: int, path: str | Path, *, seed: int, unflagged: int = 0) -> Path:
    """Write the sheet of ``m`` flagged and ``unflagged`` unflagged records as CSV, safe to open in a spreadsheet.

    Parameters
    ----------
    rows : iterable of (record, source, decision, flagged, stratum)
        The whole frame, every episode once.
    m, unflagged : int
        At most as many as the frame holds.
    path : str or Path
    seed : int, 0 or more

    Raises
    ------
    InputError
        More records wanted than the frame holds.
    """
    digest, drawn = _draw(rows, (m, unflagged), seed)
    path = Path(path)
    with path.open("w", newline="", encoding="utf-8") as sheet:
        writer = csv.writer(sheet)
        writer.writerow(COLUMNS)
        writer.writerows((i, *_name(row), digest, int(seed), "") for i, row in enumerate(drawn, start=1))
    return path


def read_sample(path: str | Path, rows: Iterable[FrameRow], *, seed: int) -> dict[str, int]:
    """The filled sheet as ``adjudicated``, ``true``, ``unflagged_adjudicated`` and ``missed``: arguments of `estimate_rates`.

    Parameters
    ----------
    path : str or Path
        Column ``violation`` says yes or no in every row.
    rows, seed
        The frame and the seed the sheet was drawn from, as in `draw_sample`.

    Raises
    ------
    InputError
        Another frame, another seed, other records than the draw's, or a row without an answer.
    """
    with Path(path).open(newline="", encoding="utf-8-sig") as sheet:
        try:
            filled = [{k: (v or "").strip() for k, v in row.items() if k is not None} for row in csv.DictReader(sheet)]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError("not readable", where=path, expected="CSV in UTF-8", found=str(error)) from error
    if not filled or set(COLUMNS) - filled[0].keys():
        raise InputError("not an adjudication sheet", where=path, expected=f"columns {', '.join(COLUMNS)}")
    frame, answers = list(rows), {(row["record"], row["source"]): row["violation"].lower() for row in filled}
    flags = [row[3] for row in frame if _name(row) in answers]
    sizes = sum(flags), len(flags) - sum(flags)
    digest, drawn = _draw(frame, sizes, seed)
    for name, ours in (("frame", digest), ("seed", str(int(seed)))):
        if (theirs := {row[name] for row in filled}) != {ours}:
            raise InputError("the sheet was drawn otherwise", where=f"{path} {name}", expected=ours, found=sorted(theirs))
    if len(filled) != len(drawn) or answers.keys() != {_name(row) for row in drawn}:
        raise InputError("not the sample that was drawn", where=path, remedy="fill in every row of it, add and drop none")
    if open_rows := [name for name, answer in answers.items() if answer not in ANSWERS]:
        raise InputError("no answer", where=path, expected="yes or no in every row", found=name_all(r for r, _ in open_rows))
    judged = [(row[3], ANSWERS[answers[_name(row)]]) for row in drawn]
    counts = {"adjudicated": sizes[0], "true": judged.count((True, True))}
    return counts | ({"unflagged_adjudicated": sizes[1], "missed": judged.count((False, True))} if sizes[1] else {})
