"""What each command does: words in, the library called, tables out, an exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from litmuskit.attestation import diff_manifests
from litmuskit.audit import Audit, audit_log
from litmuskit.calibration import Consensus, calibrate, consensus
from litmuskit.canonical import load_strict
from litmuskit.comparison import compare
from litmuskit.display import Table, safe_text
from litmuskit.errors import InputError
from litmuskit.folder import find_aside
from litmuskit.manifest import OracleManifest, read_manifest
from litmuskit.rates import RateTable, estimate_rates
from litmuskit.readers import Log, read_log
from litmuskit.records import Transcript
from litmuskit.reproduction import reproduce
from litmuskit.stimulus import fingerprint

__all__ = [
    "run_audit", "run_calibrate", "run_compare", "run_demo", "run_fingerprint", "run_preflight", "run_rates", "run_reproduce",
    "run_simulate", "run_verify", "show_audit",
]  # fmt: skip

SHOWN, WIDEST = 20, 120


def _print(*tables: Table | str) -> None:
    for table in tables:
        text = table.to_text(limit=WIDEST) if isinstance(table, Table) else safe_text(table, newlines=True)
        sys.stdout.write(f"{text}\n\n")


def _encode_json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _answer(target: str | None, lines: str, *tables: Table | str) -> None:
    """Show the tables and write the lines where ``--json`` says: on standard output they stand alone."""
    if target == "-":
        sys.stdout.write(lines)
        return
    _print(*tables)
    if target:
        Path(target).write_text(lines, encoding="utf-8")


def _open_log(arguments: argparse.Namespace, paths: Sequence[str]) -> Log:
    options = {name: getattr(arguments, name) for name in ("match_key", "keep_going", "workers") if name in arguments}
    return read_log(paths, violation=arguments.violation, **options)


def run_audit(arguments: argparse.Namespace) -> int:
    """``litmuskit audit``."""
    log = _open_log(arguments, arguments.log)
    if arguments.expected and not arguments.calibrate_from:
        raise InputError("controls belong to a reference", where="--expected", expected="--calibrate-from beside it")
    oracle: OracleManifest | Consensus | None = None
    if arguments.oracle:
        oracle = read_manifest(arguments.oracle)
    elif arguments.calibrate_from:
        oracle = calibrate(_open_log(arguments, arguments.calibrate_from), _read_expected(arguments.expected))
    elif arguments.consensus:
        oracle = consensus(log)
    preflight, readings, said = _read_preflight(arguments.preflight, arguments.policy)
    audit = audit_log(log, oracle, require=arguments.require, match=arguments.match, preflight=preflight)
    shown = () if arguments.json == "-" else show_audit(audit, by=arguments.by)
    drift = [_shorten(oracle.to_table())] if isinstance(oracle, Consensus) else []
    lines = _encode_json(audit.to_json(by=arguments.by) | readings) if arguments.json else ""
    _answer(arguments.json, lines, *shown, *said, *drift)
    if arguments.html:
        from litmuskit.report import write_report

        write_report(audit, arguments.html)
    return 0 if audit.gate else 1


def _shorten(table: Table) -> Table:
    note = f"first {SHOWN} of {len(table)}" if len(table) > SHOWN else table.note
    return Table(columns=table.columns, rows=table.rows[:SHOWN], caption=table.caption, note=note)


def show_audit(audit: Audit, *, by: Sequence[str] = ()) -> tuple[Table, ...]:
    """What a terminal shows of an audit: verdicts of flagged records, the rules, the gate, the ladder, the rates."""
    flagged = [verdict for verdict in audit.verdicts if verdict.flagged or verdict.decision]
    note = f"first {SHOWN} of {len(flagged)} flagged or not assessable; --json holds all" if len(flagged) > SHOWN else ""
    rows = [(v.record, v.flagged, v.decision, v.attestation, v.turn, ", ".join(v.rules[:2]), v.cite()) for v in flagged[:SHOWN]]
    columns = ("record", "flagged", "decision", "attestation", "turn", "first rules", "evidence")
    verdicts = Table(columns=columns, rows=tuple(rows), caption="Verdicts", note=note)
    return verdicts, audit.summary(), audit.gate.to_table(), _narrow(audit.ladder()), _narrow(audit.rates(by=by))


def _narrow(rates: RateTable) -> Table:
    """The rates without the columns that say nothing here; counts as one cell, reasons left to --json and the report."""
    rows = []
    for rate in rates.rates:
        counts = ((name, getattr(rate, name)) for name in ("n", "x", "c", "q", "a", "u", "m", "t", "clusters"))
        said = " ".join(f"{name}={value}" for name, value in counts if value is not None)
        name = " ".join(part for part in (rate.label, rate.estimand) if part)
        rows.append((rate.role or "", name, rate.estimate, rate.lower, rate.upper, said, rate.method))
    level = f"{100 * rates.rates[0].level:g} %" if rates.rates else ""
    columns = ("role", "estimand", "estimate", f"lower {level}", f"upper {level}", "counts", "method")
    return Table(columns=columns, rows=tuple(rows), caption=rates.caption)


def _read_expected(path: str | None) -> Mapping[str, str] | None:
    if path is None:
        return None
    expected = load_strict(Path(path).read_bytes(), path)
    if not isinstance(expected, dict):
        raise InputError("no mapping of records to controls", where=path, expected="an object", found=type(expected).__name__)
    return expected


def _read_preflight(path: str | None, policy: str) -> tuple[Mapping[str, str] | None, dict[str, Any], list[str]]:
    """Instance to verdict under ``policy``; how many instances are valid under either, as JSON and in words."""
    if path is None:
        return None, {}, []
    from litmuskit.preflight import POLICIES, read_verdicts

    verdicts = read_verdicts(path)
    valid = {name: sum(verdict[name] == "yes" for verdict in verdicts.values()) for name in POLICIES}
    readings = {"preflight": {"policy": policy, "instances": len(verdicts), "valid": valid}}
    under = ", ".join(f"{count} of {len(verdicts)} under the {name} policy" for name, count in valid.items())
    said = [f"pre-flight: valid are {under}; the {policy} policy rules"]
    return {instance: verdict[policy] for instance, verdict in verdicts.items()}, readings, said


def run_calibrate(arguments: argparse.Namespace) -> int:
    """``litmuskit calibrate``."""
    target = Path(arguments.out)
    old = read_manifest(target) if (target / "manifest.json").is_file() or find_aside(target) else None
    version, supersedes = (old.version + 1, old.content_id) if old else (1, None)
    expected = _read_expected(arguments.expected)
    manifest = calibrate(_open_log(arguments, arguments.reference), expected, version=version, supersedes=supersedes)
    if old and replace(manifest, version=old.version, supersedes=old.supersedes).content_id == old.content_id:
        _print(old.to_table(), f"unchanged: {target}")
        return 0
    manifest.write(target)
    _print(manifest.to_table(), *([diff_manifests(old, manifest).to_table()] if old else []), f"written: {target}")
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """``litmuskit verify``."""
    manifest = read_manifest(arguments.manifest, at_least=arguments.at_least)
    _print(manifest.to_table(), "every size, digest and the content id agree")
    return 0


def _read_stimuli(arguments: argparse.Namespace, *paths: str) -> list[Transcript | dict[str, Any]]:
    """What each path holds: one stimulus as JSON, or the episode and turn of a log that the options name."""
    found = [_read_stimulus(path) or _read_transcript(arguments, path) for path in paths]
    for option in ("record", "turn"):
        if getattr(arguments, option) is not None and all(isinstance(one, dict) for one in found):
            raise InputError("names a part of a log", where=f"--{option}", found=f"one stimulus in {', '.join(paths)}")
    return found


def _read_stimulus(path: str) -> dict[str, Any] | None:
    head = Path(path).read_bytes() if Path(path).is_file() else b""
    if head.lstrip()[:1] != b"{" or b"\n{" in head.strip():
        return None
    stimulus = load_strict(head, path)
    known = {"messages", "system", "tools"} & stimulus.keys() and "suite_name" not in stimulus
    return stimulus if known else None


def _read_transcript(arguments: argparse.Namespace, path: str) -> Transcript:
    """A transcript up to the turn that is asked for, of the one episode that is."""
    episodes = [e for e in _open_log(arguments, [path]) if arguments.record in {None, e.record}]
    if len(episodes) != 1:
        raise InputError("name one record", where=path, expected="--record ID", found=f"{len(episodes)} episodes")
    transcript, turn = episodes[0].transcript, arguments.turn
    if turn is not None and not 1 <= turn <= len(transcript.calls):
        raise InputError("no such model call", where="--turn", expected=f"1..{len(transcript.calls)}", found=turn)
    return transcript if turn is None else replace(transcript, calls=transcript.calls[:turn], final=None)


def run_fingerprint(arguments: argparse.Namespace) -> int:
    """``litmuskit fingerprint``."""
    found = fingerprint(*_read_stimuli(arguments, arguments.path))
    _answer(arguments.json, _encode_json(found.to_json()), found.to_table())
    return 0


def run_compare(arguments: argparse.Namespace) -> int:
    """``litmuskit compare``."""
    _print(compare(*_read_stimuli(arguments, arguments.left, arguments.right)).to_table())
    return 0


def run_reproduce(arguments: argparse.Namespace) -> int:
    """``litmuskit reproduce``."""
    from litmuskit.harness import ReferenceHarness

    harness = ReferenceHarness()
    episodes = (e for e in _open_log(arguments, arguments.log) if arguments.record in {None, e.record})
    found = [reproduce(episode, harness, normalizers=arguments.normalize) for episode in episodes]
    rows = tuple((r.record, r.rung, r.calls, r.identical, r.normalized, len(r.differing)) for r in found)
    columns = ("record", "rung", "calls", "identical", "normalized", "differing")
    if not rows:
        raise InputError("no such record", where="--record", found=arguments.record)
    table = Table(columns=columns, rows=rows, caption="Re-execution in the reference harness")
    _answer(
        arguments.json, _encode_json(table.to_records()), _shorten(table), *(r.to_table() for r in found[:SHOWN] if r.differing)
    )
    return 0


def run_preflight(arguments: argparse.Namespace) -> int:
    """``litmuskit preflight``."""
    from litmuskit.preflight import run_preflight

    report = run_preflight(arguments.instances, suite=arguments.suite, resume=arguments.resume and Path(arguments.resume))
    _answer(arguments.json, report.to_lines(), report.to_table())
    return report.exit_code(arguments.policy)


def run_simulate(arguments: argparse.Namespace) -> int:
    """``litmuskit simulate``."""
    from litmuskit.harness import simulate_episodes, write_simulation
    from litmuskit.preflight import run_preflight as run_preflight_of

    said: dict[str, Any] = {name: _read_shares(getattr(arguments, name), name) for name in ("faults", "agents")}
    said |= {name: getattr(arguments, name) for name in ("match_key", "seed", "declare")}
    simulation = simulate_episodes(arguments.episodes, **said)
    paths = write_simulation(simulation, arguments.out)
    manifest = calibrate(simulation.reference, simulation.controls).write(Path(arguments.out) / "manifest")
    checked = Path(arguments.out) / "preflight.jsonl"
    checked.write_text(run_preflight_of(simulation.instances).to_lines(), encoding="utf-8")
    _print(simulation.to_table(), *(f"written: {path}" for path in (*paths, manifest, checked)))
    return 0


def _read_shares(parts: Sequence[str] | None, where: str) -> dict[str, float] | None:
    if parts is None:
        return None
    shares: dict[str, float] = {}
    for part in filter(None, ",".join(parts).split(",")):
        name, value = map(str.strip, part.partition("=")[::2])
        if name in shares:
            raise InputError("named twice", where=f"--{where}", found=name)
        try:
            shares[name] = float(value)
        except ValueError:
            example = "as in replay=0.1,truncate=512"
            raise InputError("not NAME=NUMBER", where=f"--{where}", expected=example, found=part) from None
    return shares


def run_rates(arguments: argparse.Namespace) -> int:
    """``litmuskit rates``."""
    table = estimate_rates(**{name: value for name, value in vars(arguments).items() if name not in {"run", "json"}})
    _answer(arguments.json, _encode_json(table.to_json()), table.to_table())
    return 0


def run_demo(arguments: argparse.Namespace) -> int:
    """``litmuskit demo``."""
    from litmuskit.demo import run_demo

    audit, paths = run_demo(arguments.out, seed=arguments.seed)
    _print(*show_audit(audit), *(f"{what}: {path}" for what, path in paths.items()))
    return 0
