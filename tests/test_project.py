"""The project's own files agree with each other and with the habits they promise."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from nbval.plugin import get_sanitize_patterns
from repo_review.processor import process as review

import litmuskit
from litmuskit.demo import run_demo

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOP_LEVEL = {
    *("pyproject.toml", "litmuskit", "notebooks", "tests", "environment.yml", "README.md", "benchmarks"),
    *("LICENSE", "CITATION.cff", "CHANGELOG.md", ".ci", ".gitignore", ".gitattributes"),
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_shell_blocks() -> list[list[str]]:
    """The command lines of each shell block of the README."""
    blocks = re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```", read("README.md"), re.DOTALL | re.MULTILINE)
    return [[line for line in block.splitlines() if line.strip() and not line.startswith("#")] for block in blocks]


def test_environment_and_pyproject_agree():
    environment = yaml.safe_load(read("environment.yml"))
    packages = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (by_pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    wanted = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["notebooks"]
    assert sorted(packages + by_pip) == sorted(["pip", "-e .", f"python{PROJECT['project']['requires-python']}", *wanted])
    assert environment["channels"] == ["conda-forge"]


def test_versions_agree():
    citation = yaml.safe_load(read("CITATION.cff"))
    top = re.search(r"^## \[(.+?)\] - (\S+)$", read("CHANGELOG.md"), re.MULTILINE)
    assert top is not None
    assert citation["version"] == litmuskit.__version__ == PROJECT["project"]["version"] == top[1]
    assert str(citation["date-released"]) == top[2]
    assert citation["license"] == PROJECT["project"]["license"]


def test_every_release_opens_with_the_numbers_that_change():
    releases = re.split(r"^## .*$", read("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert releases
    assert all(release.lstrip().startswith("### Numbers that change") for release in releases)


def test_readme_opens_with_one_command_line_each():
    blocks = read_shell_blocks()
    assert len(blocks) >= 2
    assert [len(block) for block in blocks[:2]] == [1, 1]
    for (command,) in blocks[:2]:
        words = shlex.split(command)
        assert words[:3] == ["python3", "-m", "venv"]
        assert "sudo" not in words
    assert "litmuskit demo" in blocks[0][0]
    assert "pytest" in blocks[1][0]


def test_ci_runs_the_test_command_of_the_readme():
    printed = subprocess.run([ROOT / ".ci/run", "--print"], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == read_shell_blocks()[1][0]


def test_readme_examples_hold(tmp_path, monkeypatch):
    """Doctest of the README beside a fresh demonstration; a missing blank line would make the fence part of the output."""
    monkeypatch.chdir(tmp_path)
    run_demo("litmuskit-demo")
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=options, encoding="utf-8")
    assert (failed, tried) == (0, 5)


def test_readme_shows_a_figure_that_is_there():
    figures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", read("README.md"))
    assert figures
    assert all(words and (ROOT / path).is_file() for words, path in figures)


def record_as_the_readme_does(home: Path, monkeypatch, **changes: object) -> Path:
    """The README's recording loop, run as it stands there around a scripted model and a mutating tool."""
    home.mkdir()
    monkeypatch.chdir(home)
    (block,) = re.findall(r"^```python\n(import litmuskit as lk\n[^`]*Recorder[^`]*)^```", read("README.md"), re.MULTILINE)
    assert len([line for line in block.splitlines() if line.strip()]) <= 20
    call = {"id": "c0", "name": "read", "arguments": {"path": "a"}}
    replies = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "assistant", "content": "done"}]
    names = {
        "SWAP_DIGEST": "sha256:" + "0" * 64,
        "NO_CAP_DIGEST": "sha256:" + "1" * 64,
        "SOURCE": {"type": "git", "commit": "abc", "dirty": False},
        "SYSTEM": "You read files.",
        "TOOLS": [{"name": "read", "parameters": {}}],
        "cases": [SimpleNamespace(id="case-1", payloads={"a": "pay me"}, prompt="Read a.")],
        "ask_model": lambda history: replies[sum(message["role"] == "assistant" for message in history)],
        "run_tool": lambda _: "pay you",
        "mutate": lambda raw: raw.replace("you", "me"),
        "judge": lambda _: True,
    }
    exec(block, names | changes)  # noqa: S102 - the README's own example
    return home / "run.jsonl"


def test_a_harness_writes_its_log_in_twenty_lines(tmp_path, monkeypatch):
    (episode,) = litmuskit.read_log(record_as_the_readme_does(tmp_path / "run", monkeypatch))
    first, second = episode.transcript.calls
    assert (first.observations[0].raw, first.observations[0].delivered) == ("pay you", "pay me")
    assert [message.text for message in episode.transcript.delivered(2)] == ["Read a.", "", "pay me"]
    assert second.proposed.content == "done"
    assert [(event.kind, event.turn) for event in episode.events] == [("mutation", 1)]
    assert episode.flagged
    assert episode.transcript.unlogged == {"decode"}


