"""Each program's dispatcher drives the other's worker: the same ladder either way."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interop.conftest import Build
from tests.interop.shapes import SHAPES
from tests.support.bridge import PeerWorkerTransport, peer_dispatches
from tests.support.compare import node_objects
from tests.support.programs import Peer

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.fleet.dispatcher import dispatch
from sweep.fleet.options import FleetOptions
from sweep.fleet.transport import Delivery
from sweep.plan.packing import refs_of
from sweep.store.open import open_store
from sweep.system import system_runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

STORES = ("every field", "windows")


def reference(peer: Peer, build: Build, name: str, folder: Path) -> Path:
    """The store as the peer sweeps it in process."""
    swept = Path(shutil.copytree(build(SHAPES[name]), folder / "reference" / "store"))
    peer.sweep(swept)
    return swept


def volatile_aside(root: Path) -> dict[str, bytes]:
    """Chunk objects and array documents of every node: nothing in them names a run or a moment."""
    return {
        key: data
        for key, data in node_objects(root).items()
        if "/c/" in key or (key.endswith("/zarr.json") and not key.endswith(".zarr/zarr.json"))
    }


@pytest.mark.parametrize("name", STORES)
def test_our_dispatcher_drives_the_peers_worker(peer: Peer, build: Build, tmp_path: Path, name: str) -> None:
    root = Path(shutil.copytree(build(SHAPES[name]), tmp_path / "store"))
    with PeerWorkerTransport(peer.python) as transport:
        summary = dispatch(
            open_store(str(root)),
            lambda prefix: open_store(prefix),
            transport,
            FleetOptions(scope="all", poll_s=0.2, max_nodes=2),
            system_runtime(),
        )
        assert transport.errors == []
    assert summary.is_complete, summary.document
    assert volatile_aside(root) == volatile_aside(reference(peer, build, name, tmp_path))
    assert not (root / "sweep.lease.json").exists()


@pytest.mark.parametrize("name", STORES)
def test_the_peers_dispatcher_drives_our_worker(peer: Peer, build: Build, tmp_path: Path, name: str) -> None:
    root = Path(shutil.copytree(build(SHAPES[name]), tmp_path / "store"))
    store = open_store(str(root))
    manifest = read_manifest(store)
    leaves = refs_of(discover_leaves(store, manifest).work)
    result = peer_dispatches(
        peer.python,
        root,
        {
            "leaves": leaves,
            "shard_order": manifest.shard_order,
            "max_nodes_per_invoke": 2,
            "windowed": manifest.is_windowed,
            "all_time": manifest.all_time,
        },
    )
    assert all(answer["ok"] for answer in result["answers"]), result["answers"]
    assert result["summary"]["finisher"]["landed"] is True
    assert result["summary"]["short_orders"] == []
    assert volatile_aside(root) == volatile_aside(reference(peer, build, name, tmp_path))
    assert not (root / "sweep.lease.json").exists()


def test_the_peers_worker_takes_an_attempt_number(peer: Peer, build: Build, tmp_path: Path) -> None:
    root = Path(shutil.copytree(build(SHAPES["one order"]), tmp_path / "store"))

    class Doubting(PeerWorkerTransport):
        """Says of every first attempt that it may not have arrived, so that all are fired twice."""

        def submit(self, envelopes):  # type: ignore[no-untyped-def]
            outcomes = super().submit(envelopes)
            return [
                replace(outcome, delivery=Delivery.MAYBE, reason="answer lost")
                if outcome.key.endswith("-1") and not outcome.key.startswith("finisher")
                else outcome
                for outcome in outcomes
            ]

    with Doubting(peer.python) as transport:
        summary = dispatch(
            open_store(str(root)),
            lambda prefix: open_store(prefix),
            transport,
            FleetOptions(scope="all", poll_s=0.2),
            system_runtime(),
        )
        assert transport.errors == []
    assert summary.is_complete
    assert all(row["retries"] == row["batches"] for row in summary.document["stages"])
