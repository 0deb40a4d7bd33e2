"""Partitions: powers of four, twelve cells each."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.decimals import tail_rank, whole_sphere

from sweep.errors import DeclarationError
from sweep.model.nodes import decimals_of
from sweep.plan.partitions import check_partitions, partition_cells


@pytest.mark.parametrize("value", [1, 4, 16, 64, 4**13, np.int64(16)])
def test_powers_of_four(value: int) -> None:
    assert check_partitions(value) == value
    assert type(check_partitions(value)) is int


@pytest.mark.parametrize(
    ("value", "below", "above"), [(2, 1, 4), (8, 4, 16), (32, 16, 64), (2048, 1024, 4096)]
)
def test_an_odd_power_of_two_names_its_neighbours(value: int, below: int, above: int) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_partitions(value)
    assert f"partitions is {value}" in str(caught.value)
    assert f"use {below} or {above}" in str(caught.value)
    assert caught.value.kind == "partitions"


@pytest.mark.parametrize(
    ("value", "below", "above"), [(3, 1, 4), (5, 4, 16), (12, 4, 16), (63, 16, 64), (65, 64, 256)]
)
def test_no_power_of_two_names_the_value_and_what_is_near(value: int, below: int, above: int) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_partitions(value)
    assert f"partitions is {value}, not a power of two" in str(caught.value)
    assert f"such as {below} or {above}" in str(caught.value)


@pytest.mark.parametrize("value", [0, -4, True, 4.0, "4", None, 4**28])
def test_other_values_are_named(value: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_partitions(value)
    assert f"partitions is {value!r}" in str(caught.value)
    with pytest.raises(DeclarationError, match="partitions is"):
        partition_cells(0, value)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_a_partition_is_the_cells_of_one_tail_rank(order: int) -> None:
    sphere = whole_sphere(order)
    for index in range(4**order):
        cells = partition_cells(index, 4**order)
        expected = {each for each in sphere if tail_rank(each) == index}
        assert set(decimals_of(cells)) == expected
        assert len(cells) == 12
        assert (cells[1:] > cells[:-1]).all()


@pytest.mark.parametrize("index", [-1, 4, 1.0, "0", None, True])
def test_an_index_out_of_range_is_refused(index: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        partition_cells(index, 4)
    assert repr(index) in str(caught.value)
    assert "0-3" in str(caught.value)
