"""The peer program is the one whose bytes this package promises, and it stands apart."""

from __future__ import annotations

import pytest
from tests.support.programs import Peer

pytestmark = pytest.mark.interop


def test_the_peer_is_the_pinned_release(peer: Peer) -> None:
    code = "import json; from importlib.metadata import version; print(json.dumps(version('zagg')))"
    assert peer.evaluate(code) == "0.61.0"


def test_the_peer_cannot_see_this_package(peer: Peer) -> None:
    assert (
        peer.evaluate(
            "from importlib.util import find_spec; print('true' if find_spec('sweep') else 'false')"
        )
        is False
    )
