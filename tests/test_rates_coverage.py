"""The fast subset of the coverage benchmark: exact enumeration, and seeded simulation at the hard cells."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[1] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def coverage():
    spec = importlib.util.spec_from_file_location("benchmark_coverage", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_wilson_dips_and_clopper_pearson_does_not(coverage):
    covered = [coverage.cover_proportion(50, rate) for rate in np.arange(0.02, 0.31, 0.005)]
    assert 0.90 < min(c["Wilson"] for c in covered) < 0.925
    assert np.mean([c["Wilson"] for c in covered]) > 0.945
    assert min(c["Clopper-Pearson"] for c in covered) >= 0.95


@pytest.mark.parametrize("n", [50, 200])
def test_adjudicated_sample_covers_where_naive_methods_do_not(coverage, n):
    cells = [coverage.cover_adjudicated(n, r, s, f) for r in coverage.RATES for s in coverage.SHARES for f in coverage.READ]
    assert min(c["MOVER-log"] for c in cells) >= 0.93
    assert min(c["exact product"] for c in cells) >= 0.95
    assert min(c["naive: reported + Wilson"] for c in cells) < 0.2
    assert min(c["naive: subtract + Wilson"] for c in cells) < 0.8


def test_adjudicated_sample_covers_at_a_thousand(coverage):
    cells = [coverage.cover_adjudicated(1000, rate, share, 0.3) for rate, share in ((0.02, 0.5), (0.3, 0.25))]
    assert min(c["MOVER-log"] for c in cells) >= 0.94


def test_double_sampling_covers(coverage, rng):
    cells = [(50, 0.1, 0.09, 1.0), (200, 0.05, 0.25, 0.3), (1000, 0.02, 0.06, 0.3)]
    for cell in cells:
        covered = coverage.cover_doubled(*cell, 4000, rng)["double sampling"]
        assert covered >= 0.92 - 3 * (0.92 * 0.08 / 4000) ** 0.5


def test_controls_cover_where_delta_does_not(coverage, rng):
    cells = [coverage.cover_controls(n, r, s, 20_000, rng) for n in (50, 1000) for r in (0.02, 0.3) for s in (0.06, 0.5)]
    assert min(c["Lang-Reiczigel"] for c in cells) >= 0.92
    assert min(c["naive: delta Rogan-Gladen"] for c in cells) < 0.8
    assert min(c["naive: Se, Sp taken as known"] for c in cells) < 0.85


def test_bounds_cover_where_counting_does_not(coverage, rng):
    cells = [coverage.cover_bounds(n, r, s, 20_000, rng) for n in (50, 200, 1000) for r in (0.02, 0.3) for s in (0.06, 0.5)]
    assert min(c["bounds"] for c in cells) >= 0.95
    assert min(c["naive: counted + Wilson"] for c in cells) < 0.7


@pytest.mark.parametrize("j", [50, 200])
def test_clusters_cover_where_ignoring_them_does_not(coverage, rng, j):
    for rate in coverage.RATES:
        covered = coverage.cover_clusters(j, rate, 4000, rng)
        assert covered["logit CR1, J >= 50"] >= 0.93
        assert covered["naive: clusters ignored + Wilson"] < 0.90
