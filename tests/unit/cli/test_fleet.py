"""``sweep fleet`` in this process on small stores: output, exit codes, resuming, and files of leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.compare import compare_stores
from tests.support.small_stores import below, leaf_columns, plain_store, windowed_store
from tests.support.sweeping import make_runtime, objects_in
from typer.testing import CliRunner, Result

from sweep.cli.fleet import read_leaves
from sweep.cli.main import app
from sweep.control.lease import Lease
from sweep.errors import AccessError, DeclarationError, LeaseLostError
from sweep.fleet import run as fleet_run
from sweep.fleet.inline import InlineTransport
from sweep.fleet.transport import Delivery, Envelope, Lost, Submission
from sweep.model.nodes import word_of
from sweep.store.base import ObjectStore
from sweep.store.io import put_all
from sweep.store.open import open_store
from sweep.system import SystemClock


def fleet(root: Path, *args: str, scope: str | None = "all") -> Result:
    given = [] if scope is None else ["--scope", scope]
    return CliRunner().invoke(app, ["fleet", str(root), "--transport", "inline", *given, *args])


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    found = open_store(tmp_path / "store")
    put_all(found, plain_store().items())
    return found


@pytest.fixture
def root(store: ObjectStore) -> Path:
    return Path(store.root)


def status_of(root: Path, run_id: str) -> Path:
    return root.parent / f"{root.name}.status" / f"run-{run_id}"


def test_a_run_is_said_in_plain_lines(root: Path) -> None:
    result = fleet(root, "--run-id", "stage-mine", "--tuple-width", "2")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"swept 4 leaves of {root}: ")
    assert ", 0 failed, 5 invokes (" in line
    assert (status_of(root, "stage-mine") / "finisher.json").exists()
    again = fleet(root, "--quiet", "--tuple-width", "2")
    assert (again.exit_code, again.stderr) == (0, "")
    assert ": 0 overviews and 0 stage columns written, " in again.stdout


def test_it_leaves_what_sweep_local_leaves(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put_all(open_store(tmp_path / name), windowed_store().items())
    assert fleet(tmp_path / "one", "--tuple-width", "2", "--max-nodes", "1").exit_code == 0
    local = ["local", str(tmp_path / "two"), "--scope", "all", "--tuple-width", "2"]
    assert CliRunner().invoke(app, local).exit_code == 0
    found = [
        line for line in compare_stores(tmp_path / "two", tmp_path / "one") if "sweep_stats_" not in line
    ]
    assert found == []


def test_json_is_the_summary_alone(root: Path) -> None:
    result = fleet(root, "--json", "--tuple-width", "2", "--pipeline-run-id", "pipe-1")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["tuple_width"], found["pipeline_run_id"], found["transport"]) == (2, "pipe-1", "inline")
    assert (found["finisher"]["landed"], found["skipped"]) == (True, None)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_dry_run(root: Path, store: ObjectStore, as_json: bool) -> None:
    before = objects_in(store)
    result = fleet(root, "--dry-run", *(["--json"] if as_json else []), "--memory-mb", "1024")
    assert (result.exit_code, result.stderr) == (0, "")
    assert objects_in(store) == before
    assert not Path(f"{root}.status").exists()
    if as_json:
        found = json.loads(result.stdout)
        assert (found["n_leaves"], found["memory_mb"]) == (4, 1024)
        assert found["estimated_usd"] > 0
    else:
        assert result.stdout.splitlines()[-1] == "nothing was fired"


# -- exit codes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "scope", "said"),
    [
        ([], None, "needs a scope"),
        (["--max-nodes", "0"], "all", "max_nodes is 0"),
        (["--transport", "pigeon"], "all", "'pigeon' is not one of"),
        (["--transport", "lambda"], "all", "--function"),
        (["--touch-policy", "perhaps"], "all", "'perhaps'"),
        (["--leaves", "/nowhere/leaves.parquet"], "all", "--leaves /nowhere/leaves.parquet: No such file"),
        ([], "x1", "'x1'"),
    ],
)
def test_refused(root: Path, store: ObjectStore, args: list[str], scope: str | None, said: str) -> None:
    before = objects_in(store)
    result = fleet(root, *args, scope=scope)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "To go on" not in result.stderr
    assert objects_in(store) == before


def test_no_ladder_is_refused(tmp_path: Path) -> None:
    result = fleet(tmp_path)
    assert result.exit_code == 2
    assert "nothing was fired: no sweepable zagg-pyramid/2 ladder: " in result.stdout


def test_nothing_in_scope_is_done(root: Path) -> None:
    result = fleet(root, scope="1")
    assert result.exit_code == 0
    assert result.stdout == f"{root}: nothing was fired: no dispatch nodes\n"


def test_held(root: Path, store: ObjectStore) -> None:
    Lease.acquire(store, run_id="stage-other", ttl_s=900, clock=SystemClock(), new_id=make_runtime().new_id)
    result = fleet(root)
    assert result.exit_code == 3
    assert "stage-other" in result.stderr
    assert "To go on" not in result.stderr


class Broken(InlineTransport):
    """A transport that raises, or loses what it takes."""

    raises: BaseException | None = None
    keeps: str = "none"

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        if self.raises is not None:
            raise self.raises
        return [self._take(each) for each in envelopes]

    def _take(self, envelope: Envelope) -> Submission:
        if envelope.key != self.keeps:
            return super().submit([envelope])[0]
        self._lost.append(Lost(key=envelope.key, cause="killed", detail="on purpose"))
        return Submission(key=envelope.key, delivery=Delivery.ACCEPTED)


def broken(monkeypatch: pytest.MonkeyPatch, **how: Any) -> None:
    monkeypatch.setattr(fleet_run, "InlineTransport", type("Broken", (Broken,), how))


@pytest.mark.parametrize(
    ("error", "code", "resumes"),
    [
        (AccessError("no such function", kind="no-function"), 4, True),
        (LeaseLostError("taken over"), 5, False),
        (KeyboardInterrupt(), 130, True),
        (DeclarationError("bad"), 2, False),
    ],
)
def test_what_ends_a_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, resumes: bool
) -> None:
    broken(monkeypatch, raises=error)
    result = fleet(root, "--run-id", "stage-mine", "--tuple-width", "2")
    assert result.exit_code == code
    hint = result.stderr.splitlines()[-1]
    assert ("Go on where it stopped: sweep fleet" in hint) is resumes
    if resumes:
        command = hint.partition("stopped: ")[2]
        for words in (
            str(root),
            "--scope all",
            "--run-id stage-mine",
            "--tuple-width 2",
            "--transport inline",
        ):
            assert words in command


def test_a_batch_that_is_lost_fails_the_run_and_the_next_one_heals(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        broken(patch, keeps="02-0001-1")
        result = fleet(
            root, "--run-id", "stage-mine", "--tuple-width", "2", "--max-nodes", "1", "--attempts", "1"
        )
    assert result.exit_code == 1
    assert "(whole nodes) were not finished after 1 attempts: killed: on purpose" in result.stderr
    again = fleet(root, "--run-id", "stage-mine", "--tuple-width", "2", "--json")
    assert again.exit_code == 0
    found = json.loads(again.stdout)
    assert [row["batches"] for row in found["stages"]] == [1, 1]  # what was complete is kept
    once_more = fleet(root, "--run-id", "stage-mine", "--tuple-width", "2")
    assert (once_more.exit_code, once_more.stdout) == (
        0,
        f"{root}: nothing was fired: the run is complete already\n",
    )
    redone = fleet(
        root, "--run-id", "stage-mine", "--tuple-width", "2", "--redo", "--json", "--max-nodes", "1"
    )
    assert [row["batches"] for row in json.loads(redone.stdout)["stages"]] == [3, 2]


def test_a_finisher_that_is_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        broken(patch, keeps="finisher-1")
        result = fleet(root, "--run-id", "stage-mine", "--attempts", "1", "--max-nodes", "1")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"2 batches of 4 leaves of {root} are done, ")
    assert (
        "the finisher did not land (killed: on purpose): resume the run with --run-id stage-mine"
        in result.stdout
    )
    assert fleet(root, "--run-id", "stage-mine").exit_code == 0


def test_under_coverage_is_normal_and_an_error_only_where_asked(tmp_path: Path) -> None:
    objects = windowed_store()
    for key in below(objects, leaf_columns(objects)[1]):
        del objects[key]
    for name in ("a", "b"):
        put_all(open_store(tmp_path / name), objects.items())
    plain = fleet(tmp_path / "a")
    assert plain.exit_code == 0
    said = plain.stdout.splitlines()[-1]
    assert "overviews are under-covered" in said
    for _ in range(2):  # what is current lacks them still
        strict = fleet(tmp_path / "b", "--strict")
        assert (strict.exit_code, strict.stdout.splitlines()[-1]) == (1, said)
    put_all(open_store(tmp_path / "local"), objects.items())
    local = CliRunner().invoke(app, ["local", str(tmp_path / "local"), "--scope", "all"])
    assert sorted(local.stdout.splitlines()[-1].split()) == sorted(said.split())


# -- leaves ---------------------------------------------------------------------------------

WORDS = [word_of("-2111"), word_of("3111")]


def test_leaves_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "leaves.jsonl"
    path.write_text(f'[{WORDS[0]}, "2019"]\n\n[{WORDS[1]}, null]\n{WORDS[0]}\n[{WORDS[1]}]\n')
    assert read_leaves(path) == [(WORDS[0], "2019"), (WORDS[1], None), (WORDS[0], None), (WORDS[1], None)]
    path.write_bytes(b"")
    assert read_leaves(path) == []


def test_leaves_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "leaves.parquet"
    keys = pa.array(np.array(WORDS, dtype=np.uint64))
    pq.write_table(pa.table({"shard_key": keys}), path)
    assert read_leaves(path) == [(WORDS[0], None), (WORDS[1], None)]
    pq.write_table(pa.table({"shard_key": keys, "window": pa.array(["2019", None])}), path)
    assert read_leaves(path) == [(WORDS[0], "2019"), (WORDS[1], None)]


@pytest.mark.parametrize(
    "line",
    ["x", '"1"', "1.5", "true", "{}", "[]", "[1, 2]", "[1, null, 3]", "[true, null]", "null", "\u00ff"],
)
def test_a_line_that_names_no_leaf(tmp_path: Path, line: str) -> None:
    path = tmp_path / "leaves.jsonl"
    path.write_bytes(f"{WORDS[0]}\n".encode() + line.encode("latin-1") + b"\n")
    with pytest.raises(
        DeclarationError, match=r"leaves\.jsonl, line 2: .* is no \[word, window\] pair"
    ) as caught:
        read_leaves(path)
    assert caught.value.kind == "leaves-file"


@pytest.mark.parametrize("data", [b"PAR1", b"PAR1 and no more", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_a_parquet_file_that_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "leaves.parquet"
    path.write_bytes(data)
    with pytest.raises(DeclarationError, match=r"--leaves .*leaves\.parquet: ") as caught:
        read_leaves(path)
    assert caught.value.kind == "leaves-file"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DeclarationError, match=said):
            read_leaves(path)


def test_given_leaves_are_swept(root: Path, tmp_path: Path) -> None:
    leaf = leaf_columns(plain_store())[0].rsplit("/", 1)[0].replace("/", "")
    (tmp_path / "leaves.jsonl").write_text(f"{word_of(leaf)}\n")
    result = fleet(root, "--leaves", str(tmp_path / "leaves.jsonl"), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["n_leaves"] == 1
    (tmp_path / "leaves.jsonl").write_text("-211\n")
    assert fleet(root, "--leaves", str(tmp_path / "leaves.jsonl")).exit_code == 2
