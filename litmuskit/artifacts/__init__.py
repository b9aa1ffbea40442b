"""One finder per kind of harness fault: an episode in, evidence out."""

from litmuskit.artifacts.evidence import KINDS, Evidence

__all__ = ["KINDS", "Evidence"]
