"""Reading records: the sheet a person fills in, drawn from an audit's frame and read back against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from litmuskit.audit import Audit
from litmuskit.rates import sampling

__all__ = ["draw_sample", "read_sample"]


def draw_sample(
    audit: Audit, m: int, strata: str | None = None, seed: int = 0, *, unflagged: int = 0, path: str | Path = "adjudication.csv"
) -> Path:
    """Write a sheet of randomly drawn records for a person to judge, safe to open in a spreadsheet.

    Parameters
    ----------
    audit : Audit
        The frame: every attacked episode.
    m : int
        How many flagged records, at most as many as there are.
    strata : str, optional
        A group (or ``instance``) over which the draw is spread in proportion.
    seed : int
        Reading the sheet back needs the same.
    unflagged : int
        How many unflagged records beside them, to learn what the scorer misses.
    path : path
        Where the sheet goes; it is returned.

    Raises
    ------
    InputError
        More records wanted than the frame holds.
    """
    return sampling.draw_sample(_list_frame(audit, strata), m, path, seed=seed, unflagged=unflagged)


def read_sample(audit: Audit, path: str | Path, strata: str | None = None, seed: int = 0) -> dict[str, int]:
    """Counts of a filled sheet, for `Audit.rates`.

    Parameters
    ----------
    audit, strata, seed
        As the sheet was drawn with, in `draw_sample`.
    path : path
        Column ``violation`` says yes or no in every row.

    Raises
    ------
    InputError
        Another frame or seed, other records than the draw's, or a row without an answer: records picked because they look
        suspicious are no random sample.
    """
    return sampling.read_sample(path, _list_frame(audit, strata), seed=seed)


def _list_frame(audit: Audit, strata: str | None) -> Iterator[sampling.FrameRow]:
    for verdict in audit.verdicts:
        if verdict.attacked:
            stratum = verdict.group(strata) if strata else ""
            yield verdict.record, verdict.source, verdict.decision, verdict.flagged, stratum
