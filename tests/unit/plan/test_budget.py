"""What a plan costs, against sums made by hand."""

from __future__ import annotations

import pytest

from sweep.plan.budget import Prices, estimate


def test_worker_seconds_memory_and_dollars() -> None:
    prices = Prices(gb_second_usd=0.5, invoke_usd=0.25, put_usd=0.02, get_usd=0.01)
    found = estimate(
        n_invokes=4, n_ladder_nodes=100, n_calls=200, memory_mb=512, node_s=0.1, invoke_s=2.0, prices=prices
    )
    assert found.worker_s == pytest.approx(100 * 0.1 + 4 * 2.0)
    assert found.gb_s == pytest.approx(18.0 / 2)
    assert found.usd == pytest.approx(9.0 * 0.5 + 4 * 0.25 + 100 * 0.02 + 100 * 0.01)
    assert (found.n_invokes, found.n_ladder_nodes) == (4, 100)


def test_nothing_costs_nothing() -> None:
    found = estimate(n_invokes=0, n_ladder_nodes=0, n_calls=0, memory_mb=2048, node_s=1.0, invoke_s=1.0)
    assert (found.worker_s, found.gb_s, found.usd) == (0.0, 0.0, 0.0)


def test_list_prices_are_those_of_a_million_requests() -> None:
    """Public lists: 0.20 dollars for a million invokes, 5 for a million PUTs, 0.40 for a million GETs."""
    prices = Prices()
    million = [1e6 * each for each in (prices.invoke_usd, prices.put_usd, prices.get_usd)]
    assert million == pytest.approx([0.20, 5.0, 0.40])
