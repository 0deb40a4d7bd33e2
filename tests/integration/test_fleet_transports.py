"""Whole stores swept over each transport, against the store that the reference left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from tests.reference import ReferenceStore
from tests.support.compare import compare_objects, node_objects
from tests.support.sweeping import make_runtime
from tests.support.waves import drained, run_waves

from sweep.fleet.inline import InlineTransport
from sweep.fleet.opening import Opener
from sweep.fleet.processes import ProcessesTransport
from sweep.fleet.transport import Transport
from sweep.stage.batch import Worker


def inline() -> Transport:
    return InlineTransport(Worker(runtime=make_runtime(), open_store=Opener()))


def processes() -> Transport:
    return ProcessesTransport(2)


@pytest.mark.parametrize("make", [inline, processes])
def test_a_store_swept_over_a_transport_equals_the_references(
    reference_store: ReferenceStore, make: Callable[[], Transport]
) -> None:
    root = reference_store("kitchen_sink", "pre")
    with closing(make()) as transport:
        run_waves(root, drained(transport))
    expected = node_objects(reference_store("kitchen_sink", "post"))
    assert len(expected) > 100
    assert compare_objects(expected, node_objects(root), same_runs=True) == []