def test_what_the_readme_records_can_be_published_and_another_policy_cannot(tmp_path, monkeypatch):
    log, reference = (litmuskit.read_log(record_as_the_readme_does(tmp_path / n, monkeypatch)) for n in ("run", "reference"))
    oracle = litmuskit.calibrate(reference, {"case-1": "comply"})
    audit = litmuskit.audit_log(log, oracle, preflight={"case-1": "yes"})
    assert audit.gate.verdict == "publishable", audit.gate
    assert audit.counts.counted == audit.counts.episodes == 1
    other = record_as_the_readme_does(tmp_path / "other", monkeypatch, NO_CAP_DIGEST="sha256:" + "2" * 64)
    stale = litmuskit.audit_log(litmuskit.read_log(other), oracle, preflight={"case-1": "yes"})
    assert "policy current" in repr(stale.gate)
    assert not stale.counts.counted


def test_top_level_is_fixed():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is not a clone")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split("/")[0] for line in tracked.splitlines()} <= TOP_LEVEL


@pytest.mark.filterwarnings("default")  # a warning of the reviewer's is no fault of the reviewed
def test_sp_repo_review_finds_nothing_unreasoned():
    ignored = PROJECT["tool"]["repo-review"]["ignore"]
    assert all(len(reason) > 20 for reason in ignored.values())
    results = review(ROOT).results
    assert len(results) > 30
    assert not {f"{result.name}: {result.description}" for result in results if result.result is False}


def read_notebook(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebook:
    def test_was_executed_in_order(self, path):
        """Strict nbval compares nothing in a cell without a count."""
        cells = [cell for cell in read_notebook(path)["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
        assert all("".join(cell["source"]).strip() for cell in cells)

    def test_shows_results_and_no_errors(self, path):
        kinds = [out["output_type"] for cell in read_notebook(path)["cells"] for out in cell.get("outputs", [])]
        assert "error" not in kinds
        assert {"execute_result", "stream"} & set(kinds)

    def test_is_clean(self, path):
        notebook = read_notebook(path)
        assert notebook["metadata"]["kernelspec"]["name"] == "python3"
        assert "widgets" not in notebook["metadata"]
        assert "version" not in notebook["metadata"].get("language_info", {})
        assert all("execution" not in cell["metadata"] for cell in notebook["cells"])
        views = [out for cell in notebook["cells"] for out in cell.get("outputs", []) if "widget-view" in json.dumps(out)]
        assert not views

    def test_is_portable_and_small(self, path):
        text = path.read_text(encoding="utf-8")
        assert len(text.encode()) < 300_000
        assert not re.findall(r"""(?:^|["'\s(=])/(?:home|root|tmp|work|usr|Users|opt|var)/""", text)
        assert not re.findall(r"[A-Z]:\\\\", text)

    def test_uses_no_output_widget_and_skips_no_comparison(self, path):
        """`interact` and `Output` hang or differ under the runners; a skipped comparison shows only versions."""
        cells = [cell for cell in read_notebook(path)["cells"] if cell["cell_type"] == "code"]
        source = "\n".join("".join(cell["source"]) for cell in cells)
        assert not re.findall(r"\binteract(?:ive|ive_output)?\(|\bOutput\(|@\w+\.capture|%%capture", source)
        assert not re.findall(r"NBVAL|nbval-skip|skip-execution", path.read_text(encoding="utf-8"))
        assert len(cells) <= 18


def test_package_uses_no_output_widget():
    for path in (ROOT / "litmuskit").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"\bwidgets\.(?:interact|interactive|Output|HTMLMath)\b|\bHTMLMath\b", text), path.name


def test_sanitizers_parse_and_leave_fingerprints_alone():
    """A pair with a blank or stripped line vanishes without an error, so they are counted."""
    text = read("notebooks/nbval-sanitize.cfg")
    patterns = get_sanitize_patterns(text)
    assert len(patterns) == text.count("regex:") == text.count("replace:") > 0
    for digest in ("3b" * 32, "sha256:" + "0f" * 32):
        assert all(re.sub(regex, replacement, digest) == digest for regex, replacement in patterns)


def test_no_tracked_file_names_a_machine():
    for path in sorted(ROOT.glob("litmuskit/**/*.py")) + [
        ROOT / name for name in ("README.md", "CHANGELOG.md", "pyproject.toml")
    ]:
        assert not re.findall(r"(?<![\w.])/(?:work|root|tmp/venv)\b", path.read_text(encoding="utf-8")), path.name
