"""What every part of a pass shares.

One :class:`Runtime` is built at a composition root; one :class:`PassContext` for each run.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweep.artifacts.documents import Templates
from sweep.artifacts.source import ForeignGuard
from sweep.artifacts.writer import Writer
from sweep.errors import StoreUnavailableError, SweepError
from sweep.model.clock import timestamp
from sweep.model.keys import MANIFEST
from sweep.model.manifest import Manifest
from sweep.stage.folding import Folder
from sweep.stage.runtime import Runtime
from sweep.store.base import ObjectStore

__all__ = ["PassContext", "pass_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """A run's store, declaration and tools; ``store`` is fenced by the run's lease."""

    store: ObjectStore
    manifest: Manifest
    run_id: str
    run_started: str
    guard: ForeignGuard
    folder: Folder
    writer: Writer
    runtime: Runtime

    def end_where_gone(self, error: SweepError) -> None:
        """Return where work that failed with ``error`` may be passed over and the rest go on.

        Raises
        ------
        AccessError, StoreUnavailableError
            The store does not give its manifest either: every further call would wait for its
            timeout and fail.
        """
        if isinstance(error, StoreUnavailableError):
            self.store.get(MANIFEST)


def pass_context(
    store: ObjectStore,
    manifest: Manifest,
    *,
    run_id: str,
    runtime: Runtime,
    run_started: str | None = None,
) -> PassContext:
    """Put a run's tools together; where ``run_started`` is None, the run starts now."""
    run_started = run_started or timestamp(runtime.clock.now())
    guard = ForeignGuard(run_id=run_id, run_started=run_started)
    return PassContext(
        store=store,
        manifest=manifest,
        run_id=run_id,
        run_started=run_started,
        guard=guard,
        folder=Folder(store=store, fields=manifest.fields, guard=guard),
        writer=Writer(
            store=store,
            manifest=manifest,
            templates=Templates(manifest.fields),
            clock=runtime.clock,
            run_id=run_id,
            program=runtime.program,
        ),
        runtime=runtime,
    )
