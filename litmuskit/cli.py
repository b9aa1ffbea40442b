"""The command line: thin words over the library.

Exit status: 0 the audited run is publishable, or the command did its job; 1 audited and not publishable; 2 usage or bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litmuskit.attestation import RUNGS, diff_manifests
from litmuskit.audit import Audit, audit_log, cite_first
from litmuskit.calibration import Consensus, calibrate, consensus
from litmuskit.canonical import load_strict
from litmuskit.comparison import compare
from litmuskit.display import Table, safe_text
from litmuskit.errors import InputError, LitmusError
from litmuskit.manifest import OracleManifest, read_manifest
from litmuskit.rates import RateTable, estimate_rates
from litmuskit.readers import Log, read_log
from litmuskit.records import MATCH_KEYS
from litmuskit.stimulus import Fingerprint, fingerprint

__all__ = ["main"]

SHOWN, WIDEST = 20, 120


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; see ``litmuskit --help``."""
    arguments = _build_parser().parse_args(argv)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            status = int(arguments.run(arguments))
        except LitmusError as error:
            sys.stderr.write(f"litmuskit: {safe_text(error)}\n")
            status = 2
        except OSError as error:
            sys.stderr.write(f"litmuskit: {safe_text(error.filename)}: {safe_text(error.strerror)}\n")
            status = 2
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        sys.stderr.write(f"note: {safe_text(text)}\n")
    return status


def _print(*tables: Table | str) -> None:
    for table in tables:
        text = table.to_text(limit=WIDEST) if isinstance(table, Table) else safe_text(table, newlines=True)
        sys.stdout.write(f"{text}\n\n")


def _dump(value: Any, target: str) -> None:
    text = json.dumps(value, indent=1, allow_nan=False)
    if target == "-":
        sys.stdout.write(f"{text}\n")
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")


def _open_log(arguments: argparse.Namespace, paths: Sequence[str]) -> Log:
    match_key, keep_going = getattr(arguments, "match_key", None), getattr(arguments, "keep_going", False)
    return read_log(paths, violation=arguments.violation, match_key=match_key, keep_going=keep_going)


def _run_audit(arguments: argparse.Namespace) -> int:
    log = _open_log(arguments, arguments.log)
    oracle: OracleManifest | Consensus | None = None
    if arguments.oracle:
        oracle = read_manifest(arguments.oracle)
    elif arguments.calibrate_from:
        oracle = calibrate(_open_log(arguments, arguments.calibrate_from), _read_expected(arguments.expected))
    elif arguments.consensus:
        oracle = consensus(log)
    audit = audit_log(
        log,
        oracle,
        require=arguments.require,
        match=arguments.match,
        preflight=_read_preflight(arguments.preflight, arguments.policy),
    )
    if arguments.json != "-":
        _print(*show_audit(audit, by=arguments.by))
    if arguments.json:
        _dump(audit.to_json(), arguments.json)
    if arguments.html:
        from litmuskit.report import write_report

        write_report(audit, arguments.html)
    return 0 if audit.gate else 1


def show_audit(audit: Audit, *, by: Sequence[str] = ()) -> tuple[Table, ...]:
    """What a terminal shows of an audit: verdicts of flagged records, the rules, the gate, the ladder, the rates."""
    flagged = [verdict for verdict in audit.verdicts if verdict.flagged or verdict.decision]
    note = f"first {SHOWN} of {len(flagged)} flagged or not assessable; --json holds all" if len(flagged) > SHOWN else ""
    rows = [
        (v.record, v.flagged, v.decision, v.attestation, v.turn, ", ".join(v.rules[:2]), cite_first(v)) for v in flagged[:SHOWN]
    ]
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
        raise InputError(
            "not a mapping of records to controls", where=path, expected="an object", found=type(expected).__name__
        )
    return expected


def _read_preflight(path: str | None, policy: str) -> Mapping[str, str] | None:
    if path is None:
        return None
    from litmuskit.preflight import read_verdicts

    return {instance: valid[policy] for instance, valid in read_verdicts(path).items()}


def _run_calibrate(arguments: argparse.Namespace) -> int:
    target = Path(arguments.out)
    old = read_manifest(target) if (target / "manifest.json").is_file() else None
    version, supersedes = (old.version + 1, old.content_id) if old else (1, None)
    expected = _read_expected(arguments.expected)
    manifest = calibrate(_open_log(arguments, arguments.reference), expected, version=version, supersedes=supersedes)
    if (
        old
        and not (set(old.entries) ^ set(manifest.entries))
        and old.policies == manifest.policies
        and old.controls == manifest.controls
    ):
        _print(old.to_table(), f"unchanged: {target}")
        return 0
    manifest.write(target)
    _print(manifest.to_table(), *([diff_manifests(old, manifest).to_table()] if old else []), f"written: {target}")
    return 0


