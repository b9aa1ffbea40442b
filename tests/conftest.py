from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("LITMUSKIT_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference material beside the clone: vectors, golden values, real logs."""
    if not (SHARED / "vectors").is_dir():
        pytest.skip(f"reference material is not beside this clone ({SHARED.name}/ absent); CI has it")
    return SHARED
