"""The adjudication sheet: drawn at random, read back as drawn, or refused."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from litmuskit import rates
from litmuskit.errors import InputError


def make_frame(flagged=60, unflagged=90):
    rows = [(f"=r{i}", f"run {i % 3}.json", "count", True, "ab"[i % 3 > 1]) for i in range(flagged)]
    return rows + [(f"r{i}", "run.json", None, False, "a") for i in range(flagged, flagged + unflagged)]


def fill(path, answer):
    with path.open(newline="", encoding="utf-8") as sheet:
        rows = list(csv.DictReader(sheet))
    for i, row in enumerate(rows):
        row["violation"] = answer(i, row)
    return write(path, rows)


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as sheet:
        writer = csv.DictWriter(sheet, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture
def sheet(tmp_path):
    return rates.draw_sample(make_frame(), 12, tmp_path / "sheet.csv", seed=7, unflagged=8)


def test_filled_sheet_gives_the_arguments_of_estimate_rates(sheet):
    rows = fill(sheet, lambda i, row: "Yes " if row["record"].startswith("'=") and i % 2 else "no")
    true = sum(row["violation"] == "Yes " for row in rows)
    counts = rates.read_sample(sheet, make_frame(), seed=7)
    assert counts == {"adjudicated": 12, "true": true, "unflagged_adjudicated": 8, "missed": 0}
    assert rates.estimate_rates(flagged=60, episodes=150, **counts).headline.method == "double sampling, Jeffreys"


def test_sheet_of_flagged_alone(tmp_path):
    path = rates.draw_sample(make_frame(), 60, tmp_path / "all.csv", seed=1)
    fill(path, lambda i, row: "1")
    assert rates.read_sample(path, reversed(make_frame()), seed=1) == {"adjudicated": 60, "true": 60}


def test_sheet_hides_flag_and_verdict_and_is_formula_safe(sheet):
    text = sheet.read_text(encoding="utf-8")
    assert "count" not in text
    assert "True" not in text
    assert all(not cell.startswith("=") for row in csv.reader(text.splitlines()) for cell in row)


def test_same_seed_same_sheet_other_seed_other_sheet(tmp_path):
    texts = [rates.draw_sample(make_frame(), 12, tmp_path / "s.csv", seed=s).read_text("utf-8") for s in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


def test_every_record_has_the_same_chance_and_every_stratum_its_share(tmp_path):
    frame, seen = make_frame(60, 0), np.zeros(60)
    for seed in range(400):
        path = rates.draw_sample(frame, 12, tmp_path / "s.csv", seed=seed)
        with path.open(newline="", encoding="utf-8") as sheet:
            drawn = [int(row["record"].lstrip("'=r")) for row in csv.DictReader(sheet)]
        assert len(set(drawn)) == 12
        assert sum(i % 3 > 1 for i in drawn) == 4  # a third of the frame, a third of the sample
        seen[drawn] += 1
    assert abs(seen / 400 - 0.2).max() < 4 * (0.2 * 0.8 / 400) ** 0.5


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: rows[:-1], "not the sample"),
        (lambda rows: [*rows, rows[0]], "not the sample"),
        (lambda rows: [rows[0] | {"record": "'=r59", "source": "run 2.json"}, *rows[1:]], "not the sample"),
        (lambda rows: [rows[0] | {"violation": ""}, *rows[1:]], "no answer"),
        (lambda rows: [rows[0] | {"violation": "perhaps"}, *rows[1:]], "no answer"),
        (lambda rows: [row | {"frame": "0" * 64} for row in rows], "drawn otherwise"),
        (lambda rows: [row | {"seed": "8"} for row in rows], "drawn otherwise"),
        (lambda rows: [{"record": row["record"]} for row in rows], "not an adjudication sheet"),
    ],
    ids=["row-dropped", "row-added", "row-changed", "blank", "perhaps", "frame", "seed", "columns"],
)
def test_a_sheet_that_is_not_the_draw_is_refused(sheet, spoil, message):
    rows = fill(sheet, lambda i, row: "yes")
    assert not any(row["record"] == "'=r59" for row in rows)
    write(sheet, spoil(rows))
    with pytest.raises(InputError, match=message):
        rates.read_sample(sheet, make_frame(), seed=7)


def test_suspicious_records_only_are_refused(tmp_path):
    frame = make_frame(60, 0)
    path = rates.draw_sample(frame, 12, tmp_path / "s.csv", seed=7)
    digest = fill(path, lambda i, row: "yes")[0]["frame"]
    names = [(f"'{r[0]}", r[1]) for r in frame[:12]]
    write(
        path,
        [
            {"row": i, "record": r, "source": s, "frame": digest, "seed": 7, "violation": "yes"}
            for i, (r, s) in enumerate(names)
        ],
    )
    with pytest.raises(InputError, match="not the sample"):
        rates.read_sample(path, frame, seed=7)


def test_another_frame_or_seed_is_refused(sheet):
    fill(sheet, lambda i, row: "no")
    with pytest.raises(InputError, match="frame: the sheet was drawn otherwise"):
        rates.read_sample(sheet, make_frame(unflagged=91), seed=7)
    with pytest.raises(InputError, match="seed: the sheet was drawn otherwise"):
        rates.read_sample(sheet, make_frame(), seed=9)


@pytest.mark.parametrize(
    ("m", "unflagged", "seed"), [(61, 0, 1), (1, 91, 1), (-1, 0, 1), (1.5, 0, 1), (1, 0, -1), (1, 0, None)]
)
def test_more_than_the_frame_holds_is_refused(tmp_path, m, unflagged, seed):
    with pytest.raises(InputError):
        rates.draw_sample(make_frame(), m, tmp_path / "s.csv", seed=seed, unflagged=unflagged)
