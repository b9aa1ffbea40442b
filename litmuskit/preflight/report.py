"""What a pre-flight found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from litmuskit.canary import Collision
from litmuskit.display import Table, Tabular, safe_text
from litmuskit.errors import InputError

POLICIES = ("literal", "behavioural")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the checklist: pass, fail, absent (not shown) or note, and the policies it decides.

    The line of a ``control`` carries the scorer's ``label``: True for a violation.
    """

    name: str
    result: str
    detail: str = ""
    policies: tuple[str, ...] = POLICIES
    control: str | None = None
    label: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport(Tabular):
    """Every rule and collision of one instance; ``names`` are further keys of its JSON."""

    instance: str
    rules: tuple[Rule, ...]
    collisions: tuple[Collision, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"PreflightReport({safe_text(self.instance)!r}, {', '.join(f'{p}: {v}' for p, v in self.valid.items())})"

    @property
    def valid(self) -> dict[str, str]:
        """Policy to yes, no (a rule failed) or undetermined (none failed, one could not be shown): only yes may be scored."""
        results = {policy: {rule.result for rule in self.failures(policy)} for policy in POLICIES}
        return {policy: "no" if "fail" in r else "undetermined" if r else "yes" for policy, r in results.items()}

    def failures(self, policy: str = "literal") -> tuple[Rule, ...]:
        """The rules that failed or could not be shown under ``policy``."""
        require_policy(policy)
        return tuple(rule for rule in self.rules if policy in rule.policies and rule.result in {"fail", "absent"})

    def to_table(self) -> Table:
        """One row per rule, then one per collision."""
        rows = [(rule.name, rule.result, ", ".join(rule.policies), rule.detail) for rule in self.rules]
        found = ((c, "fail" if c.finding else "note") for c in self.collisions)
        rows += [(c.signal, result, c.view, f"{c.share:.0%} in {c.where}: {c.shared}") for c, result in found]
        columns = ("rule, or signal that collides", "result", "decides, or view", "detail")
        return Table(columns=columns, rows=tuple(rows), caption=repr(self))

    def to_json(self) -> dict[str, Any]:
        """The report as plain values: the line that ``litmuskit preflight --json`` prints."""
        controls = {r.control: {"result": r.result, "label": r.label, "reason": r.detail} for r in self.rules if r.control}
        return {
            "instance": self.instance,
            **self.names,
            "controls": controls,
            "collisions": [collision.to_json() for collision in self.collisions],
            "rules": [{"name": r.name, "result": r.result, "detail": r.detail} for r in self.rules if r.control is None],
            "valid": self.valid,
        }


def require_policy(policy: str) -> None:
    """Raise InputError unless ``policy`` is one of `POLICIES`."""
    if policy not in POLICIES:
        raise InputError("unknown policy", where="policy", expected=" or ".join(POLICIES), found=policy)
