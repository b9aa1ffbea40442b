from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# shared machines are slow at times: a slow draw is no defect, a failing law is
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

SHARED = Path(os.environ.get("LITMUSKIT_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference material beside the clone: vectors, golden values, real logs."""
    if not (SHARED / "vectors").is_dir():
        pytest.skip(f"reference material is not beside this clone ({SHARED.name}/ absent); CI has it")
    return SHARED
