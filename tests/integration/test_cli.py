"""The command line over whole stores: refusals that leave no trace, exit codes, what a pipe gets.

Source: semantics 1.2, 13; format 2.4.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import resume_command, run
from tests.support.small_stores import (
    Objects,
    below,
    edit_root,
    leaf_columns,
    plain_store,
    windowed_store,
)
from tests.support.sweeping import read_tree
from typer.testing import CliRunner, Result

from sweep.cli import main
from sweep.errors import AccessError
from sweep.store.base import ObjectStore
from sweep.store.io import put_all
from sweep.store.open import open_store
from sweep.testing.stores import WRITES, Fault, FaultyStore

type Document = dict[str, Any]
type Edit = Callable[[Document], object]


@pytest.fixture(autouse=True)
def _logger() -> Iterator[None]:
    """The package's logger is the process's: put it back."""
    logger = logging.getLogger("sweep")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main.app, [*arguments])


def on_disk(folder: Path, objects: Objects) -> Path:
    put_all(open_store(folder), objects.items())
    return folder


def ladder(document: Document) -> list[Document]:
    entries: list[Document] = document["pyramid"]["overviews"]
    return entries


def _merge_level_alone(document: Document) -> None:
    """Only the leaf entry and a level of cells coarser than the shards are left."""
    document["pyramid"]["overviews"] = [ladder(document)[0], {"node": 0, "cells": [2]}]


MANIFESTS: dict[str, tuple[Edit | bytes | None, tuple[str, ...]]] = {
    "none": (None, ("morton_hive.json", "not a hive store root")),
    "truncated": (b'{"spec": "morton-hive/1", "pyr', ("morton_hive.json", "not JSON", "restore it")),
    "empty": (b"", ("morton_hive.json", "0 bytes")),
    "a list": (b"[]", ("morton_hive.json", "not a JSON object")),
    "no pyramid": (lambda d: d.pop("pyramid"), ("zagg-pyramid/2", "None", "zagg-pyramid/1")),
    "pyramid a text": (lambda d: d.update(pyramid="x"), ("zagg-pyramid/2", "None", "zagg-pyramid/1")),
    "no spec": (lambda d: d["pyramid"].pop("spec"), ("zagg-pyramid/2", "None")),
    "older spec": (
        lambda d: d["pyramid"].update(spec="zagg-pyramid/1"),
        ("'zagg-pyramid/2'", "found 'zagg-pyramid/1'", "families pass"),
    ),
    "no ladder": (
        lambda d: d["pyramid"].pop("overviews"),
        ("pyramid.overviews", "absent", "nothing to sweep"),
    ),
    "empty ladder": (lambda d: d["pyramid"].update(overviews=[]), ("pyramid.overviews", "nothing to sweep")),
    "ladder a text": (
        lambda d: d["pyramid"].update(overviews="x"),
        ("pyramid.overviews", "nothing to sweep"),
    ),
    "two members": (lambda d: ladder(d)[1].update(cells=[4, 3]), ("node 2", "2 members", "exactly one")),
    "no member": (lambda d: ladder(d)[1].update(cells=[]), ("node 2", "0 members", "exactly one")),
    "no node": (lambda d: ladder(d)[1].pop("node"), ("overviews[1]", "node")),
    "no shard order": (lambda d: d.pop("shard_order"), ("shard_order", "absent")),
    "no cell order": (lambda d: d.pop("cell_order"), ("cell_order", "absent")),
    "merge without a source": (_merge_level_alone, ("node 0", "[2]", "malformed declaration", "finer")),
    "unknown law": (
        lambda d: d["pyramid"]["overview"]["fields"]["count"].update(method="median"),
        ("count", "median", "sum"),
    ),
}


def edited(edit: Edit | bytes | None) -> Objects:
    objects = plain_store()
    if edit is None:
        del objects["morton_hive.json"]
    elif isinstance(edit, bytes):
        objects["morton_hive.json"] = edit
    else:
        document = json.loads(objects["morton_hive.json"])
        edit(document)
        objects["morton_hive.json"] = json.dumps(document, indent=1).encode()
    return objects


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_refused_manifest_is_named_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    edit, named = MANIFESTS[case]
    root = on_disk(tmp_path / "store", edited(edit))
    before = read_tree(root)
    result = invoke("local", str(root), "--scope", "all", "--run-id", "stage-x")
    assert result.exit_code == 2
    for words in named:
        assert words in result.stderr
    assert str(root) in result.stderr
    assert result.stdout == ""
    assert read_tree(root) == before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), ("sweep local", "--scope", "'all'", "3111,-2")),
        (("--scope", ""), ("scope is empty", "'all'")),
        (("--scope", " , "), ("scope is empty", "'all'")),
        (("--scope", "71"), ("'71'",)),
        (("--scope", "1125,-3"), ("'1125'",)),
        (("--scope", "1652821063244972036"), ("'1652821063244972036'", "packed word")),
        (("--scope", "all", "--tuple-width", "0"), ("0",)),
        (("--scope", "all", "--target-nodes", "-1"), ("-1",)),
        (("--scope", "all", "--partitions", "6"), ("6",)),
        (("--scope", "all", "--partitions", "0"), ("0",)),
        (("--scope", "all", "--partitions", "8"), ("8", "4", "16")),
        (("--scope", "all", "--touch-policy", "often"), ("often", "auto", "always", "never")),
        (("--scope", "all", "--lease-ttl", "2"), ("ttl", "2", "3")),
        (("--scope", "all", "--run-id", ""), ("run id",)),
        (("--scope", "all", "--families", "x"), ("families are not offered: x",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_refused_request_is_named_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    root = on_disk(tmp_path / "store", plain_store())
    before = read_tree(root)
    result = invoke("local", str(root), *arguments)
    assert result.exit_code == 2, result.stderr
    for words in named:
        assert words in _plain(result.stderr)
    assert read_tree(root) == before


def _plain(text: str) -> str:
    """Without colours, frames and line breaks of a usage message."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("ftp://host/store", ("'ftp'", "s3://bucket/prefix")),
        ("", ("empty", "s3://bucket/prefix")),
        ("s3://", ("s3://",)),
        ("file://host/store", ("file:///folder",)),
        ("memory://nobody", ("morton_hive.json", "not a hive store root")),
    ],
)
def test_an_address_that_is_none(address: str, named: tuple[str, ...]) -> None:
    result = invoke("local", address, "--scope", "all")
    assert result.exit_code == 2, result.stderr
    for words in named:
        assert words in result.stderr


