"""The peer's own checkers judge what this program wrote, and what the generator wrote.

Source: checkers 1, 2, 4, 5 and 7.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import Build
from tests.interop.shapes import CHECKABLE, GAPS
from tests.support.programs import Peer, failed_checks, sweep_ours

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

HASHES = """
import json, pathlib, sys
import zarr
from zagg.content_hash import combined_hash, hash_arrays
wrong, seen = [], 0
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.zarr")):
    group = zarr.open_group(path, mode="r")
    stamp = group.attrs["morton_hive_commit"]["content_hashes"]
    arrays = hash_arrays(group)
    seen += 1
    if arrays != stamp["arrays"] or combined_hash(arrays) != stamp["combined"]:
        wrong.append(str(path))
print(json.dumps({"seen": seen, "wrong": wrong}))
"""

BITMAPS = """
import json, pathlib, sys
from zagg.hive import read_coverage_bitmap, resolve_leaf
wrong, seen = [], 0
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.zarr")):
    stamp = resolve_leaf(str(path))[1] or {}
    if "sidecar" in stamp.get("coverage", {}):
        seen += 1
        if len(read_coverage_bitmap(str(path))) != stamp["cells_with_data"]:
            wrong.append(str(path))
print(json.dumps({"seen": seen, "wrong": wrong}))
"""

RESWEEP = """
import json, sys
from zagg.pyramid_check import validate_pyramid
print(json.dumps(validate_pyramid(sys.argv[1], full=True, resweep=True)["checks"]["idempotency"]))
"""


def complain(findings: dict[str, Any]) -> dict[str, Any]:
    """Return all that is not right with a store: failed and silent checks, warnings, the exit."""
    found: dict[str, Any] = failed_checks(findings)
    if findings.get("warnings"):
        found["warnings"] = findings["warnings"]
    if findings["exit"] != 0:
        found["exit"] = findings["exit"]
    passed = {name for name, check in findings["checks"].items() if check["status"] == "pass"}
    required = {"declaration", "coordinates", "materialization", "columns", "readback", "counts", "digests"}
    if required - passed:
        found["not passed"] = sorted(required - passed)
    return found


@pytest.fixture(params=CHECKABLE)
def store(request: pytest.FixtureRequest, build: Build, tmp_path: Path) -> Path:
    """An unswept store with all that the checkers ask for."""
    return Path(shutil.copytree(build(CHECKABLE[request.param]), tmp_path / "store"))


def test_a_store_swept_here_passes(peer: Peer, store: Path) -> None:
    before = peer.check(store)
    missing = {"materialization", "all_time"} & before["checks"].keys()
    assert failed_checks(before).keys() <= missing
    assert "pre-sweep baseline" in failed_checks(before)["materialization"]
    assert before["columns"]["declared"] == before["columns"]["materialized"] > 0

    sweep_ours(store)
    assert complain(peer.check(store)) == {}
    assert complain(peer.check(store, roster="list")) == {}

    for code in (HASHES, BITMAPS):
        found = peer.evaluate(code, str(store))
        assert found["seen"] > 0
        assert found["wrong"] == []
    assert peer.evaluate(RESWEEP, str(store))["status"] == "pass"


def test_gaps_between_windows_are_judged_as_in_the_peers_own_store(
    peer: Peer, build: Build, tmp_path: Path
) -> None:
    """A child that exists in other windows only counts as missing, which its checker calls stale."""
    theirs, ours = (Path(shutil.copytree(build(GAPS), tmp_path / name / "store")) for name in "ab")
    peer.sweep(theirs)
    sweep_ours(ours)
    verdicts = [peer.check(root) for root in (theirs, ours)]
    assert verdicts[0]["checks"] == verdicts[1]["checks"]
    assert failed_checks(verdicts[1]).keys() == {"readback"}


def test_the_checker_sees_a_wrong_value(peer: Peer, build: Build, tmp_path: Path) -> None:
    store = Path(shutil.copytree(build(CHECKABLE["plain"]), tmp_path / "store"))
    peer.sweep(store)
    chunk = next(p for p in sorted(store.rglob("c/0")) if p.parts[-5:-2] == ("all.zarr", "5", "count"))
    data = bytearray(chunk.read_bytes())
    data[0] ^= 1
    chunk.write_bytes(bytes(data))
    assert "counts" in failed_checks(peer.check(store))
    overview = chunk.parents[3]
    assert peer.evaluate(HASHES, str(store))["wrong"] == [str(overview)]
