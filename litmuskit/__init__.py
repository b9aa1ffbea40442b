"""litmuskit: is a flagged violation a fact about the agent, or about the harness?"""

__version__ = "0.1.0"
