"""The finisher: the single worker that writes the root objects of a store.

Root objects are rewritten by compare-and-swap, so that a writer beside this one loses
nothing.

Source: semantics 10; format 2.3, 8, 9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sweep.artifacts.coverage import read_coverage, united_coverage
from sweep.artifacts.manifest_io import manifest_gone, with_actuals
from sweep.artifacts.multiscales import multiscales_documents
from sweep.control.lease import Lease
from sweep.errors import AdmissionError, ForeignWriteError, StoreUnavailableError, SweepError
from sweep.model.clock import timestamp
from sweep.model.keys import AGGREGATION, COVERAGE, MANIFEST
from sweep.model.manifest import parse_manifest
from sweep.model.nodes import Words
from sweep.model.provenance import Actuals
from sweep.model.runs import TouchPolicy
from sweep.stage.context import PassContext
from sweep.store.base import ObjectStore, Refused

__all__ = ["Finish", "finish"]

log = logging.getLogger(__name__)

_SWAPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What the finisher did; the keys of the run record's ``finisher`` block."""

    root_moc: bool
    manifest_updated: bool
    objects_touched: int
    touch_failures: int
    touch_skipped_paths: int
    lease_released: bool
    actuals_withheld: tuple[int, ...]
    multiscales_group: bool | None

    def to_json(self) -> dict[str, Any]:
        """The ``finisher`` block of a run record, in its key order."""
        block: dict[str, Any] = {
            "root_moc": self.root_moc,
            "manifest_updated": self.manifest_updated,
            "objects_touched": self.objects_touched,
            "touch_failures": self.touch_failures,
            "lease_released": self.lease_released,
            "actuals_withheld": list(self.actuals_withheld),
            "root_moc_from": "work-set",
        }
        if self.multiscales_group is not None:
            block["multiscales_group"] = self.multiscales_group
        if self.touch_skipped_paths:
            block["touch_skipped_paths"] = self.touch_skipped_paths
        return block


def finish(
    context: PassContext,
    lease: Lease,
    *,
    shards: Words,
    actuals: Actuals,
    touch_policy: TouchPolicy = "auto",
    withheld: Collection[int] = (),
) -> Finish:
    """Write the root objects, then release the lease.

    Parameters
    ----------
    context : PassContext
    lease : Lease
        Held by this run.
    shards : ndarray of uint64
        The work set's shards; where empty, coverage and companion group stay as they are.
    actuals : Actuals
        What the run saw of each level.
    touch_policy : {"auto", "always", "never"}
    withheld : collection of int
        Orders whose manifest entries stay as they stand.

    Raises
    ------
    DeclarationError
        The manifest is gone, or no longer usable.
    AccessError, StoreUnavailableError
        Coverage or manifest cannot be written; the lease stays held.
    LeaseLostError
        The lease was lost before the last write.
    """
    now = timestamp(context.runtime.clock.now())
    if context.store.get(MANIFEST) is None:
        raise manifest_gone(context.store.root)
    covered = None
    if len(shards):
        covered = _write_coverage(context, shards, now)
    manifest_updated = bool(actuals.levels)
    if manifest_updated:
        _write_manifest(context, actuals, now, withheld)
    multiscales = None
    if covered is not None:
        multiscales = _write_multiscales(context, covered, now)
    touched, failures, skipped = _touch(context.store, touch_policy)
    return Finish(
        root_moc=covered is not None,
        manifest_updated=manifest_updated,
        objects_touched=touched,
        touch_failures=failures,
        touch_skipped_paths=skipped,
        lease_released=lease.release(),
        actuals_withheld=tuple(sorted(withheld, reverse=True)),
        multiscales_group=multiscales,
    )


def _swap(store: ObjectStore, key: str, update: Callable[[bytes | None], bytes]) -> bytes:
    """Rewrite an object by compare-and-swap until no other writer came between.

    A write whose answer was lost is read back before it counts as lost.
    """
    for _ in range(_SWAPS):
        found = store.get_versioned(key)
        data = update(None if found is None else found.data)
        try:
            if found is None:
                outcome = store.put_if_absent(key, data)
            else:
                outcome = store.put_if_match(key, data, found.etag)
        except StoreUnavailableError as error:
            if error.kind == "answer-lost" and store.get(key) == data:
                return data
            raise
        if not isinstance(outcome, Refused):
            return data
    raise StoreUnavailableError(
        f"{key} at {store.root} was rewritten by others {_SWAPS} times in a row; find who writes it, then "
        "sweep again under the same run id",
        key=key,
    )


def _write_coverage(context: PassContext, shards: Words, now: str) -> Words:
    shard_order = context.manifest.shard_order

    def update(raw: bytes | None) -> bytes:
        return united_coverage(read_coverage(raw, shard_order), shards, shard_order, now)

    written = read_coverage(_swap(context.store, COVERAGE, update), shard_order)
    assert written is not None
    return written.words


def _write_manifest(context: PassContext, actuals: Actuals, now: str, withheld: Collection[int]) -> None:
    def update(raw: bytes | None) -> bytes:
        if raw is None:
            raise manifest_gone(context.store.root)
        return with_actuals(
            parse_manifest(raw, context.store.root).document,
            context.manifest.ladder,
            actuals,
            run_id=context.run_id,
            now=now,
            withheld=withheld,
        )

    _swap(context.store, MANIFEST, update)


def _write_multiscales(context: PassContext, covered: Words, now: str) -> bool:
    manifest = context.manifest
    if manifest.is_windowed and not manifest.all_time:
        return False
    documents = multiscales_documents(
        manifest, covered, now=now, members_source=COVERAGE, members_generated_at=now
    )
    try:
        for key, data in documents:
            context.store.put(key, data)
    except (AdmissionError, ForeignWriteError):
        raise
    except SweepError as error:
        log.warning(
            "companion group not written", extra={"event": "multiscales-failed", "why": error.message}
        )
        return False
    return True


def _touch(store: ObjectStore, policy: TouchPolicy) -> tuple[int, int, int]:
    """Renew the age of objects under a lifecycle rule: (touched, failed, skipped)."""
    if policy == "never":
        return 0, 0, 0
    if policy == "auto" and _is_published(store.root):
        return 0, 0, 1
    try:
        return int(store.touch(AGGREGATION)), 0, 0
    except (AdmissionError, ForeignWriteError):
        raise
    except SweepError as error:
        log.warning("touch failed", extra={"event": "touch-failed", "key": AGGREGATION, "why": error.message})
        return 0, 1, 0


def _is_published(root: str) -> bool:
    """Whether a bucket's name says that it is an open-data one, which has no lifecycle of ours."""
    return root.startswith("s3://") and "opendata" in root.removeprefix("s3://").partition("/")[0]
