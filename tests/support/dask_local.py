"""A Dask cluster of processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dask
from distributed import LocalCluster

__all__ = ["dask_cluster"]


@contextmanager
def dask_cluster(n_workers: int = 1, *, allowed_failures: int = 0) -> Iterator[str]:
    """The address of a scheduler whose tasks are lost with ``allowed_failures`` workers more than one."""
    settings = {
        "distributed.scheduler.allowed-failures": allowed_failures,
        "distributed.comm.timeouts.connect": "10s",
    }
    with dask.config.set(settings):
        cluster = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            # Any free port: the default is taken where tests run side by side.
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        )
        try:
            yield cluster.scheduler_address
        finally:
            cluster.close()
