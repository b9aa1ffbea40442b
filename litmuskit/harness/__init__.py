"""The reference harness: a real tool loop, faults that can be switched on, scripted agents, and the truth by construction."""

from litmuskit.harness.agents import AGENTS
from litmuskit.harness.episode import Truth, run_episode
from litmuskit.harness.faults import FAULTS, Planted
from litmuskit.harness.reference import ReferenceHarness
from litmuskit.harness.simulation import Simulation, simulate_episodes, write_simulation
from litmuskit.harness.sweep import Surface, sweep_settings, tabulate_pairs
from litmuskit.harness.tasks import list_instances

__all__ = [
    "AGENTS", "FAULTS", "Planted", "ReferenceHarness", "Simulation", "Surface", "Truth", "list_instances", "run_episode",
    "simulate_episodes", "sweep_settings", "tabulate_pairs", "write_simulation",
]  # fmt: skip