def test_a_file_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(b"x")
    result = invoke("local", str(path), "--scope", "all")
    assert result.exit_code == 2
    assert f"{path} is a file" in result.stderr


def test_no_leaves_is_one_line_and_no_trace(tmp_path: Path) -> None:
    objects = {key: data for key, data in plain_store().items() if not key.startswith("stats_")}
    root = on_disk(tmp_path / "store", objects)
    for more in ((), ("--strict",)):
        result = invoke("local", str(root), "--scope", "all", *more)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.count("\n") == 1
        assert read_tree(root) == objects


def test_a_torn_run_record_is_named_and_the_others_count(tmp_path: Path) -> None:
    objects = plain_store()
    objects["stats_20300101T000000Z_torn.parquet"] = b"PAR1"
    root = on_disk(tmp_path / "store", objects)
    result = invoke("local", str(root), "--scope", "all", "--json")
    assert result.exit_code == 1
    assert "stats_20300101T000000Z_torn.parquet" in result.stderr
    assert json.loads(result.stdout)["n_leaves"] == 4


def test_a_scope_sweeps_what_is_above_and_below_it(tmp_path: Path) -> None:
    root = on_disk(tmp_path / "store", plain_store())
    leaves = leaf_columns(plain_store())
    base = "".join(leaves[0].split("/")[:-1])
    result = invoke("local", str(root), "--scope", base, "--tuple-width", "1", "--quiet")
    assert result.exit_code == 0
    swept = {path.parent.relative_to(root).as_posix() for path in root.glob("**/all.zarr")}
    parts = leaves[0].split("/")[:-2]
    assert swept == {"/".join(parts[:length]) for length in range(1, len(parts) + 1)}


