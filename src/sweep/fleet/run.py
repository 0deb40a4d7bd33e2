"""Run a fleet from Python: the composition root beside ``sweep fleet``.

import sweep
summary = sweep.run_fleet("s3://bucket/store", scope="all", transport="lambda", function="sweep-worker")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, Literal

from sweep.errors import AccessError, DeclarationError
from sweep.events import Observer, ignore
from sweep.fleet.dispatcher import Dispatcher
from sweep.fleet.inline import InlineTransport
from sweep.fleet.opening import Opener
from sweep.fleet.options import FleetOptions, FleetSummary
from sweep.fleet.transport import KIB, Transport, no_fleet
from sweep.stage.batch import Worker
from sweep.store.base import ObjectStore
from sweep.store.open import StoreOptions, open_store
from sweep.system import import_extra, system_runtime

__all__ = ["TRANSPORTS", "TransportChoice", "open_transport", "prepare", "run_fleet"]

type TransportName = Literal["inline", "processes", "dask", "lambda"]
TRANSPORTS: tuple[TransportName, ...] = ("inline", "processes", "dask", "lambda")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportChoice:
    """Which transport, and what it needs to know.

    Attributes
    ----------
    name : {"inline", "processes", "dask", "lambda"}
    workers : int, optional
        Worker processes (processes).
    memory_mb : int, optional
        Memory of one worker process (processes); of the function, for estimates (lambda).
    function : str, optional
        Name or ARN (lambda).
    scheduler : str, optional
        Address of a running scheduler (dask).
    payload_bytes : int
    """

    name: TransportName = "processes"
    workers: int | None = None
    memory_mb: int | None = None
    function: str | None = None
    scheduler: str | None = None
    payload_bytes: int = 250 * KIB


@contextmanager
def open_transport(
    choice: TransportChoice, store: ObjectStore, store_options: StoreOptions
) -> Iterator[Transport]:
    """A transport that is ended when the block is left; cancelled where an error leaves it.

    Raises
    ------
    DeclarationError
        The choice lacks what its transport needs, or the store cannot be shared.
    FleetUnreachableError
        The transport finds no workers.
    """
    try:
        transport = _build(choice, store, store_options)
    except AccessError as error:
        raise no_fleet(error) from error
    try:
        yield transport
    except BaseException:
        transport.close(cancel=True)
        raise
    # What still runs after the run is over has outlived its barrier.
    transport.close(cancel=transport.pending() > 0)


def _build(choice: TransportChoice, store: ObjectStore, store_options: StoreOptions) -> Transport:
    if choice.name not in TRANSPORTS:
        raise DeclarationError(
            f"transport {choice.name!r} is not one of {', '.join(TRANSPORTS)}", kind="transport"
        )
    if choice.name == "inline":
        worker = Worker(runtime=system_runtime(), open_store=Opener(store_options))
        return InlineTransport(worker, payload_bytes=choice.payload_bytes)
    if not store.capabilities.shared:
        raise DeclarationError(
            f"{store.root} lives in the memory of this process: workers of transport {choice.name!r} cannot "
            "see it; use the inline transport, a folder or s3://",
            kind="store-unshared",
        )
    if choice.name == "processes":
        from sweep.fleet.processes import ProcessesTransport  # cold start of the other transports

        return ProcessesTransport(
            choice.workers,
            memory_mb=choice.memory_mb,
            store_options=store_options,
            payload_bytes=choice.payload_bytes,
        )
    if choice.name == "dask":
        if not choice.scheduler:
            raise DeclarationError("transport 'dask' needs --scheduler, an address", kind="transport")
        import_extra("distributed", "dask")
        from sweep.fleet.dask_cluster import DaskTransport  # an optional extra

        return DaskTransport(choice.scheduler, store_options=store_options)
    if not choice.function:
        raise DeclarationError("transport 'lambda' needs --function, a name or ARN", kind="transport")
    import_extra("boto3", "aws")
    from sweep.fleet.aws_lambda import LambdaTransport  # boto3 is an optional extra

    return LambdaTransport(choice.function, region=store_options.region, payload_bytes=choice.payload_bytes)


def prepare(
    store: str | PathLike[str] | ObjectStore, store_options: StoreOptions | None
) -> tuple[ObjectStore, StoreOptions]:
    """Open the store of a fleet, made absolute so that every worker finds the same folder."""
    options = store_options or StoreOptions()
    if isinstance(store, ObjectStore):
        opened = store
    else:
        address = fspath(store)
        is_folder = "://" not in address
        opened = open_store(os.path.abspath(address) if is_folder else address, options)
    opened.sibling(".status")  # refuses a bucket root, whose sibling would be another bucket
    return opened, options


def run_fleet(
    store: str | PathLike[str] | ObjectStore,
    *,
    scope: Any,
    transport: TransportName = "processes",
    workers: int | None = None,
    memory_mb: int | None = None,
    function: str | None = None,
    scheduler: str | None = None,
    options: FleetOptions | None = None,
    store_options: StoreOptions | None = None,
    observer: Observer = ignore,
) -> FleetSummary:
    """Sweep a store with a fleet of workers.

    Parameters
    ----------
    store : str, path or ObjectStore
    scope
        ``"all"``, or nodes as :func:`sweep.run_local` takes them.
    transport : {"processes", "inline", "dask", "lambda"}
    workers, memory_mb, function, scheduler
        As in :class:`TransportChoice`.
    options : FleetOptions, optional
        Everything else; its ``scope`` gives way to the argument here.
    store_options : StoreOptions, optional
    observer : Observer

    Returns
    -------
    FleetSummary

    Raises
    ------
    SweepError
        As :func:`sweep.fleet.dispatcher.dispatch`.
    """
    opened, reach = prepare(store, store_options)
    choice = TransportChoice(
        name=transport, workers=workers, memory_mb=memory_mb, function=function, scheduler=scheduler
    )
    asked = replace(options or FleetOptions(), scope=scope)
    with open_transport(choice, opened, reach) as open_one:
        return Dispatcher(
            opened,
            lambda prefix: open_store(prefix, reach),
            open_one,
            asked,
            system_runtime(observer),
        ).run()