def _run_verify(arguments: argparse.Namespace) -> int:
    manifest = read_manifest(arguments.manifest, at_least=arguments.at_least)
    _print(manifest.to_table(), "every size, digest and the content id agree")
    return 0


def _read_stimulus(path: str, record: str | None, turn: int | None) -> Fingerprint:
    data = Path(path).read_bytes() if Path(path).is_file() else b""
    if data.lstrip()[:1] == b"{" and b"\n{" not in data.strip():
        stimulus = load_strict(data, path)
        if isinstance(stimulus, dict) and {"messages", "system", "tools"} & set(stimulus) and "suite_name" not in stimulus:
            return fingerprint(stimulus)
    episodes = [e for e in read_log(path, violation=(), keep_going=False) if record in {None, e.record}]
    if len(episodes) != 1:
        raise InputError("name one record", where=path, expected="--record ID", found=f"{len(episodes)} episodes")
    return fingerprint(episodes[0].transcript, turn=turn)


def _run_fingerprint(arguments: argparse.Namespace) -> int:
    found = _read_stimulus(arguments.path, arguments.record, arguments.turn)
    if arguments.json:
        _dump(found.to_json(), arguments.json)
    if arguments.json != "-":
        _print(found.to_table())
    return 0


def _run_compare(arguments: argparse.Namespace) -> int:
    record, turn = arguments.record, arguments.turn
    _print(compare(_read_stimulus(arguments.left, record, turn), _read_stimulus(arguments.right, record, turn)).to_table())
    return 0


def _run_preflight(arguments: argparse.Namespace) -> int:
    from litmuskit.preflight import run_preflight

    report = run_preflight(arguments.instances, suite=arguments.suite, resume=arguments.resume and Path(arguments.resume))
    if arguments.json == "-":
        sys.stdout.write(report.to_lines())
    elif arguments.json:
        Path(arguments.json).write_text(report.to_lines(), encoding="utf-8")
    if arguments.json != "-":
        _print(report.to_table())
    return report.exit_code(arguments.policy)


def _run_simulate(arguments: argparse.Namespace) -> int:
    from litmuskit.harness import simulate_episodes, write_simulation

    faults, agents = (_read_shares(text, name) for text, name in ((arguments.faults, "faults"), (arguments.agents, "agents")))
    simulation = simulate_episodes(
        arguments.episodes,
        faults=faults,
        agents=agents,
        match_key=arguments.match_key,
        seed=arguments.seed,
        declare=arguments.declare,
    )
    paths = write_simulation(simulation, arguments.out)
    manifest = calibrate(simulation.reference, simulation.controls).write(Path(arguments.out) / "manifest")
    _print(simulation.to_table(), *(f"written: {path}" for path in (*paths, manifest)))
    return 0


def _read_shares(text: str | None, where: str) -> dict[str, float] | None:
    if text is None:
        return None
    shares: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            shares[name.strip()] = float(value)
        except ValueError:
            raise InputError(
                "not NAME=NUMBER", where=f"--{where}", expected="as in replay=0.1,truncate=512", found=part
            ) from None
        if list(shares).count(name) > 1:
            raise InputError("named twice", where=f"--{where}", found=name)
    return shares


def _run_rates(arguments: argparse.Namespace) -> int:
    names = (
        "flagged",
        "episodes",
        "quarantined",
        "escalated",
        "not_assessable",
        "adjudicated",
        "true",
        "unflagged_adjudicated",
        "missed",
    )
    counts = {name: getattr(arguments, name) for name in names}
    controls = {"caught": arguments.caught, "cleared": arguments.cleared, "transport": arguments.transport}
    table = estimate_rates(**counts, **controls, level=arguments.level)
    if arguments.json:
        _dump(table.to_table().to_records(), arguments.json)
    if arguments.json != "-":
        _print(table.to_table())
    return 0


def _run_demo(arguments: argparse.Namespace) -> int:
    from litmuskit.demo import run_demo

    audit, paths = run_demo(arguments.out, seed=arguments.seed)
    _print(*show_audit(audit), *(f"{what}: {path}" for what, path in paths.items()))
    return 0


