"""Blocks read under a stamp that may move, and cells of arrays that zarr-python wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr
from tests.support.made import Json, digest, fields_of, level_data, listed, memory_store
from tests.support.zarr_writer import Member, seal, write_artifact
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from sweep.artifacts.codecs import encode_chunk
from sweep.artifacts.documents import array_document
from sweep.artifacts.reading import ATTEMPTS, Block, read_blocks
from sweep.artifacts.source import BlockRequest, ForeignGuard, Source, StoredSource, open_sources
from sweep.errors import ArtifactError, ColumnMovedError, ForeignWriteError
from sweep.model.fields import ArraySpec
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.stores import READS, CountingStore, Fault, FaultyStore

KEY = "2/1/all.pyramid.zarr"
ROOT = f"{KEY}/zarr.json"
CHUNK = f"{KEY}/5/x/c/0"
SPEC = ArraySpec(name="x", dtype=np.dtype(np.int64), fill=np.int64(0), attributes={})


def stamped(store: ObjectStore, values: Sequence[int], version: str, **stamp: Any) -> None:
    """Write an artifact of one array ``x`` of 4 cells, whose stamp says ``version``."""
    chunk = encode_chunk(np.array(values, dtype=np.int64), np.int64(0))
    store.put(f"{KEY}/5/x/zarr.json", array_document(SPEC, 4, 4))
    assert chunk is not None
    store.put(CHUNK, chunk)
    restamp(store, version, **stamp)


def restamp(store: ObjectStore, version: str, *, note: str = "", **stamp: Any) -> None:
    attributes: Json = {
        "note": note,
        "zagg_column": {"version": version},
        "morton_hive_commit": {"written_at": version, **stamp},
    }
    document = {"attributes": attributes, "zarr_format": 3, "node_type": "group"}
    store.put(ROOT, json.dumps(document).encode())


@pytest.fixture
def store() -> ObjectStore:
    opened = memory_store()
    stamped(opened, [1, 2, 3, 4], "v1")
    return opened


def source_in(store: ObjectStore) -> StoredSource:
    (found,) = open_sources(store, [KEY], "zagg_column")
    assert isinstance(found, StoredSource)
    return found


def request(source: Source, start: int = 0, stop: int = 4, *, n_cells: int = 4) -> BlockRequest:
    return BlockRequest(source=source, cell_order=5, n_cells=n_cells, start=start, stop=stop)


def at_root_reads(store: ObjectStore, act: Callable[[int], object], *, last: int = 99) -> FaultyStore:
    """``store``, where ``act(n)`` happens just before the n-th read of the root document."""
    reads = 0

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        nonlocal reads
        if key != ROOT:
            return None
        reads += 1
        number = reads
        return Fault(hook=lambda: act(number)) if number <= last else None

    return FaultyStore(store, plan, methods=READS)


def read(
    store: ObjectStore, source: StoredSource, names: Sequence[str] = ("x",), guard: ForeignGuard | None = None
) -> Block:
    (block,) = read_blocks(store, [request(source)], names, guard)
    return block


def test_a_standing_stamp_pins_the_source(store: ObjectStore) -> None:
    source = source_in(store)
    assert listed(read(store, source)["x"]) == [1, 2, 3, 4]
    assert (source.pinned, source.revalidated) == (True, 0)


def test_an_equal_stamp_in_another_document_stands(store: ObjectStore) -> None:
    source = source_in(store)
    assert listed(read(store, source)["x"]) == [1, 2, 3, 4]
    restamp(store, "v1", note="an attribute that is none of ours")
    assert listed(read(store, source)["x"]) == [1, 2, 3, 4]
    assert source.revalidated == 0


def test_a_rewrite_before_the_first_block_is_adopted(store: ObjectStore) -> None:
    source = source_in(store)

    def rewrite(number: int) -> None:
        if number == 1:
            stamped(store, [5, 6, 7, 8], "v2")

    assert listed(read(at_root_reads(store, rewrite), source)["x"]) == [5, 6, 7, 8]
    assert source.stamp["written_at"] == "v2"
    assert source.block == {"version": "v2"}
    assert (source.pinned, source.revalidated) == (True, 1)
    assert listed(read(store, source)["x"]) == [5, 6, 7, 8]


def test_an_adopted_rewrite_may_have_another_layout(store: ObjectStore) -> None:
    source = source_in(store)

    def rewrite(number: int) -> None:
        if number == 1:
            store.put(f"{KEY}/5/x/zarr.json", array_document(SPEC, 4, 2))
            for chunk, values in enumerate(([5, 6], [7, 8])):
                data = encode_chunk(np.array(values, dtype=np.int64), np.int64(0))
                assert data is not None
                store.put(f"{KEY}/5/x/c/{chunk}", data)
            restamp(store, "v2")

    assert listed(read(at_root_reads(store, rewrite), source)["x"]) == [5, 6, 7, 8]


@pytest.mark.parametrize("how", ["rewritten", "unstamped", "torn", "gone"])
def test_a_pinned_source_that_moves_ends_the_fold(store: ObjectStore, how: str) -> None:
    source = source_in(store)
    read(store, source)
    match how:
        case "rewritten":
            stamped(store, [5, 6, 7, 8], "v2")
        case "unstamped":
            store.put(ROOT, b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
        case "torn":
            store.put(ROOT, b"{")
        case "gone":
            store.delete(ROOT)
    with pytest.raises(ColumnMovedError, match=KEY) as caught:
        read(store, source)
    assert caught.value.context["key"] == KEY
    assert source.revalidated == 0


def test_a_source_that_never_rests_is_given_up_after_three_attempts(store: ObjectStore) -> None:
    source = source_in(store)
    faulty = at_root_reads(store, lambda number: restamp(store, f"w{number}"))
    with pytest.raises(ColumnMovedError, match="rewritten while it was being read"):
        read(faulty, source)
    assert faulty.log.count(("get", CHUNK)) == ATTEMPTS == 3
    assert source.revalidated == 3


def test_the_third_attempt_still_counts(store: ObjectStore) -> None:
    source = source_in(store)
    faulty = at_root_reads(store, lambda number: restamp(store, f"w{number}"), last=2)
    assert listed(read(faulty, source)["x"]) == [1, 2, 3, 4]
    assert source.revalidated == 2


def test_a_source_under_rewrite_may_come_back(store: ObjectStore) -> None:
    source = source_in(store)

    def act(number: int) -> None:
        if number == 1:
            store.delete(ROOT)
        elif number == 2:
            stamped(store, [5, 6, 7, 8], "v2")

    assert listed(read(at_root_reads(store, act), source)["x"]) == [5, 6, 7, 8]
    assert source.revalidated == 2


@pytest.mark.parametrize("raw", [None, b"", b"[]"])
def test_a_source_that_lost_its_stamp_for_good_has_moved(store: ObjectStore, raw: bytes | None) -> None:
    source = source_in(store)
    store.delete(ROOT)
    if raw is not None:
        store.put(ROOT, raw)
    with pytest.raises(ColumnMovedError):
        read(store, source)


def test_torn_bytes_under_a_moved_stamp_are_read_again(store: ObjectStore) -> None:
    source = source_in(store)
    store.put(CHUNK, b"torn")

    def heal(number: int) -> None:
        if number == 1:
            stamped(store, [5, 6, 7, 8], "v2")

    assert listed(read(at_root_reads(store, heal), source)["x"]) == [5, 6, 7, 8]
    assert source.revalidated == 1


@pytest.mark.parametrize(
    ("key", "named"), [(CHUNK, f"{KEY}/5/x: dense chunk"), (f"{KEY}/5/x/zarr.json", f"{KEY}/5/x/zarr.json")]
)
def test_torn_bytes_under_a_standing_stamp_are_an_error(store: ObjectStore, key: str, named: str) -> None:
    store.put(key, b"torn")
    source = source_in(store)
    with pytest.raises(ArtifactError) as caught:
        read(store, source)
    assert not isinstance(caught.value, ColumnMovedError)
    assert caught.value.message.startswith(named)
    assert named.startswith(caught.value.context["key"])


def test_an_array_of_another_size_is_an_error(store: ObjectStore) -> None:
    with pytest.raises(ArtifactError, match=f"{KEY}/5/x holds 4 cells, expected 16") as caught:
        read_blocks(store, [request(source_in(store), n_cells=16)], ["x"], None)
    assert caught.value.kind == "array-shape"


GUARD = ForeignGuard(run_id="ours", run_started="v1")


@pytest.mark.parametrize("pinned", [False, True])
def test_a_foreign_fresh_stamp_aborts(store: ObjectStore, pinned: bool) -> None:
    source = source_in(store)
    if pinned:
        read(store, source, guard=GUARD)
    stamped(store, [5, 6, 7, 8], "v2", run_id="theirs")
    with pytest.raises(ForeignWriteError, match="theirs"):
        read(store, source, guard=GUARD)


def test_a_rewrite_of_our_own_run_is_adopted(store: ObjectStore) -> None:
    source = source_in(store)
    stamped(store, [5, 6, 7, 8], "v2", run_id="ours")
    assert listed(read(store, source, guard=GUARD)["x"]) == [5, 6, 7, 8]


def test_absence_is_never_remembered(store: ObjectStore) -> None:
    source = source_in(store)
    assert read(store, source, ["x", "y"])["y"] is None
    store.put(f"{KEY}/5/y/zarr.json", array_document(SPEC, 4, 4))
    assert listed(read(store, source, ["x", "y"])["y"]) == [0, 0, 0, 0]


def test_documents_are_fetched_once_for_all_blocks(store: ObjectStore) -> None:
    counting = CountingStore(store)
    source = source_in(store)
    for start in range(4):
        (block,) = read_blocks(counting, [request(source, start, start + 1)], ["x"], None)
        assert listed(block["x"]) == [start + 1]
    assert counting.log.count(("get", f"{KEY}/5/x/zarr.json")) == 1
    assert counting.log.count(("get", ROOT)) == 4


def test_a_chunk_longer_than_a_block_is_fetched_once_for_all_blocks(store: ObjectStore) -> None:
    counting = CountingStore(store)
    source = source_in(store)
    for start, stop in [(0, 1), (1, 3), (3, 4)]:
        (block,) = read_blocks(counting, [request(source, start, stop)], ["x"], None)
        assert listed(block["x"]) == [1, 2, 3, 4][start:stop]
    assert counting.log.count(("get", CHUNK)) == 1
    assert source.straddling == {}, "nothing is held once the chunk was read to its end"


def test_a_chunk_of_an_older_stamp_is_not_used_again(store: ObjectStore) -> None:
    source = source_in(store)

    def rewrite(number: int) -> None:
        if number == 1:
            stamped(store, [5, 6, 7, 8], "v2")

    moving = at_root_reads(store, rewrite)
    for start, stop in [(0, 2), (2, 4)]:
        (block,) = read_blocks(moving, [request(source, start, stop)], ["x"], None)
        assert listed(block["x"]) == [5, 6, 7, 8][start:stop]


def test_only_the_source_that_moved_is_read_again(store: ObjectStore) -> None:
    other = KEY.replace("2/1", "2/2")
    for info in list(store.list(KEY)):
        data = store.get(info.key)
        assert data is not None
        store.put(info.key.replace(KEY, other), data)
    sources = open_sources(store, [other, KEY], "zagg_column")
    stamped(store, [5, 6, 7, 8], "v2")
    counting = CountingStore(store)
    requests = [request(each) for each in sources if isinstance(each, StoredSource)]
    blocks = read_blocks(counting, requests, ["x"], None)
    assert [listed(block["x"]) for block in blocks] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert counting.log.count(("get", f"{other}/5/x/c/0")) == 1
    assert counting.log.count(("get", CHUNK)) == 2


def test_a_source_in_memory_needs_no_store() -> None:
    fields = fields_of()
    data = level_data(fields, 16)
    source = Source(key="2/1/all.zarr", stamp={}, block={}, data=data)
    counting = CountingStore(memory_store())
    names = [spec.name for spec in fields.arrays()] + ["other"]
    (block,) = read_blocks(counting, [request(source, 4, 7, n_cells=16)], names, None)
    assert block["other"] is None
    for spec in fields.arrays():
        assert str(listed(block[spec.name])) == str(listed(data.arrays[spec.name])[4:7])
    assert counting.log == []


# -- cells that zarr-python wrote ---------------------------------------------------------

N_CELLS = 4096
LAYOUTS = {
    "one chunk": (N_CELLS, None),
    "chunks": (512, None),
    "shard": (1024, N_CELLS),
    "shards": (256, 1024),
}


def _values(rng: np.random.Generator) -> dict[str, Member]:
    """Dense and ragged cells; the third quarter is all fill, and so is most of the first."""
    dense = rng.normal(size=N_CELLS).astype(np.float32)
    dense[2048:3072] = np.nan
    dense[:900] = np.nan
    cells = [b"" if np.isnan(v) else digest(*((float(v), 1.0),) * int(rng.integers(1, 4))) for v in dense]
    return {
        "f": Member(values=dense, fill=np.nan, attributes={}),
        "i": Member(values=rng.integers(-5, 5, N_CELLS).astype(np.int32), fill=-9999, attributes={}),
        "r": Member(values=cells, attributes={}),
        "fill": Member(values=np.full(N_CELLS, -1, dtype=np.int16), fill=-1, attributes={}),
        "empty": Member(values=[b""] * N_CELLS, attributes={}),
    }


@pytest.fixture(params=LAYOUTS)
def by_zarr(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ObjectStore, dict[str, Member]]:
    members = _values(np.random.default_rng(7))
    write_artifact(tmp_path / "a.zarr", {9: members}, chunks={9: LAYOUTS[request.param]})
    seal(tmp_path / "a.zarr", {"morton_hive_commit": {"written_at": "v1"}})
    return open_store(tmp_path), members


RANGES = [
    (0, N_CELLS),
    (0, 1024),
    (1024, 2048),
    (2048, 3072),
    (1000, 1050),
    (3071, 3073),
    (4095, 4096),
    (255, 257),
]


@pytest.mark.parametrize(("start", "stop"), RANGES)
def test_cells_of_zarr_python(by_zarr: tuple[ObjectStore, dict[str, Member]], start: int, stop: int) -> None:
    store, members = by_zarr
    (source,) = open_sources(store, ["a.zarr"], "zagg_column")
    assert isinstance(source, StoredSource)
    wanted = BlockRequest(source=source, cell_order=9, n_cells=N_CELLS, start=start, stop=stop)
    (block,) = read_blocks(store, [wanted], [*members, "absent"], None)
    assert block["absent"] is None
    for name, member in members.items():
        found, expected = block[name], member.values[start:stop]
        if isinstance(expected, list):
            assert listed(found) == expected
        else:
            assert isinstance(found, np.ndarray)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("location", ["start", "end"])
def test_index_location_and_framed_dense_cells(tmp_path: Path, location: str) -> None:
    values = np.arange(64, dtype=np.int32)
    values[16:32] = -1
    zarr.create_group(tmp_path / "a.zarr", zarr_format=3)
    zarr.create_group(tmp_path / "a.zarr", path="5", zarr_format=3)
    shards: Any = {"shape": (32,), "index_location": location}
    array = zarr.create_array(
        tmp_path / "a.zarr",
        name="5/x",
        shape=(64,),
        dtype="int32",
        chunks=(8,),
        shards=shards,
        fill_value=-1,
        serializer=BytesCodec(endian="big"),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
    )
    array[:] = values
    seal(tmp_path / "a.zarr", {"morton_hive_commit": {"written_at": "v1"}})
    store = CountingStore(open_store(tmp_path))
    (source,) = open_sources(store, ["a.zarr"], "zagg_column")
    assert isinstance(source, StoredSource)
    for start, stop in [(0, 8), (6, 40), (16, 24), (63, 64), (0, 64)]:
        (block,) = read_blocks(store, [request(source, start, stop, n_cells=64)], ["x"], None)
        assert listed(block["x"]) == values[start:stop].tolist()
    if location == "end":
        assert store.calls["get_suffix"] == 2, "one index for each of two shards"


def _damaged(raw: bytes, how: str) -> bytes:
    """A shard of 4 inner chunks with its index at the end, damaged."""
    index = np.frombuffer(raw[-68:-4], dtype="<u8").reshape(4, 2).copy()
    match how:
        case "cut":
            return raw[:40]
        case "flipped":
            return raw[:-20] + bytes([raw[-20] ^ 1]) + raw[-19:]
        case "beyond":
            index[1] = (len(raw) - 10, 50)
        case "wrong":
            index[1] = (0, 3)
    body = index.tobytes()
    checksum: int = google_crc32c.value(body)
    return raw[:-68] + body + checksum.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut", "shard index has 40 bytes"),
        ("flipped", "crc32c of the shard index"),
        ("beyond", "beyond its shard"),
        ("wrong", "zstd"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_shard_names_its_array(tmp_path: Path, how: str, said: str, whole: bool) -> None:
    cells = [digest((float(n), 1.0)) for n in range(16)]
    members = {"r": Member(values=cells, attributes={})}
    write_artifact(tmp_path / "a.zarr", {5: members}, chunks={5: (4, 16)})
    seal(tmp_path / "a.zarr", {"morton_hive_commit": {"written_at": "v1"}})
    store = open_store(tmp_path)
    raw = store.get("a.zarr/5/r/c/0")
    assert raw is not None
    store.put("a.zarr/5/r/c/0", _damaged(raw, how))
    (source,) = open_sources(store, ["a.zarr"], "zagg_column")
    assert isinstance(source, StoredSource)
    start, stop = (0, 16) if whole else (4, 8)
    with pytest.raises(ArtifactError, match=said) as caught:
        read_blocks(store, [request(source, start, stop, n_cells=16)], ["r"], None)
    assert caught.value.context["key"] == "a.zarr/5/r"
    assert caught.value.message.startswith("a.zarr/5/r: ")


@pytest.mark.parametrize("chunk_cells", [3, 4, 5, 10**12, 10**400])
@pytest.mark.parametrize("shard_chunks", [None, 1, 4])
@pytest.mark.parametrize("is_ragged", [False, True])
def test_an_absent_chunk_is_no_longer_than_its_array(
    store: ObjectStore, chunk_cells: int, shard_chunks: int | None, is_ragged: bool
) -> None:
    spec = ArraySpec(name="x", dtype=np.dtype(np.int64), fill=None) if is_ragged else SPEC
    document = json.loads(array_document(spec, 4, 4))
    outer = chunk_cells * (shard_chunks or 1)
    document["chunk_grid"]["configuration"]["chunk_shape"] = [outer]
    if shard_chunks is not None:
        inner = {
            "chunk_shape": [chunk_cells],
            "codecs": document["codecs"],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        }
        document["codecs"] = [{"name": "sharding_indexed", "configuration": inner}]
    store.put(f"{KEY}/5/x/zarr.json", json.dumps(document).encode())
    store.delete(CHUNK)
    assert listed(read(store, source_in(store))["x"]) == ([b""] * 4 if is_ragged else [0] * 4)


def test_an_inner_chunk_beyond_any_object_is_an_error(store: ObjectStore) -> None:
    document = json.loads(array_document(SPEC, 4, 4))
    inner = {
        "chunk_shape": [2],
        "codecs": document["codecs"],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    }
    document["codecs"] = [{"name": "sharding_indexed", "configuration": inner}]
    store.put(f"{KEY}/5/x/zarr.json", json.dumps(document).encode())
    for span in ((0, 2**40), (0, 2**63), (2**64 - 2, 4), (2**63, 2**63)):
        index = np.array([*span, *span], dtype="<u8").tobytes()
        store.put(CHUNK, index + google_crc32c.value(index).to_bytes(4, "little"))
        with pytest.raises(ArtifactError, match="beyond its shard"):
            read_blocks(store, [request(source_in(store), 0, 2)], ["x"], None)
