"""What `store_info` says of stores: unswept, swept, half swept, damaged, held."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import mortie
import pytest
from tests.support.sweeping import START, loaded, sweep

from sweep.errors import AccessError, DeclarationError, StoreUnavailableError
from sweep.read.info import Counts, StoreInfo, store_info
from sweep.store.base import ObjectStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, Fault, FaultyStore

type Objects = Mapping[str, bytes]
COUNTED = ("expected", "checked", "swept", "compared", "stale", "missing", "empty", "unreadable")


def describe(store: ObjectStore | Objects, **options: Any) -> StoreInfo:
    opened = loaded(store) if isinstance(store, Mapping) else store
    return store_info(opened, clock=FakeClock(START), **options)


def rows(info: StoreInfo) -> dict[tuple[int, str], Counts]:
    return {(level.node_order, each.window): each for level in info.levels for each in level.windows}


def overviews(objects: Objects, stem: str = "all") -> dict[int, int]:
    """How many overviews stand at each node order, by their keys alone."""
    found: dict[int, int] = {}
    for key in objects:
        if key.endswith(f"/{stem}.zarr/zarr.json"):
            order = key.count("/") - 2
            found[order] = found.get(order, 0) + 1
    return found


def leaf_column(objects: Objects, place: int = 0) -> str:
    keys = sorted(key for key in objects if key.endswith(".pyramid.zarr/zarr.json") and key.count("/") == 5)
    return keys[place].removesuffix("/zarr.json")


def restamp(objects: Objects, artifact: str, written_at: str) -> dict[str, bytes]:
    changed = dict(objects)
    document = json.loads(changed[f"{artifact}/zarr.json"])
    document["attributes"]["morton_hive_commit"]["written_at"] = written_at
    changed[f"{artifact}/zarr.json"] = json.dumps(document).encode()
    return changed


def without(objects: Objects, prefix: str) -> dict[str, bytes]:
    return {key: data for key, data in objects.items() if not key.startswith(f"{prefix}/")}


def test_what_is_declared(swept: Objects) -> None:
    info = describe(swept)
    manifest = json.loads(swept["morton_hive.json"])
    assert (info.shard_order, info.cell_order) == (3, 6)
    assert info.leaf_cells == (5, 4, 3)
    assert info.name == manifest["dataset"]["short_name"]
    assert not info.is_windowed
    assert info.windows == ()
    declared = manifest["pyramid"]["overview"]["fields"]
    taking_part = {name: entry for name, entry in declared.items() if entry["class"] != "none"}
    assert {each.name: (each.field_class, each.law) for each in info.fields} == {
        name: (entry["class"], entry["method"]) for name, entry in taking_part.items()
    }
    signal = next(each for each in info.fields if each.name == "h_tdigest_signal")
    assert signal.companions == ("h_tdigest_signal_locations", "h_tdigest_signal_times")
    assert [(level.node_order, level.cell_order, level.n_cells) for level in info.levels] == [
        (2, 4, 16),
        (1, 3, 16),
        (0, 2, 16),
    ]
    for level in info.levels:
        assert level.cell_km == pytest.approx(mortie.order2res(level.cell_order), rel=1e-4)


def test_a_swept_store_is_current(swept: Objects) -> None:
    info = describe(swept)
    assert info.is_current
    assert {order: counts.swept for (order, _), counts in rows(info).items()} == overviews(swept)
    assert all(counts.swept == counts.expected == counts.compared for counts in rows(info).values())
    assert (info.leaves.n_leaves, info.leaves.committed) == (6, 6)
    assert not info.is_sample
    assert info.problems == ()
    (sweep_record,) = info.sweeps
    record = json.loads(swept[sweep_record.key])
    assert sweep_record.run_id == record["run_id"]
    assert sweep_record.written == sum(overviews(swept).values())
    assert (sweep_record.failed, sweep_record.error) == (0, None)
    assert info.coverage.state == "usable"
    assert (info.coverage.n_shards, info.coverage.source) == (6, "sweep")
    assert info.lease is None


def test_an_unswept_store(unswept: Objects, swept: Objects) -> None:
    info = describe(unswept)
    assert not info.is_current
    assert info.sweeps == ()
    assert {order: counts.missing for (order, _), counts in rows(info).items()} == overviews(swept)
    assert info.total("swept") == 0


def test_a_store_without_columns_has_nothing_to_sweep(unswept: Objects) -> None:
    info = describe({key: data for key, data in unswept.items() if ".pyramid.zarr/" not in key})
    assert info.leaves.missing == 6
    assert info.total("missing") == 0
    assert info.total("empty") == info.total("expected") > 0


def test_windows_are_counted_apart(windowed: Objects) -> None:
    info = describe(windowed)
    assert info.windows == ("2019", "2020")
    assert info.all_time
    assert info.is_current
    for stem in ("2019", "2020", "all"):
        found = {order: each.swept for (order, window), each in rows(info).items() if window == stem}
        assert found == overviews(windowed, stem)
    assert (
        info.leaves.committed
        == info.leaves.n_leaves
        == sum(key.endswith(".pyramid.zarr/zarr.json") and key.count("/") == 5 for key in windowed)
    )


def test_a_rewritten_leaf_makes_its_ancestors_stale(swept: Objects) -> None:
    leaf = leaf_column(swept)
    info = describe(restamp(swept, leaf, "2031-01-01T00:00:00+00:00"))
    assert {order: counts.stale for (order, _), counts in rows(info).items()} == {2: 1, 1: 1, 0: 1}
    assert not info.is_current


def test_a_leaf_that_went_makes_its_ancestors_stale(swept: Objects) -> None:
    gone = leaf_column(swept)
    info = describe(without(swept, gone))
    assert info.leaves.missing == 1
    assert info.total("stale") == 3


def test_a_new_sweep_clears_what_is_stale(swept: Objects) -> None:
    store = loaded(restamp(swept, leaf_column(swept), "2029-01-01T00:00:00+00:00"))
    assert describe(store).total("stale") == 3
    sweep(store)
    again = describe(store)
    assert again.is_current
    assert len(again.sweeps) == 2


def test_an_overview_that_is_gone_is_missing(swept: Objects) -> None:
    node = next(key for key in sorted(swept) if key.endswith("/all.zarr/zarr.json") and key.count("/") == 4)
    info = describe(without(swept, node.removesuffix("/zarr.json")))
    assert rows(info)[2, "all"].missing == 1
    assert info.total("stale") == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe"])
def test_damage_is_counted_and_named(swept: Objects, damage: bytes) -> None:
    leaf = leaf_column(swept)
    top = next(key for key in sorted(swept) if key.endswith("/all.zarr/zarr.json") and key.count("/") == 2)
    info = describe({**swept, f"{leaf}/zarr.json": damage, top: damage, "coverage.moc": damage})
    assert info.leaves.unreadable == 1
    assert rows(info)[0, "all"].unreadable == 1
    assert info.coverage.state == "unusable"
    text = "\n".join(info.problems)
    for name in (leaf, top.removesuffix("/zarr.json"), "coverage.moc"):
        assert name in text


def test_damaged_records_are_named(swept: Objects) -> None:
    (leaf_record,) = (key for key in swept if key.endswith(".parquet"))
    (sweep_record,) = (key for key in swept if key.startswith("sweep_stats_"))
    info = describe({**swept, leaf_record: b"PAR1", sweep_record: b"{}x", "stats_x.parquet": b""})
    text = "\n".join(info.problems)
    assert all(name in text for name in (leaf_record, sweep_record, "stats_x.parquet"))
    assert "nothing to sweep" in text
    # The coverage still says where the leaves are.
    assert info.leaves.n_leaves == 0
    assert info.total("swept") == sum(overviews(swept).values())
    assert info.coverage.n_unrecorded == 6


def test_absent_coverage(swept: Objects) -> None:
    info = describe({key: data for key, data in swept.items() if key != "coverage.moc"})
    assert info.coverage.state == "absent"
    assert info.is_current


def test_coverage_that_lacks_leaves_is_a_problem(swept: Objects) -> None:
    document = json.loads(swept["coverage.moc"])
    document["ranges"] = document["ranges"][:1]
    info = describe({**swept, "coverage.moc": json.dumps(document).encode()})
    assert info.coverage.n_uncovered > 0
    assert any("lacks" in problem for problem in info.problems)
    assert info.is_current


def test_a_sweep_that_failed_is_a_problem(swept: Objects) -> None:
    (key,) = (key for key in swept if key.startswith("sweep_stats_"))
    record = json.loads(swept[key])
    record["stages"][0]["failed"] = 2
    info = describe({**swept, key: json.dumps(record).encode()})
    assert info.sweeps[0].failed == 2
    assert any("2 failed" in problem and record["run_id"] in problem for problem in info.problems)


class TestLease:
    def lease(self, swept: Objects, age_s: float, **changes: Any) -> StoreInfo:
        beat = (START - timedelta(seconds=age_s)).isoformat()
        fields: dict[str, Any] = {"spec": "zagg-sweep-lease/1", "run_id": "r1", "scope": None}
        fields |= {"acquired_at": beat, "heartbeat_at": beat, "ttl_s": 900, **changes}
        return describe({**swept, "sweep.lease.json": json.dumps(fields).encode()})

    def test_a_holder_is_told_with_its_age(self, swept: Objects) -> None:
        lease = self.lease(swept, 30).lease
        assert lease is not None
        assert (lease.run_id, lease.heartbeat_age_s, lease.is_expired) == ("r1", 30, False)

    def test_an_expired_one_is_a_problem(self, swept: Objects) -> None:
        info = self.lease(swept, 1000)
        assert info.lease is not None
        assert info.lease.is_expired
        assert any("r1 has expired" in problem for problem in info.problems)

    def test_debris_is_no_holder(self, swept: Objects) -> None:
        info = self.lease(swept, 30, spec="another/1")
        assert info.lease is None
        assert any("is no lease" in problem for problem in info.problems)


class TestSample:
    @pytest.mark.parametrize("limit", [12, 24, 36])
    def test_it_says_so_and_stays_near_the_limit(self, many: Objects, limit: int) -> None:
        info = describe(many, limit=limit)
        assert info.is_sample
        assert 0 < info.n_opened <= 1.5 * limit
        assert info.total("swept") == info.total("checked") < info.total("expected")
        assert info.total("stale") == info.total("missing") == 0
        assert 0 < info.leaves.checked < info.leaves.n_leaves == 24

    def test_what_is_compared_is_compared_in_full(self, many: Objects) -> None:
        # Every leaf is rewritten, so every overview that was compared has to be stale.
        objects = many
        for place in range(24):
            objects = restamp(objects, leaf_column(objects, place), "2031-01-01T00:00:00+00:00")
        info = describe(objects, limit=36)
        assert info.total("stale") == info.total("compared") > 0

    def test_deep_opens_everything(self, many: Objects) -> None:
        info = describe(many, limit=12, deep=True)
        assert not info.is_sample
        assert info.n_opened == 24 + sum(overviews(many).values())

    def test_a_store_within_the_limit_is_no_sample(self, many: Objects) -> None:
        assert not describe(many, limit=24 + sum(overviews(many).values())).is_sample


def test_a_few_artifacts_at_a_time_are_counted_alike(many: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    store = loaded(many)
    expected = describe(store)
    monkeypatch.setattr("sweep.read._survey._AT_ONCE", 5)
    assert describe(store) == expected


def test_an_address_will_do(tmp_path: Path, swept: Objects) -> None:
    for key, data in swept.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    assert store_info(tmp_path).levels == describe(swept).levels


def test_it_is_json(windowed: Objects) -> None:
    info = describe(windowed)
    value = json.loads(json.dumps(info.to_json()))
    assert value["is_current"] is True
    assert value["levels"][0]["windows"][0]["expected"] == info.levels[0].windows[0].expected
    assert value["fields"][0]["name"] == info.fields[0].name


@pytest.mark.parametrize("data", [None, b"{", b"{}"])
def test_no_store_is_refused(swept: Objects, data: bytes | None) -> None:
    objects = {key: value for key, value in swept.items() if key != "morton_hive.json"}
    with pytest.raises(DeclarationError, match=r"morton_hive\.json"):
        describe(objects if data is None else {**objects, "morton_hive.json": data})


def test_a_document_that_may_not_be_read_is_unreadable(swept: Objects) -> None:
    leaf = f"{leaf_column(swept)}/zarr.json"
    refusal = Fault(before=AccessError("no permission", key=leaf))
    store = FaultyStore(loaded(swept), lambda _n, _name, key: refusal if key == leaf else None, methods=READS)
    info = describe(store)
    assert info.leaves.unreadable == 1
    assert any("no permission" in problem for problem in info.problems)


def test_a_store_that_does_not_answer_is_no_damage(swept: Objects) -> None:
    down = Fault(before=StoreUnavailableError("down"))
    store = FaultyStore(loaded(swept), lambda n, _name, _key: down if n > 10 else None, methods=READS)
    with pytest.raises(StoreUnavailableError):
        describe(store)


def test_it_writes_nothing(swept: Objects) -> None:
    store = loaded(swept)
    describe(store)
    assert {info.key: store.get(info.key) for info in store.list()} == dict(swept)
