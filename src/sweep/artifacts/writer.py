"""Writing overviews and stage columns.

The root document is written once, last of all objects, with the stamp in it: until then
nothing below the prefix is an artifact. An older artifact loses its root document first,
then the objects that the new one does not have; the others are overwritten in place. The
stats sidecar stands before the stamp, so that a stamped artifact is complete whenever its
writer dies (format 7.5 has it after).

Source: format 4, 6, 7.3, 7.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.artifacts.codecs import encode_chunk
from sweep.artifacts.documents import MORTON, STAGE_CHUNK_CELLS, Templates, root_document
from sweep.artifacts.hashing import array_hash, content_hash, hash_record
from sweep.artifacts.source import STAMP, parse_root, root_parts
from sweep.fold.level import Cells, LevelData, slice_cells
from sweep.model.clock import Clock, timestamp
from sweep.model.json_text import compact_json
from sweep.model.keys import column_key, column_sidecar_key, overview_key, overview_sidecar_key
from sweep.model.ladder import Level
from sweep.model.manifest import Manifest
from sweep.model.nodes import child_words, order_of, word_of
from sweep.model.provenance import Demotion, Generation, SourceCounts
from sweep.store.base import ObjectStore
from sweep.store.io import delete_all, put_all

__all__ = ["Committed", "Member", "Origin", "Writer"]

OVERVIEW_SPEC = "zagg-overview/2"
COLUMN_SPEC = "zagg-column/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an artifact's values come from, as its provenance and stamp record it.

    ``window`` is the stamp's window: None on an unwindowed store.
    """

    node: str
    stem: str
    window: str | None
    generation: Generation
    counts: SourceCounts
    granules: int
    time_range: list[str] | None
    windows: SourceCounts | None = None
    demotions: tuple[Demotion, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One resolution of a stage column."""

    cell_order: int
    merges_from_raw: int
    data: LevelData


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An artifact as it stands on the store: its key, provenance block and stamp."""

    key: str
    block: Mapping[str, Any]
    stamp: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """An artifact about to be written; ``sidecar`` is the key of its stats sidecar."""

    key: str
    sidecar: str
    role: str
    block_name: str
    block: Mapping[str, Any]
    members: tuple[Member, ...]
    origin: Origin
    chunk_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes the artifacts of one run.

    Parameters
    ----------
    store : ObjectStore
    manifest : Manifest
    templates : Templates
        Of the manifest's fields.
    clock : Clock
    run_id : str
    program : str
        What sidecars record as the writer's version.
    """

    store: ObjectStore
    manifest: Manifest
    templates: Templates
    clock: Clock
    run_id: str
    program: str

    def overview(
        self, level: Level, origin: Origin, *, regime: str, merges_from_raw: int, data: LevelData
    ) -> Committed:
        """Write the overview of one node.

        Raises
        ------
        AccessError, StoreUnavailableError
            The store refused a write; nothing under the key is stamped then.
        """
        cell_order = level.cell_order
        now = timestamp(self.clock.now())
        block: dict[str, Any] = {
            "spec": OVERVIEW_SPEC,
            "node": origin.node,
            "order": level.node_order,
            "cell_order": cell_order,
            "source_shard_order": self.manifest.shard_order,
            "source_cell_order": self.manifest.ladder.cell_order,
            "window": origin.stem,
            "fields": {each.name: each.overview_provenance() for each in self.manifest.fields},
            "regime": regime,
            "merges_from_raw": merges_from_raw,
            "source_children": origin.counts.to_json(),
        }
        if origin.windows is not None:
            block["source_windows"] = origin.windows.to_json()
        if origin.demotions:
            block["demotions"] = [each.to_json() for each in origin.demotions]
        block |= {
            "generation": origin.generation.to_json(),
            "content_hash": content_hash(origin.node, level.node_order, cell_order, data.arrays),
            "run_id": self.run_id,
            "generated_at": now,
        }
        return self._write(
            _Draft(
                key=overview_key(origin.node, origin.stem),
                sidecar=overview_sidecar_key(origin.node, origin.stem),
                role="overview",
                block_name="zagg_overview",
                block=block,
                members=(Member(cell_order=cell_order, merges_from_raw=merges_from_raw, data=data),),
                origin=origin,
                chunk_cells=data.n_cells,
            )
        )

    def column(self, origin: Origin, members: Sequence[Member]) -> Committed:
        """Write the stage column of a dispatch node; ``members`` stand finest first.

        Raises
        ------
        AccessError, StoreUnavailableError
            The store refused a write; nothing under the key is stamped then.
        """
        now = timestamp(self.clock.now())
        block = {
            "spec": COLUMN_SPEC,
            "node": origin.node,
            "order": order_of(origin.node),
            "source_cell_order": self.manifest.ladder.cell_order,
            "window": origin.stem,
            "fields": {each.name: each.column_provenance() for each in self.manifest.fields},
            "groups": {
                str(member.cell_order): {
                    "regime": "stage-gather",
                    "merges_from_raw": member.merges_from_raw,
                    "n_cells": member.data.n_cells,
                }
                for member in members
            },
            "generation": origin.generation.to_json(),
            "source_children": origin.counts.to_json(),
            "cells_with_data_order": members[0].cell_order,
            "run_id": self.run_id,
            "generated_at": now,
        }
        return self._write(
            _Draft(
                key=column_key(origin.node, origin.stem),
                sidecar=column_sidecar_key(origin.node, origin.stem),
                role="column",
                block_name="zagg_column",
                block=block,
                members=tuple(members),
                origin=origin,
                chunk_cells=STAGE_CHUNK_CELLS,
            )
        )

    def _write(self, draft: _Draft) -> Committed:
        """Unstamp what stood there, write everything below the root, then stamp.

        No object that the new artifact has is ever deleted on the way: should two workers
        write the same artifact at once, each stamps a whole one.
        """
        root = f"{draft.key}/zarr.json"
        objects, hashes = self._render(draft)
        stamp = self._stamp(draft.origin, draft.members[0].data, hashes)
        kept = {key for key, _ in objects}
        standing = [info.key for info in self.store.list(draft.key)]
        if root in standing:
            twin = self._twin(draft, root, stamp)
            if twin is not None:
                return twin
            self.store.delete(root)
        delete_all(self.store, [key for key in standing if key not in kept and key != root])
        objects.append((draft.sidecar, self._sidecar(draft.origin.node, stamp)))
        put_all(self.store, objects)
        attributes = {"role": draft.role, draft.block_name: draft.block, STAMP: stamp}
        self.store.put(root, root_document(attributes))
        return Committed(key=draft.key, block=draft.block, stamp=stamp)

    def _twin(self, draft: _Draft, root: str, fresh: Mapping[str, Any]) -> Committed | None:
        """What this very run has written meanwhile: a doubled event leaves it as it stands."""
        raw = self.store.get(root)
        attributes = parse_root(raw) if raw is not None else {}
        if isinstance(attributes, str):
            return None
        stamp, block = root_parts(attributes, draft.block_name)
        if {**block, "generated_at": draft.block["generated_at"]} != draft.block:
            return None
        if {**stamp, "written_at": fresh["written_at"]} != fresh:
            return None
        return Committed(key=draft.key, block=block, stamp=stamp)

    def _render(self, draft: _Draft) -> tuple[list[tuple[str, bytes]], dict[str, str]]:
        """Every object below the root document, and the hash of every array."""
        objects: list[tuple[str, bytes]] = []
        hashes: dict[str, str] = {}
        for member in draft.members:
            chunk = min(draft.chunk_cells, member.data.n_cells)
            documents = self.templates.documents(member.cell_order, member.data.n_cells, chunk)
            objects += [(f"{draft.key}/{name}", data) for name, data in documents]
            for name, cells in self._arrays(draft.origin.node, member):
                hashes[f"{member.cell_order}/{name}"] = array_hash(cells)
            objects += self._chunks(draft.key, draft.origin.node, member, chunk)
        return objects, hashes

    def _arrays(self, node: str, member: Member) -> Iterator[tuple[str, Cells]]:
        yield MORTON.name, child_words(word_of(node), member.cell_order)
        yield from member.data.arrays.items()

    def _chunks(self, key: str, node: str, member: Member, chunk_cells: int) -> Iterator[tuple[str, bytes]]:
        arrays = dict(self._arrays(node, member))
        for spec in self.templates.specs:
            cells = arrays[spec.name]
            for chunk, start in enumerate(range(0, member.data.n_cells, chunk_cells)):
                data = encode_chunk(slice_cells(cells, start, start + chunk_cells), spec.fill)
                if data is not None:
                    yield f"{key}/{member.cell_order}/{spec.name}/c/{chunk}", data

    def _stamp(self, origin: Origin, finest: LevelData, hashes: Mapping[str, str]) -> dict[str, Any]:
        stamp: dict[str, Any] = {
            "spec": self.manifest.stamp_spec,
            "complete": True,
            "cells_with_data": finest.populated(self.manifest.fields.arrays()),
            "granule_count": origin.granules,
            "written_at": timestamp(self.clock.now()),
        }
        if origin.window is not None:
            stamp["window"] = origin.window
            if origin.time_range is not None:
                stamp["time_range"] = origin.time_range
        stamp["run_id"] = self.run_id
        stamp["content_hashes"] = hash_record(hashes)
        return stamp

    def _sidecar(self, node: str, stamp: Mapping[str, Any]) -> bytes:
        written_at = timestamp(self.clock.now())
        return compact_json(sidecar_record(node, stamp, program=self.program, written_at=written_at))


_NOT_OF_A_SWEEP = (
    "spill_bytes",
    "spill_blocks_closed",
    "raster_bytes_read",
    "raster_px_decoded",
    "raster_px_sampled",
    "leaf_column",
    "icechunk",
    "gb_seconds",
    "est_cost_usd",
    "max_memory_mb",
    "container_hwm_mb",
    "lambda",
)


def sidecar_record(node: str, stamp: Mapping[str, Any], *, program: str, written_at: str) -> dict[str, Any]:
    """The stats sidecar of an artifact: 34 keys, most of them of leaf work and null here."""
    return {
        "schema_version": 1,
        "shard_key": word_of(node),
        "window": stamp.get("window"),
        "unit_windows": None,
        "run_id": None,
        "semantic_hash": None,
        "zagg_version": program,
        "n_shards": 1,
        "n_granules": stamp["granule_count"],
        "granules_sha256": None,
        "content_hashes": stamp["content_hashes"],
        "n_obs": 0,
        "n_obs_read": None,
        "cells_with_data": stamp["cells_with_data"],
        "phase_timings": {},
        "duration_s": 0.0,
        "duration_total_s": None,
        **dict.fromkeys(_NOT_OF_A_SWEEP),
        "timestamp": written_at,
        "success": True,
        "error": None,
        "store_error_class": None,
        "invoked_by": None,
    }