def _pair(text: str) -> tuple[int, int]:
    part, _, whole = text.partition("/")
    return int(part), int(whole)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="litmuskit", description="Is a flagged violation a fact about the agent, or about the harness?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, says: str, *positional: str, many: bool = False) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=says, description=says)
        for place in positional:
            added.add_argument(place, nargs="+" if many else None, metavar=place.upper())
        added.set_defaults(run=run)
        return added

    audit = command("audit", _run_audit, "a verdict for every record of a log, and a gate for the run", "log", many=True)
    oracle = audit.add_mutually_exclusive_group()
    oracle.add_argument("--oracle", metavar="M", help="an oracle manifest")
    oracle.add_argument("--calibrate-from", nargs="+", metavar="REF", help="calibrate on this reference log first")
    oracle.add_argument("--consensus", action="store_true", help="attest by the agreement of the log's own other runs")
    audit.add_argument("--match-key", choices=MATCH_KEYS, help="what the grader compared, overriding the log")
    audit.add_argument("--preflight", metavar="REPORT", help="lines of `litmuskit preflight --json`")
    audit.add_argument("--policy", choices=("literal", "behavioural"), default="literal", help="which pre-flight verdict rules")
    audit.add_argument("--require", choices=RUNGS, default="calibrated", help="lowest rung at which a violation counts")
    audit.add_argument("--match", choices=("component", "env", "exact"), default="component", help="how stimuli are matched")
    audit.add_argument("--by", nargs="+", default=(), metavar="GROUP", help="split the rates by groups of the log")
    audit.add_argument("--html", metavar="FILE", help="write a report")
    audit.add_argument("--keep-going", action="store_true", help="audit what can be read, list what cannot; never publishable")
    reference = command("calibrate", _run_calibrate, "make an oracle manifest of a reference log", "reference", many=True)
    reference.add_argument("--out", required=True, metavar="M", help="the manifest's folder")
    for added in (audit, reference):
        added.add_argument("--expected", metavar="FILE", help="JSON object: record or instance to the kind of control it is")
        added.add_argument(
            "--violation", action="append", default=[], metavar="SCORER[.KEY]=VALUE", help="what means violation"
        )
    shown = command("fingerprint", _run_fingerprint, "the digests of one stimulus", "path")
    compared = command("compare", _run_compare, "where two stimuli part", "left", "right")
    for added in (shown, compared):
        added.add_argument("--record", metavar="ID", help="which episode of a log")
        added.add_argument("--turn", type=int, metavar="N", help="which model call, from 1 (default: the last)")
    preflight = command("preflight", _run_preflight, "whether instances are fit to be scored", "instances")
    preflight.add_argument(
        "--policy", choices=("literal", "behavioural"), default="literal", help="which verdict sets the exit status"
    )
    preflight.add_argument("--suite", help="one suite of agentdojo:VERSION")
    preflight.add_argument("--resume", metavar="FILE", help="keep records here and do not make them again")
    simulate = command("simulate", _run_simulate, "run the reference harness: log, reference, truth and manifest")
    simulate.add_argument("--faults", metavar="NAME=RATE,...", help="as in replay=0.1,truncate=512")
    simulate.add_argument("--agents", metavar="NAME=SHARE,...", help="as in repair=0.5,comply=0.2; the rest refuses")
    simulate.add_argument("--match-key", choices=MATCH_KEYS[:4], default="arguments+observation")
    simulate.add_argument("--episodes", type=int, default=200)
    simulate.add_argument("--declare", action="store_true", help="let the harness declare its faults in the log")
    simulate.add_argument("--out", required=True, metavar="DIR")
    rates = command("rates", _run_rates, "corrected rates from counts alone")
    for name in ("flagged", "episodes"):
        rates.add_argument(f"--{name}", type=int, required=True)
    for name in ("quarantined", "escalated", "not-assessable", "adjudicated", "true", "unflagged-adjudicated", "missed"):
        rates.add_argument(f"--{name}", type=int)
    for name in ("caught", "cleared"):
        rates.add_argument(f"--{name}", type=_pair, metavar="K/N", help="control runs that were labelled rightly")
    rates.add_argument("--transport", help="why the controls' errors are the run's: same-agent or stub")
    rates.add_argument("--level", type=float, default=0.95)
    verify = command("verify", _run_verify, "check an oracle manifest's integrity", "manifest")
    verify.add_argument("--at-least", type=int, default=1, metavar="VERSION", help="the lowest version to accept")
    demo = command("demo", _run_demo, "the whole chain on the reference harness, with a figure and audit.json")
    demo.add_argument("--out", default="litmuskit-demo", metavar="DIR")
    for added in (simulate, demo):
        added.add_argument("--seed", type=int, default=1)
    for added in (audit, shown, preflight, rates):
        added.add_argument("--json", metavar="FILE|-", help="write JSON; - for standard output and nothing else")
    return parser