def test_a_foreign_stamp_is_five(tmp_path: Path) -> None:
    objects = plain_store()
    leaf = leaf_columns(objects)[0]
    edit_root(objects, leaf, run_id="stage-theirs", written_at="2099-01-01T00:00:00+00:00")
    root = on_disk(tmp_path / "store", objects)
    result = invoke("local", str(root), "--scope", "all", "--quiet", "--run-id", "stage-ours")
    assert result.exit_code == 5
    for named in (leaf, "stage-theirs", "2099-01-01T00:00:00+00:00"):
        assert named in result.stderr
    assert json.loads((root / "sweep.lease.json").read_bytes())["run_id"] == "stage-ours"


def test_a_store_that_cannot_be_written_is_six(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = on_disk(tmp_path / "store", plain_store())

    def opened(address: str, *_: object) -> ObjectStore:
        full = AccessError(f"cannot write {address}/x: the disk is full: free some space", kind="store-full")
        return FaultyStore(
            open_store(address),
            lambda number, *_: Fault(before=full) if number > 40 else None,
            methods=WRITES,
        )

    with monkeypatch.context() as patched:
        patched.setattr(main, "open_store", opened)
        result = invoke("local", str(root), "--scope", "all", "--quiet")
    assert result.exit_code == 6
    assert "the disk is full: free some space" in result.stderr
    healed = invoke(*resume_command(result.stderr), "--quiet")
    assert healed.exit_code == 0
    assert not (root / "sweep.lease.json").exists()


def test_the_command_to_resume_repeats_what_was_asked(tmp_path: Path) -> None:
    objects = plain_store()
    edit_root(objects, leaf_columns(objects)[0], run_id="x", written_at="2099-01-01T00:00:00+00:00")
    root = on_disk(tmp_path / "a store", objects)
    asked = {
        "--scope": "all",
        "--tuple-width": "2",
        "--lease-ttl": "60",
        "--partitions": "4",
        "--touch-policy": "never",
        "--endpoint": "http://127.0.0.1:9",
        "--region": "eu-west-3",
    }
    result = invoke("local", str(root), *(word for pair in asked.items() for word in pair), "--strict", "-q")
    assert result.exit_code == 5
    command = resume_command(result.stderr)
    assert command[:2] == ["local", str(root)]
    for option, value in asked.items():
        assert command[command.index(option) + 1] == value
    assert "--strict" in command
    assert len(command) == 2 + 2 * len(asked) + 1 + 2


def test_a_pipe_gets_plain_text(tmp_path: Path) -> None:
    """A process of its own: no control characters and no colours, whatever the terminal would be."""
    root = on_disk(tmp_path / "store", windowed_store())
    env = {"FORCE_COLOR": "", "TERM": "xterm-256color", "COLUMNS": "40"}
    lines = run("local", str(root), "--scope", "all", env=env)
    assert lines.code == 0
    for text in (lines.out, lines.err):
        assert text
        assert all(char.isprintable() or char == "\n" for char in text)
    assert lines.err.startswith("run stage-")


def test_strict_fails_on_under_coverage_alone(tmp_path: Path) -> None:
    objects = plain_store()
    gone = below(objects, leaf_columns(objects)[1])
    whole = on_disk(tmp_path / "whole", objects)
    part = on_disk(tmp_path / "part", {key: data for key, data in objects.items() if key not in gone})
    assert invoke("local", str(whole), "--scope", "all", "--strict", "--quiet").exit_code == 0
    result = invoke("local", str(part), "--scope", "all", "--strict", "--quiet")
    assert result.exit_code == 1
    assert "under-covered" in result.stdout
