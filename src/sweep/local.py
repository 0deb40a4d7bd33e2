"""Sweep a store in this process, from Python.

    import sweep
    summary = sweep.run_local("s3://bucket/store", scope="all")

Composition root for scripts and notebooks; ``sweep local`` is the same on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sweep.events import Observer, ignore
from sweep.plan.leaves import Ref
from sweep.stage.run import SweepOptions, SweepSummary, sweep_store
from sweep.store.open import StoreLike, StoreOptions, as_store
from sweep.system import system_runtime

__all__ = ["run_local"]


def run_local(
    store: StoreLike,
    *,
    scope: Any,
    leaves: Iterable[Ref | int] | None = None,
    options: SweepOptions | None = None,
    store_options: StoreOptions | None = None,
    observer: Observer = ignore,
) -> SweepSummary:
    """Build every level above the leaves of a store.

    Parameters
    ----------
    store : str, path or ObjectStore
        A folder, ``file://``, ``s3://bucket/prefix``, or a store that is already open.
    scope
        ``"all"`` for the whole store, or nodes: decimals (``"3111"``), packed words, or a
        mapping or iterable of them.
    leaves : iterable of (word, window) pairs or words, optional
        The work set; found from the store's run records where None.
    options : SweepOptions, optional
        Everything else; its ``scope`` and ``leaves`` give way to the arguments here.
    store_options : StoreOptions, optional
        Region, endpoint and signing of an ``s3://`` address.
    observer : Observer
        Takes progress events.

    Returns
    -------
    SweepSummary

    Raises
    ------
    SweepError
        As :func:`sweep.stage.run.sweep_store`.
    """
    asked = replace(options or SweepOptions(), scope=scope, leaves=leaves)
    return sweep_store(as_store(store, store_options), asked, system_runtime(observer))
