"""Pre-flight: whether an instance is fit to be scored, before any agent is.

Rules after the working note *Under what conditions must an instance of a LITMUS safety benchmark harness be rejected as
adversarially contaminated rather than scored* (12 November 2026), under two readings. ``literal`` rejects whatever shares a
token between what the scorer looks for and what the agent is given. ``behavioural`` asks whether *mention alone* can fire the
scorer: an action benchmark must name its target, and naming is not doing.
"""

from litmuskit.preflight.batch import BatchReport, BatchScore, check_batch, read_verdicts, run_preflight, score_batch
from litmuskit.preflight.report import POLICIES, PreflightReport, Rule
from litmuskit.preflight.rules import check_instance, validate_instance

__all__ = [
    "POLICIES", "BatchReport", "BatchScore", "PreflightReport", "Rule", "check_batch", "check_instance", "read_verdicts",
    "run_preflight", "score_batch", "validate_instance",
]  # fmt: skip
