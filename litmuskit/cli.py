"""The command line: thin words over the library.

Exit status: 0 the audited run is publishable, or the command did its job; 1 audited and not publishable; 2 usage or bad input.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from litmuskit import __version__
from litmuskit import commands as do
from litmuskit.attestation import RUNGS
from litmuskit.display import safe_text
from litmuskit.errors import LitmusError
from litmuskit.records import MATCH_KEYS
from litmuskit.reproduction import NORMALIZERS

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; see ``litmuskit --help``."""
    arguments = _build_parser().parse_args(argv)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            status = int(arguments.run(arguments))
        except (LitmusError, OSError) as error:
            said = error if isinstance(error, LitmusError) else f"{error.filename}: {error.strerror}"
            sys.stderr.write(f"litmuskit: {safe_text(said)}\n")
            status = 2
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        sys.stderr.write(f"note: {safe_text(text)}\n")
    return status


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("nothing is named")
    return text


def _pair(text: str) -> tuple[int, ...]:
    try:
        part, whole = map(int, text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected K/N, two whole numbers, found {text!r}") from None
    return part, whole


def _counts(text: str) -> int | list[int]:
    try:
        return [int(part) for part in text.split(",")] if "," in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, or K,K,... one per cluster, found {text!r}") from None


def _build_parser() -> argparse.ArgumentParser:
    question = "Is a flagged violation a fact about the agent, or about the harness?"
    parser = argparse.ArgumentParser(prog="litmuskit", description=question)
    parser.add_argument("--version", action="version", version=f"litmuskit {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, says: str, *positional: str, many: bool = False) -> argparse.ArgumentParser:
        added = subparsers.add_parser(name, help=says, description=says)
        added.register("type", None, _name)
        for place in positional:
            added.add_argument(place, nargs="+" if many else None, metavar=place.upper())
        added.set_defaults(run=run)
        return added

    audit = command("audit", do.run_audit, "a verdict for every record of a log, and a gate for the run", "log", many=True)
    oracle = audit.add_mutually_exclusive_group()
    oracle.add_argument("--oracle", metavar="M", help="an oracle manifest")
    oracle.add_argument("--calibrate-from", nargs="+", metavar="REF", help="calibrate on this reference log first")
    oracle.add_argument("--consensus", action="store_true", help="attest by the agreement of the log's own other runs")
    audit.add_argument("--match-key", choices=MATCH_KEYS, help="what the grader compared, overriding the log")
    audit.add_argument("--preflight", metavar="REPORT", help="lines of `litmuskit preflight --json`")
    audit.add_argument("--require", choices=RUNGS, default="calibrated", help="lowest rung at which a violation counts")
    audit.add_argument("--match", choices=("component", "env", "exact"), default="component", help="how stimuli are matched")
    audit.add_argument("--by", nargs="+", default=(), metavar="GROUP", help="split the rates by groups of the log")
    audit.add_argument("--html", metavar="FILE", help="write a report")
    audit.add_argument("--keep-going", action="store_true", help="audit what can be read, list what cannot; never publishable")
    audit.add_argument("--workers", type=int, default=1, metavar="N", help="read files in N processes, in the same order")
    reference = command("calibrate", do.run_calibrate, "make an oracle manifest of a reference log", "reference", many=True)
    reference.add_argument("--out", required=True, metavar="M", help="the manifest's folder")
    for added in (audit, reference):
        added.add_argument("--expected", metavar="FILE", help="JSON object: record or instance to the kind of control it is")
    shown = command("fingerprint", do.run_fingerprint, "the digests of one stimulus", "path")
    compared = command("compare", do.run_compare, "where two stimuli part", "left", "right")
    for added in (shown, compared):
        added.add_argument("--record", metavar="ID", help="which episode of a log")
        added.add_argument("--turn", type=int, metavar="N", help="which model call, from 1 (default: the last)")
    preflight = command("preflight", do.run_preflight, "whether instances are fit to be scored", "instances")
    for added, says in ((audit, "which pre-flight verdict rules"), (preflight, "which verdict sets the exit status")):
        added.add_argument("--policy", choices=("literal", "behavioural"), default="literal", help=says)
    preflight.add_argument("--suite", help="one suite of agentdojo:VERSION")
    preflight.add_argument("--resume", metavar="FILE", help="keep records here and do not make them again")
    again = command("reproduce", do.run_reproduce, "feed recorded actions to the reference harness again", "log", many=True)
    again.add_argument("--record", metavar="ID", help="one episode of the log")
    again.add_argument("--normalize", nargs="+", default=(), choices=NORMALIZERS, help="tried where the bytes differ")
    simulate = command("simulate", do.run_simulate, "run the reference harness: log, reference, truth, manifest and pre-flight")
    shares = (("faults", "RATE", "as in replay=0.1,truncate=512"), ("agents", "SHARE", "as in repair=0.5; the rest refuses"))
    for name, unit, says in shares:
        simulate.add_argument(f"--{name}", type=str, action="append", metavar=f"NAME={unit},...", help=says)
    simulate.add_argument("--match-key", choices=MATCH_KEYS[:4], default="arguments+observation")
    simulate.add_argument("--episodes", type=int, default=200)
    simulate.add_argument("--declare", action="store_true", help="let the harness declare its faults in the log")
    simulate.add_argument("--out", required=True, metavar="DIR")
    rates = command("rates", do.run_rates, "corrected rates from counts alone")
    taken = "quarantined", "escalated", "not-assessable", "assessed", "exposed"
    for name in ("flagged", "episodes", *taken, "adjudicated", "true"):
        needed = name in {"flagged", "episodes"}
        rates.add_argument(f"--{name}", type=_counts, required=needed, metavar="K", help="or one per cluster: 3,0,1")
    for name in ("unflagged-adjudicated", "missed"):
        rates.add_argument(f"--{name}", type=int, metavar="K")
    for name in ("caught", "cleared"):
        rates.add_argument(f"--{name}", type=_pair, metavar="K/N", help="control runs that were labelled rightly")
    rates.add_argument("--transport", help="why the controls' errors are the run's: same-agent or stub")
    rates.add_argument("--level", type=float, default=0.95)
    verify = command("verify", do.run_verify, "check an oracle manifest's integrity", "manifest")
    verify.add_argument("--at-least", type=int, default=1, metavar="VERSION", help="the lowest version to accept")
    demo = command("demo", do.run_demo, "the whole chain on the reference harness, with a figure and audit.json")
    demo.add_argument("--out", default="litmuskit-demo", metavar="DIR")
    for added in (audit, reference, shown, compared, again):
        added.add_argument("--violation", action="append", default=[], metavar="SCORER[.KEY]=VALUE", help="what is a violation")
    for added in (simulate, demo):
        added.add_argument("--seed", type=int, default=1)
    for added in (audit, shown, preflight, again, rates):
        added.add_argument("--json", metavar="FILE|-", help="write JSON; - for standard output and nothing else")
    return parser
