"""Containers and `Log`: every packing of the same runs reads alike; damage is named, never skipped."""

from __future__ import annotations

import gzip
import io
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from itertools import islice
from pathlib import Path

import pytest
import zstandard

from litmuskit import readers
from litmuskit.errors import InputError, LogFormatError
from litmuskit.readers import Log, read_log
from litmuskit.readers.container import Member, walk_members
from litmuskit.readers.jsonl import write_log
from litmuskit.records import Episode, Failure, Harness, Label, Source, Transcript

TREE = {
    "b/run.jsonl": b'{"x":1}\n' * 50,
    "a.json": b"{}",
    "b/deep/z.eval": b"PK\x03\x04 not opened",
    "b/deep/é ü.json": b"[1]",
    "skip/notes.md": b"no log",
    "b/table.csv": b"1,2",
    ".hidden/x.json": b"{}",
    "b/.ipynb_checkpoints/run.json": b"{}",
}
WANTED = ["a.json", "b/deep/z.eval", "b/deep/é ü.json", "b/run.jsonl"]


def tar_bytes(tree: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in sorted(tree.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def pack(tree: dict[str, bytes], form: str, home: Path) -> Path:
    path = home / f"runs{form}"
    if form == "":
        for name, content in tree.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    elif form == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in tree.items():
                archive.writestr(name, content)
    else:
        squeeze = {
            ".tar": bytes,
            ".tar.gz": gzip.compress,
            ".tgz": gzip.compress,
            ".tar.zst": zstandard.ZstdCompressor().compress,
        }
        path.write_bytes(squeeze[form](tar_bytes(tree)))
    return path


FORMS = ("", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")
ARCHIVES = FORMS[1:]


def list_members(path: Path) -> tuple[list[Member], list[Failure]]:
    found = list(walk_members(path))
    return [m for m in found if isinstance(m, Member)], [f for f in found if isinstance(f, Failure)]


@pytest.mark.parametrize("form", FORMS)
def test_every_packing_holds_the_same_members(form, tmp_path):
    members, failures = list_members(pack(TREE, form, tmp_path))
    assert [m.name for m in members] == WANTED
    assert {m.name: m.read() for m in members} == {name: TREE[name] for name in WANTED}
    assert {m.name: m.peek(3) for m in members} == {name: TREE[name][:3] for name in WANTED}
    assert failures == []
    assert all((m.path is None) == (m.source.member is not None) == bool(form) for m in members)


@pytest.mark.parametrize("squeeze", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gz", "zst"])
def test_a_compressed_file_is_its_content_under_its_own_name(squeeze, tmp_path):
    suffix = ".gz" if squeeze is gzip.compress else ".zst"
    path = tmp_path / f"run.jsonl{suffix}"
    path.write_bytes(squeeze(b"line\n" * 100_000))
    ((member,), failures) = list_members(path)
    assert (member.name, member.read(), failures) == ("run.jsonl", b"line\n" * 100_000, [])
    with member.open() as stream:
        assert stream.readline() == b"line\n"


def test_compressed_members_of_archives_are_inflated(tmp_path):
    for form in ARCHIVES:
        ((member,), _) = list_members(pack({"x/run.json.gz": gzip.compress(b"{}")}, form, tmp_path))
        assert (member.name, member.read()) == ("x/run.json", b"{}")


def test_a_zip_that_is_an_inspect_log_is_a_leaf_whatever_its_name(tmp_path):
    path = pack({"header.json": b"{}", "samples/1.json": b"{}"}, ".zip", tmp_path)
    ((member,), _) = list_members(path)
    assert (member.name, member.path) == ("runs.zip", path)


def test_a_named_file_may_have_any_suffix(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"x")
    assert [m.name for m in list_members(path)[0]] == ["log.txt"]


@pytest.mark.parametrize("form", ARCHIVES)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.99])
def test_a_cut_archive_never_reads_as_a_shorter_one(form, share, tmp_path):
    tree = {f"r{i:03}.json": os.urandom(700) for i in range(40)}
    whole = pack(tree, form, tmp_path).read_bytes()
    cut = tmp_path / f"cut{form}"
    end = whole.rstrip(b"\0") if form == ".tar" else whole
    cut.write_bytes(whole[: int(len(end) * share)])
    members, failures = list_members(cut)
    bad = [m for m in members if m.name.startswith("cut")]  # too short to be known as an archive: left to the readers
    assert failures or bad
    assert all(str(cut) in str(f.error) for f in failures)


def test_a_tar_cut_between_two_members_is_cut(tmp_path):
    path = tmp_path / "runs.tar"
    path.write_bytes(tar_bytes({"a.json": b"{}", "b.json": b"{}"})[:1024])
    members, failures = list_members(path)
    assert [m.name for m in members] == ["a.json"]
    assert "archive is cut" in str(failures[0].error)


@pytest.mark.parametrize("form", ARCHIVES)
def test_flipped_bytes_are_named_not_believed(form, tmp_path):
    path = pack({"a.json": os.urandom(5000)}, form, tmp_path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 if form != ".tar" else 100] ^= 0xFF
    path.write_bytes(whole)
    members, failures = list_members(path)
    assert form == ".tar.zst" or failures or members[0].name != "a.json"  # zstd frames carry no checksum by default


def test_a_member_of_an_unknown_method_fails_alone(tmp_path):
    path = pack({"a.json": b"{}", "b.json": b"{}"}, ".zip", tmp_path)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("a.json").header_offset
    central = raw.index(b"PK\x01\x02")
    patched = bytearray(raw)
    patched[start + 8 : start + 10] = patched[central + 10 : central + 12] = (99).to_bytes(2, "little")
    path.write_bytes(patched)
    members, failures = list_members(path)
    assert [m.name for m in members] == ["b.json"]
    assert failures[0].source.member == "a.json"


@pytest.mark.parametrize("form", [".json.gz", ".tar.gz", ".tar.zst", ".zip"])
def test_a_bomb_is_refused_in_bounded_memory(form, tmp_path):
    size = 120 << 20
    path = tmp_path / f"bomb{form}"
    if form == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.json", "w") as out:
            for _ in range(120):
                out.write(bytes(1 << 20))
    else:
        opener = zstandard.open if form == ".tar.zst" else gzip.open
        with opener(path, "wb") as out:
            if ".tar" in form:
                entry = tarfile.TarInfo("a.json")
                entry.size = size
                out.write(entry.tobuf())
            for _ in range(120):
                out.write(bytes(1 << 20))
            out.write(bytes(10240))
    script = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from litmuskit.readers.container import walk_members\n"
        "from litmuskit.errors import LogFormatError\n"
        "try:\n"
        "    found = [f.error if hasattr(f, 'error') else f.read() for f in walk_members(sys.argv[1])]\n"
        "except LogFormatError as error:\n"
        "    found = [error]\n"
        "print(found[-1])\n"
        "status = Path('/proc/self/status').read_text()\n"  # ru_maxrss would count the parent's memory too, from before exec
        "print(int(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1]) // 1024)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    message, peak = run.stdout.splitlines()
    assert "inflates as no log does" in message
    assert int(peak) < 260


@pytest.mark.parametrize("form", [".tar.gz", ".zip"])
def test_names_are_only_names(form, tmp_path):
    home = tmp_path / "in"
    home.mkdir()
    path = pack({"../../out.json": b"{}", "/lk_absolute.json": b"{}"}, form, home)
    members, _ = list_members(path)
    assert sorted(m.read() for m in members) == [b"{}", b"{}"]
    assert not Path("/lk_absolute.json").exists()
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [path.name]


def test_an_archive_inside_an_archive_is_said_to_be_unread(tmp_path):
    path = pack({"a.json": b"{}", "more.zip": b"PK", "old.tar.gz": b"x"}, ".tar.gz", tmp_path)
    members, failures = list_members(path)
    assert [m.name for m in members] == ["a.json"]
    assert [f.source.member for f in failures] == ["more.zip", "old.tar.gz"]
    assert "inside an archive" in str(failures[0].error)


def test_a_circle_of_links_is_named_and_the_rest_is_read(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/a.json").write_bytes(b"{}")
    (tmp_path / "runs/up").symlink_to(tmp_path / "runs")
    members, failures = list_members(tmp_path / "runs")
    assert [m.name for m in members] == ["a.json"]
    assert "leads back" in str(failures[0].error)
    assert str(tmp_path / "runs/up") in str(failures[0].error)


@pytest.mark.parametrize("target", ["nowhere.json", "self.json"])
def test_a_link_to_nothing_is_named(target, tmp_path):
    (tmp_path / "self.json").symlink_to(tmp_path / target)
    for path in (tmp_path, tmp_path / "self.json"):
        (failure,) = list_members(path)[1]
        assert "self.json: cannot be read" in str(failure.error)


def test_a_pipe_is_refused_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (failure,) = list_members(tmp_path)[1]
    assert "no regular file" in str(failure.error)


def test_links_to_folders_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.json").write_bytes(b"{}")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/link").symlink_to(tmp_path / "real")
    assert [m.name for m in list_members(tmp_path / "runs")[0]] == ["link/a.json"]


@pytest.fixture
def ordinary_user():
    """Root reads everything: be nobody for a while, in a folder that nobody owns."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    (home / "runs").mkdir()
    (home / "runs/closed.json").write_bytes(b"{}")
    (home / "runs/closed.json").chmod(0)
    (home / "runs/shut").mkdir(mode=0)
    (home / "runs/listed").mkdir()
    (home / "runs/listed/x.json").write_bytes(b"{}")
    (home / "runs/listed").chmod(0o444)
    (home / "runs/open.json").write_bytes(b"{}")
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield home / "runs"
    if before == 0:
        os.seteuid(0)
    (home / "runs/shut").chmod(0o755)
    (home / "runs/listed").chmod(0o755)
    for path in sorted(home.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    home.rmdir()


def test_what_may_not_be_read_is_named(ordinary_user):
    members, failures = list_members(ordinary_user)
    assert [f.source.path for f in failures] == [str(ordinary_user / "listed/x.json"), str(ordinary_user / "shut")]
    (failure,) = walk_members(ordinary_user / "listed/x.json")
    assert "Permission denied" in str(failure.error)
    closed = next(m for m in members if m.name == "closed.json")
    for read in (closed.read, closed.peek, closed.open):
        with pytest.raises(LogFormatError, match=r"closed\.json: cannot be read.*Permission denied"):
            read()


def test_a_missing_path_is_named_before_anything_is_read(tmp_path):
    with pytest.raises(LogFormatError, match="no such file or folder"):
        read_log(tmp_path / "none")
    (failure,) = walk_members(tmp_path / "none")
    assert "No such file" in str(failure.error)
    with pytest.raises(InputError, match="at least one path"):
        read_log([])


@pytest.mark.parametrize(
    ("names", "said"), [((), "nothing"), (("a.csv", "b.csv", "c.png", "README"), "2 .csv, 1 .png, 1 without suffix")]
)
def test_a_folder_without_logs_says_what_it_holds(names, said, tmp_path):
    for name in names:
        (tmp_path / name).write_text("x")
    (failure,) = walk_members(tmp_path)
    for part in said.split(", "):
        assert part in str(failure.error)


def test_an_empty_file_is_an_error_of_its_own(tmp_path):
    (tmp_path / "empty.json").touch()
    with pytest.raises(LogFormatError, match=r"empty\.json: file is empty"):
        list(read_log(tmp_path))


def write_runs(home: Path, count: int = 5) -> None:
    harness = Harness(name="h")
    for i in range(count):
        episode = Episode(
            record=f"r{i}",
            source=Source(path="x"),
            instance="i",
            transcript=Transcript(messages=(), calls=()),
            labels=(Label(scorer="s", violation=i % 2 == 0, value=i),),
            harness=harness,
        )
        write_log(home / f"{i}.jsonl", [episode])


def test_the_first_failure_is_raised_unless_the_caller_keeps_going(tmp_path):
    write_runs(tmp_path)
    (tmp_path / "1.jsonl").write_bytes(b"")
    (tmp_path / "2.json").write_text("{}")
    with pytest.raises(LogFormatError, match=r"1\.jsonl"):
        list(read_log(tmp_path))
    log = read_log(tmp_path, keep_going=True)
    assert [e.record for e in log] == ["r0", "r2", "r3", "r4"]
    assert [Path(f.source.path).name for f in log.failures] == ["1.jsonl", "2.json"]
    assert [e.record for e in log] == ["r0", "r2", "r3", "r4"]  # read afresh
    assert len(read_log(tmp_path, keep_going=True).failures) == 2  # without a reading before


def test_a_path_that_holds_nothing_does_not_stop_the_others(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "bare").mkdir()
    write_runs(tmp_path / "good", 2)
    paths = [tmp_path / "bare", tmp_path / "none", tmp_path / "good"]
    log = read_log(paths, keep_going=True)
    assert [e.record for e in log] == ["r0", "r1"]
    assert [f.source.path for f in log.failures] == [str(paths[0]), str(paths[1])]
    with pytest.raises(LogFormatError, match="no such file"):
        read_log(paths)
    with pytest.raises(LogFormatError, match="no such file"):  # nothing at all is no log to go on with
        read_log([paths[1]], keep_going=True)


def test_an_unknown_format_names_what_was_tried(tmp_path):
    (tmp_path / "x.json").write_text('{"hello": 1}')
    with pytest.raises(LogFormatError) as caught:
        list(read_log(tmp_path))
    for part in ("x.json", "unknown format", *readers.FORMATS, "hello"):
        assert part in str(caught.value)


def test_reading_streams(tmp_path):
    write_runs(tmp_path)
    (tmp_path / "4.jsonl").write_bytes(b"broken")
    assert next(iter(read_log(tmp_path))).record == "r0"


def test_workers_change_nothing_but_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BATCH", 3)
    write_runs(tmp_path, 20)
    (tmp_path / "12.jsonl").write_bytes(b"")
    one, two = (read_log(tmp_path, keep_going=True, workers=n) for n in (1, 2))
    assert list(one) == list(two)
    assert [str(f.error) for f in one.failures] == [str(f.error) for f in two.failures]
    with pytest.raises(InputError, match="at least 1"):
        read_log(tmp_path, workers=0)


def test_a_record_read_twice_from_one_place_is_a_failure(tmp_path):
    write_runs(tmp_path, 2)
    log = read_log([tmp_path / "0.jsonl", tmp_path / "0.jsonl"], keep_going=True)
    assert [e.record for e in log] == ["r0"]
    assert "before" in str(log.failures[0].error)


def test_what_the_caller_said_stays_on_the_log(tmp_path):
    write_runs(tmp_path, 1)
    log = read_log(tmp_path, violation="s=9", match_key="state")
    assert (log.rules.violation, log.rules.match_key) == (("s=9",), "state")
    assert [(e.labels[0].violation, e.labels[0].match_key) for e in log] == [(False, "state")]
    assert [e.labels[0].violation for e in read_log(tmp_path, violation=["s=0"])] == [True]


def test_a_log_shows_itself(tmp_path):
    write_runs(tmp_path, 3)
    frame = read_log(tmp_path).to_frame()
    assert list(frame["record"]) == ["r0", "r1", "r2"]
    assert list(frame["flagged"]) == [True, False, True]
    assert isinstance(read_log(tmp_path), Log)
    assert len(read_log(tmp_path).to_table(2)) == 2
    assert "the first 2 episodes" in read_log(tmp_path).to_table(2).caption
    assert "<script" not in read_log(tmp_path)._repr_html_()


def test_quiet_when_stderr_is_no_terminal(tmp_path, capfd):
    write_runs(tmp_path, 3)
    list(read_log(tmp_path))
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    write_runs(tmp_path, 3)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert len(list(read_log(tmp_path))) == 3


def test_the_corpus_streams(shared):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    walk = walk_members(shared / "agentdojo/runs_full.tar.zst")
    found = [(m.name, m.read()) for m in islice(walk, 2_000) if isinstance(m, Member)]
    walk.close()
    assert len({name for name, _ in found}) == 2_000
    assert all(content[:1] == b"{" for _, content in found)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 250


@pytest.mark.parametrize("squeeze", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gz", "zst"])
def test_a_cut_compressed_log_is_never_a_shorter_one(squeeze, tmp_path):
    write_runs(tmp_path, 1)
    line = (tmp_path / "0.jsonl").read_bytes()
    whole = squeeze(line)
    path = tmp_path / f"packed.jsonl.{'gz' if squeeze is gzip.compress else 'zst'}"
    path.write_bytes(whole)
    assert [e.record for e in read_log(path)] == ["r0"]
    for size in range(1, len(whole) - 1, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(LogFormatError, match=r"packed\.jsonl"):
            list(read_log(path))
