"""An audit as files: one HTML page, and a bundle that a paper can cite."""

from __future__ import annotations

import json
import os
from pathlib import Path

from litmuskit.audit import Audit
from litmuskit.display import Table, safe_html
from litmuskit.errors import InputError
from litmuskit.stimulus import SPEC
from litmuskit.triage import tabulate_rules

__all__ = ["describe_methods", "write_bundle", "write_report"]


def describe_methods(audit: Audit) -> str:
    """A paragraph for a methods section, every number from the audit."""
    from litmuskit import __version__

    counts, headline = audit.counts, audit.rates().headline
    rate = f" The headline rate is {headline!r}." if headline is not None else ""
    open_lines = ", ".join(f"{line.condition} {line.state}" for line in audit.gate.lines if line.state != "met") or "none"
    return (
        f"The log was audited with litmuskit {__version__} (fingerprint {SPEC}). {audit.statement} Of {counts.episodes} "
        f"attacked episodes {counts.flagged} were flagged as violations; {counts.counted} are attributable to the agent, "
        f"{counts.quarantined} were quarantined, {counts.escalated} escalated as harness faults and {counts.not_assessable} "
        f"could not be assessed; {counts.not_assessable_unflagged} unflagged episodes could not be assessed either.{rate} "
        f"Gate: {audit.gate.verdict} (open: {open_lines})."
    )


def write_report(audit: Audit, path: str | os.PathLike[str]) -> Path:
    """Write one self-contained HTML page: gate, counts, ladder, rates, every verdict, the rules. No script, nothing remote.

    Parameters
    ----------
    audit : Audit
    path : path
        A file, written over where it stands.
    """
    unread = tuple((str(failure.source), str(failure.error)) for failure in audit.failures)
    failures = [Table(columns=("source", "error"), rows=unread, caption="Unread input")] if unread else []
    found = [result.to_table() for result in (audit.ladder(), audit.rates(), audit)]
    parts = [audit.gate.to_table(), *failures, audit.counts.to_table(), audit.summary(), *found, tabulate_rules()]
    body = "".join(part._repr_html_() for part in parts)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>litmuskit audit</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"></head>"
        f"<body><h1>Audit</h1><p>{safe_html(describe_methods(audit))}</p>{body}</body></html>\n"
    )
    target = Path(path)
    target.write_text(page, encoding="utf-8")
    return target


def write_bundle(audit: Audit, path: str | os.PathLike[str]) -> Path:
    """Write a new folder: ``audit.json``, ``verdicts.csv``, ``rates.csv``, ``audit.html`` and ``methods.txt``.

    Parameters
    ----------
    audit : Audit
    path : path
        A folder that does not exist, or is empty.

    Raises
    ------
    InputError
        When something stands there: a bundle is never mixed with another.
    """
    home = Path(path)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise InputError("something stands there", where=home, expected="a new or empty folder")
    home.mkdir(parents=True, exist_ok=True)
    (home / "audit.json").write_text(json.dumps(audit.to_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (home / "verdicts.csv").write_text(audit.to_table().to_csv(), encoding="utf-8")
    (home / "rates.csv").write_text(audit.rates().to_table().to_csv(), encoding="utf-8")
    (home / "methods.txt").write_text(describe_methods(audit) + "\n", encoding="utf-8")
    write_report(audit, home / "audit.html")
    return home
