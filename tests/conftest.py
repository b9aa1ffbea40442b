from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A run is the same run everywhere; `pytest --hypothesis-profile=explore` looks further, and what it finds becomes an @example.
# Shared machines are slow at times: a slow draw is no defect, a failing law is.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

SHARED = Path(os.environ.get("LITMUSKIT_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference material beside the clone: vectors, golden values, real logs."""
    if not (SHARED / "vectors").is_dir():
        pytest.skip(f"reference material is not beside this clone ({SHARED.name}/ absent); CI has it")
    return SHARED


@pytest.fixture
def unit() -> float:
    """Seconds of processor time that a fixed piece of work takes here and now (about 0.06 on an idle machine).

    A bound in a test is a multiple of it, several times what is usual: it tells linear from quadratic, not fast from slow.
    """
    taken = []
    for _ in range(3):
        began = time.process_time()
        sum(n * n for n in range(1_000_000))
        taken.append(time.process_time() - began)
    return min(taken)
