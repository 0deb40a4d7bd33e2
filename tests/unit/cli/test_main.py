"""``sweep local`` and ``sweep unlock`` on small stores: what is printed, and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.small_stores import Objects, below, leaf_columns, plain_store, windowed_store
from typer.testing import CliRunner, Result

from sweep.cli.main import app
from sweep.store.base import ObjectStore
from sweep.store.io import put_all
from sweep.store.open import open_store


def run(*args: str) -> Result:
    return CliRunner().invoke(app, [*args])


def on_disk(folder: Path, objects: Objects | None = None) -> ObjectStore:
    store = open_store(folder)
    put_all(store, (objects or plain_store()).items())
    return store


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_sweep_is_said_in_plain_lines(tmp_path: Path) -> None:
    on_disk(tmp_path)
    result = run("local", str(tmp_path), "--scope", "all", "--run-id", "stage-mine")
    assert result.exit_code == 0
    assert lines(result.stderr)[0] == "run stage-mine: 4 leaves, 1 tuples"
    assert lines(result.stderr)[1].startswith("orders 2-0: ")
    (line,) = lines(result.stdout)
    assert line.startswith(f"swept {tmp_path}: ")
    assert " 0 failed" in line
    again = run("local", str(tmp_path), "--scope", "all", "--quiet")
    assert again.exit_code == 0
    assert again.stderr == ""
    assert ": 0 overviews and 0 stage columns written" in again.stdout


def test_json_is_the_record_alone(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    result = run("local", str(tmp_path), "--scope", "all", "--json", "--tuple-width", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    raw = store.get(found.pop("record"))
    assert raw is not None
    assert json.loads(raw) == found
    assert found["tuple_width"] == 2


def test_without_scope(tmp_path: Path) -> None:
    on_disk(tmp_path)
    result = run("local", str(tmp_path))
    assert result.exit_code == 2
    assert "--scope" in result.stderr
    assert "'all'" in result.stderr
    assert not list(tmp_path.glob("sweep*"))


@pytest.mark.parametrize(
    "args",
    [
        ("--scope", "1x"),
        ("--scope", "all", "--partitions", "3"),
        ("--scope", "all", "--touch-policy", "sometimes"),
        ("--scope", "all", "--tuple-width", "zero"),
        ("--scope", "all", "--lease-ttl", "0"),
        ("--scope", "all", "--no-such-option"),
    ],
)
def test_refusals(tmp_path: Path, args: tuple[str, ...]) -> None:
    on_disk(tmp_path)
    result = run("local", str(tmp_path), *args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "go on" not in result.stderr
    assert not list(tmp_path.glob("sweep*"))


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    result = run("local", str(tmp_path), "--scope", "all")
    assert result.exit_code == 2
    assert "not a hive store root" in result.stderr


def test_no_leaves(tmp_path: Path) -> None:
    on_disk(tmp_path, {key: data for key, data in plain_store().items() if not key.startswith("stats_")})
    result = run("local", str(tmp_path), "--scope", "all")
    assert result.exit_code == 0
    assert lines(result.stdout) == [
        f"no completed leaves found in the run records of {tmp_path}; nothing to sweep"
    ]


def _held(store: ObjectStore, **changes: Any) -> None:
    lease = {
        "spec": "zagg-sweep-lease/1",
        "run_id": "stage-theirs",
        "scope": None,
        "acquired_at": "2099-01-01T00:00:00+00:00",
        "heartbeat_at": "2099-01-01T00:00:00+00:00",
        "ttl_s": 900,
    }
    store.put("sweep.lease.json", json.dumps(lease | changes).encode())


def test_a_store_that_is_held_and_how_it_is_freed(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    _held(store)
    result = run("local", str(tmp_path), "--scope", "all")
    assert result.exit_code == 3
    assert "stage-theirs" in result.stderr
    assert "2099-01-01T00:00:00+00:00" in result.stderr
    wrong = run("unlock", str(tmp_path), "--run-id", "stage-mine")
    assert wrong.exit_code == 3
    assert store.get("sweep.lease.json") is not None
    freed = run("unlock", str(tmp_path), "--run-id", "stage-theirs")
    assert freed.exit_code == 0
    assert "held by run stage-theirs" in lines(freed.stdout)[0]
    assert "ttl 900 s" in lines(freed.stdout)[0]
    assert lines(freed.stdout)[1] == "freed: the lease of run stage-theirs is gone"
    assert store.get("sweep.lease.json") is None
    nothing = run("unlock", str(tmp_path), "--run-id", "stage-theirs")
    assert (nothing.exit_code, lines(nothing.stdout)) == (
        0,
        [f"{tmp_path} is not held by any sweep; nothing to unlock"],
    )


def test_unreadable_sources_are_named_and_the_code_says_so(tmp_path: Path) -> None:
    objects = plain_store()
    column = leaf_columns(objects)[1]
    objects[f"{column}/zarr.json"] = b"{"
    on_disk(tmp_path, objects)
    result = run("local", str(tmp_path), "--scope", "all", "--quiet")
    assert result.exit_code == 1
    assert lines(result.stderr)[0].startswith(f"warning: {column}: root document is not JSON")
    assert lines(result.stdout)[-1] == "1 failed; mend what the warnings name and sweep again"


def test_under_coverage_is_normal_and_an_error_only_where_asked(tmp_path: Path) -> None:
    objects = windowed_store()
    column = leaf_columns(objects)[1]
    for key in below(objects, column):
        del objects[key]
    on_disk(tmp_path / "a", objects)
    on_disk(tmp_path / "b", objects)
    plain = run("local", str(tmp_path / "a"), "--scope", "all", "--quiet")
    strict = run("local", str(tmp_path / "b"), "--scope", "all", "--quiet", "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    assert "overviews are under-covered" in plain.stdout
    again = run("local", str(tmp_path / "b"), "--scope", "all", "--quiet", "--strict")
    assert again.exit_code == 1
    assert lines(again.stdout)[-1] == lines(strict.stdout)[-1]


def test_partitions_are_not_under_coverage(tmp_path: Path) -> None:
    on_disk(tmp_path)
    result = run("local", str(tmp_path), "--scope", "all", "--quiet", "--strict", "--partitions", "4")
    assert (result.exit_code, "under-covered" in result.stdout) == (0, False)


def test_a_scope_without_leaves_is_said(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    result = run("local", str(tmp_path), "--scope=-5", "--quiet")
    assert (result.exit_code, lines(result.stdout)) == (
        0,
        [f"no leaf of {tmp_path} lies under -5; nothing was swept"],
    )
    assert store.get("sweep.lease.json") is None


def test_unlock_refuses_what_is_no_store(tmp_path: Path) -> None:
    result = run("unlock", str(tmp_path / "nowhere"), "--run-id", "stage-mine")
    assert result.exit_code == 2
    assert "morton_hive.json" in result.stderr


def test_a_torn_chunk_ends_an_unwindowed_run_and_says_how_to_go_on(tmp_path: Path) -> None:
    objects = plain_store()
    column = leaf_columns(objects)[0]
    key = next(key for key in objects if key.startswith(column) and "/count/c/" in key)
    good, objects[key] = objects[key], b"torn"
    store = on_disk(tmp_path, objects)
    result = run("local", str(tmp_path), "--scope", "all", "--quiet", "--run-id", "stage-mine")
    assert result.exit_code == 1
    assert column in lines(result.stderr)[0]
    command = f"sweep local {tmp_path} --scope all --run-id stage-mine"
    assert lines(result.stderr)[-1].endswith(command)
    assert store.get("sweep.lease.json") is not None
    store.put(key, good)
    healed = run(*command.split()[1:], "--quiet")
    assert healed.exit_code == 0
    assert store.get("sweep.lease.json") is None


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith("sweep ")
    shown = run("--help")
    assert shown.exit_code == 0
    assert {"local", "unlock", "info", "show"} <= set(shown.stdout.split())


def test_a_torn_run_record_is_named_and_the_code_says_so(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    store.put("stats_torn.parquet", b"PAR1 no table PAR1")
    result = run("local", str(tmp_path), "--scope", "all", "--quiet")
    assert result.exit_code == 1
    assert lines(result.stderr)[0].startswith("warning: stats_torn.parquet: ")


@pytest.mark.parametrize(
    ("option", "named"), [(["--families", "stats,moc"], "stats, moc"), (["--icechunk"], "Icechunk")]
)
def test_companions_of_other_programs_are_refused_by_name(
    tmp_path: Path, option: list[str], named: str
) -> None:
    store = on_disk(tmp_path)
    result = run("local", str(tmp_path), "--scope", "all", *option)
    assert result.exit_code == 2
    assert named in result.stderr
    assert "not offered" in result.stderr
    assert store.get("sweep.lease.json") is None


def test_an_answer_that_standard_output_does_not_take_changes_no_code(tmp_path: Path) -> None:
    on_disk(tmp_path)
    command = [sys.executable, "-m", "sweep", "local", str(tmp_path), "--scope", "all", "--quiet"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "does not take the answer" in done.stderr
    assert "Traceback" not in done.stderr


def test_info_prints_any_name_that_a_store_may_hold(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    manifest = json.loads(store.get("morton_hive.json") or b"")
    manifest["dataset"]["short_name"] = "odd \ud800 name"
    store.put("morton_hive.json", json.dumps(manifest).encode())
    result = run("info", str(tmp_path))
    assert result.exit_code == 0
    assert "odd \\ud800 name" in result.stdout


def test_a_reader_of_progress_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    command = [sys.executable, "-m", "sweep", "local", str(tmp_path), "--scope", "all"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait(60) == 0
    assert store.get("sweep.lease.json") is None
    assert any(info.key.startswith("sweep_stats_") for info in store.list_dir("").objects)
