"""Kernels against their twins bit for bit, and twins against plain numpy."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sweep.fold import kernels, twins
from sweep.fold.ragged import offsets_of

FAN_INS = (1, 2, 3, 4, 16)
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    2.5,
    1e300,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
    -float("nan"),
)

type Columns = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]]


def bits(array: NDArray[Any]) -> bytes:
    """The bytes of ``array``, where every NaN counts as the same."""
    return np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes()


def floats(width: int) -> st.SearchStrategy[float]:
    ordinary = st.floats(width=32 if width == 32 else 64)
    return st.one_of(
        ordinary, st.sampled_from([v for v in SPECIAL if width == 64 or abs(v) not in (1e300, 5e-324)])
    )


@given(data=st.data(), fan_in=st.sampled_from(FAN_INS), law=st.sampled_from(sorted(kernels.LAWS.values())))
@pytest.mark.parametrize("width", [32, 64])
def test_exact_floats(data: st.DataObject, width: int, fan_in: int, law: int) -> None:
    dtype = np.dtype(f"float{width}")
    size = fan_in * data.draw(st.integers(0, 5))
    values = data.draw(arrays.arrays(dtype, size, elements=floats(width)))
    fill = dtype.type(data.draw(st.sampled_from([float("nan"), -9999.0, 0.0, 1.5])))
    outs = [np.empty(size // fan_in, dtype=dtype) for _ in range(2)]
    kernel, twin = (getattr(module, f"fold_exact_f{width}") for module in (kernels, twins))
    kernel(values, fan_in, law, fill, outs[0])
    twin(values, fan_in, law, fill, outs[1])
    assert bits(outs[0]) == bits(outs[1])


@given(data=st.data(), fan_in=st.sampled_from(FAN_INS), law=st.sampled_from(sorted(kernels.LAWS.values())))
@pytest.mark.parametrize("name", ["int64", "uint64"])
def test_exact_integers(data: st.DataObject, name: str, fan_in: int, law: int) -> None:
    dtype = np.dtype(name)
    size = fan_in * data.draw(st.integers(0, 5))
    limits = np.iinfo(dtype)
    whole = st.one_of(
        st.sampled_from([0, 1, 7, limits.min, limits.max]), st.integers(int(limits.min), int(limits.max))
    )
    values = data.draw(arrays.arrays(dtype, size, elements=whole))
    fill = dtype.type(data.draw(st.sampled_from([0, 7, limits.max])))
    outs = [np.empty(size // fan_in, dtype=dtype) for _ in range(2)]
    suffix = "i64" if name == "int64" else "u64"
    getattr(kernels, f"fold_exact_{suffix}")(values, fan_in, law, fill, outs[0])
    twins.fold_exact(values, fan_in, law, fill, outs[1])
    assert outs[0].tobytes() == outs[1].tobytes()


@given(data=st.data(), fan_in=st.sampled_from(FAN_INS))
def test_packed(data: st.DataObject, fan_in: int) -> None:
    size = fan_in * data.draw(st.integers(0, 4))
    words = data.draw(arrays.arrays(np.uint64, size))
    counts = data.draw(arrays.arrays(np.int64, size, elements=st.integers(-2, 2**40)))
    outs = [np.empty(size // fan_in, dtype=np.uint64) for _ in range(2)]
    kernels.fold_packed(words, counts, fan_in, outs[0])
    twins.fold_packed(words, counts, fan_in, outs[1])
    assert outs[0].tobytes() == outs[1].tobytes()


@given(
    cells=st.lists(st.binary(max_size=9), max_size=6), width=st.sampled_from([4, 8]), cut=st.integers(0, 60)
)
def test_bytes(cells: list[bytes], width: int, cut: int) -> None:
    offsets = offsets_of(np.array([len(cell) for cell in cells], dtype=np.int64))
    data = np.frombuffer(b"".join(cells), dtype=np.uint8)
    framed = [np.zeros(width * len(cells) + len(data), dtype=np.uint8) for _ in range(2)]
    kernels.frame(offsets, data, width, framed[0])
    twins.frame(offsets, data, width, framed[1])
    assert framed[0].tobytes() == framed[1].tobytes()
    if width == 4:
        raw = framed[0][: max(len(framed[0]) - cut, 0)]
        read = [(np.zeros_like(offsets), np.zeros(len(data), dtype=np.uint8)) for _ in range(2)]
        counts = [module.unframe(raw, 0, *outs) for module, outs in zip((kernels, twins), read, strict=True)]
        assert counts[0] == counts[1]
        assert [array.tobytes() for array in read[0]] == [array.tobytes() for array in read[1]]
    mirrored = [np.zeros(len(data), dtype=np.uint8) for _ in range(2)]
    lengths = np.diff(offsets)
    places = len(data) - offsets[1:]
    for module, out in zip((kernels, twins), mirrored, strict=True):
        module.copy_ranges(data, offsets[:-1], places, lengths, out)
    assert mirrored[0].tobytes() == mirrored[1].tobytes() == b"".join(reversed(cells))


@st.composite
def digest_blocks(draw: st.DrawFn, fan_in: int) -> Columns:
    """Rows, row offsets, locations and times of a block: sorted runs, ties and oddities."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_cells = fan_in * draw(st.integers(1, 4))
    longest = draw(st.sampled_from([1, 3, 20, 200]))
    sizes = rng.integers(0, longest + 1, n_cells) * (rng.random(n_cells) < draw(st.sampled_from([0.3, 1.0])))
    n = int(sizes.sum())
    offsets = offsets_of(sizes.astype(np.int64))
    means = rng.normal(0, 10, n)
    if draw(st.booleans()):
        means = np.round(means * draw(st.sampled_from([0.1, 1.0, 100.0])))
    if draw(st.booleans()):
        means = means.astype(np.float32).astype(np.float64)
    if draw(st.booleans()):
        for start, stop in itertools.pairwise(offsets.tolist()):
            means[start:stop].sort()
    weights = rng.choice(draw(st.sampled_from([(1.0,), (1.0, 2.0, 40.0), (0.25, 1e-9, 3e5), (0.0, 1.0)])), n)
    rows = np.stack([means, weights], axis=1).reshape(n, 2)
    for column in range(2):
        if n > 0 and draw(st.integers(0, 9)) == 0:
            odd = rng.choice(SPECIAL, n)
            rows[:, column] = np.where(rng.random(n) < 0.3, odd, rows[:, column])
    words = [
        rng.integers(1, 4, n).astype(np.uint64) << np.uint64(60),
        rng.integers(1, 2**62, n).astype(np.uint64),
    ]
    kept = [array if draw(st.booleans()) else array[:0] for array in words]
    return rows, offsets, kept[0], kept[1]


def fold_with(module: Any, block: Columns, fan_in: int, delta: float) -> tuple[object, ...]:
    n = len(block[0])
    centroids = np.zeros((n, 2), dtype=np.float32)
    spans, order = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    counts = np.zeros((len(block[1]) - 1) // fan_in, dtype=np.int64)
    module.fold_digests(*block, fan_in, delta, centroids, spans, counts, order)
    return bits(centroids), spans.tolist(), counts.tolist(), order.tolist()


@settings(max_examples=400, deadline=None)
@given(
    data=st.data(),
    fan_in=st.sampled_from(FAN_INS),
    delta=st.sampled_from([1.0, 2.0, 7.5, 24.0, 128.0, 512.0]),
)
def test_digests(data: st.DataObject, fan_in: int, delta: float) -> None:
    block = data.draw(digest_blocks(fan_in))
    assert fold_with(kernels, block, fan_in, delta) == fold_with(twins, block, fan_in, delta)


@given(
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=24),
    delta=st.sampled_from([2.0, 3.0, 4.0, 6.0, 12.0, 24.0]),
)
def test_digests_whose_scale_meets_the_edge_exactly(counts: list[int], delta: float) -> None:
    """Quarters of the weight lie on whole steps of the scale where 6 divides delta."""
    weights = np.array([*counts, sum(counts), sum(counts), sum(counts)], dtype=np.float64)
    rows = np.stack([np.arange(len(weights), dtype=np.float64), weights], axis=1)
    none = np.empty(0, dtype=np.uint64)
    block = (rows, np.array([0, 1, len(rows)], dtype=np.int64), none, none)
    assert fold_with(kernels, block, 2, delta) == fold_with(twins, block, 2, delta)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairwise_sums_are_those_of_numpy(dtype: type[Any]) -> None:
    rng = np.random.default_rng(11)
    sizes = np.concatenate([np.arange(0, 300), rng.integers(300, 3000, 200), [3000]])
    offsets = offsets_of(sizes)
    n = int(offsets[-1])
    weights = (rng.normal(0, 1, n) * 10.0 ** rng.integers(-3, 4, n)).astype(dtype)
    out = np.empty(len(sizes))
    kernel = kernels.sum_weights_f32 if dtype is np.float32 else kernels.sum_weights_f64
    kernel(weights, offsets, out)
    expected = [np.add.reduce(weights[a:b]) for a, b in itertools.pairwise(offsets.tolist())]
    assert out.tobytes() == np.array(expected, dtype=np.float64).tobytes()


@pytest.mark.parametrize("fan_in", [1, 5, 8, 16, 100, 128, 129, 300, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_sums_are_those_of_numpy(dtype: type[Any], fan_in: int) -> None:
    values = np.random.default_rng(12).normal(0, 1, 20 * fan_in).astype(dtype)
    out = np.empty(20, dtype=dtype)
    kernel = kernels.fold_exact_f32 if dtype is np.float32 else kernels.fold_exact_f64
    kernel(values, fan_in, kernels.LAWS["sum"], dtype(np.nan), out)
    assert out.tobytes() == values.reshape(20, fan_in).sum(axis=1).tobytes()


@pytest.mark.parametrize("n_rows", [*range(2, 40), 130, 260, 1000, 3000])
def test_one_centroid_sums_as_reduceat_does(n_rows: int) -> None:
    """With a budget of 1 or less all rows fall into one centroid."""
    rng = np.random.default_rng(n_rows)
    rows = np.stack([np.sort(rng.normal(0, 1, n_rows)), rng.uniform(0.1, 9, n_rows)], axis=1)
    none = np.empty(0, dtype=np.uint64)
    centroids = np.zeros((n_rows, 2), dtype=np.float32)
    spans, order = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    counts = np.zeros(1, dtype=np.int64)
    offsets = np.array([0, 1, n_rows], dtype=np.int64)
    kernels.fold_digests(rows, offsets, none, none, 2, 1.0, centroids, spans, counts, order)
    weight = np.add.reduceat(rows[:, 1], [0])[0]
    mean = np.add.reduceat(rows[:, 0] * rows[:, 1], [0])[0] / weight
    assert counts.tolist() == [1]
    assert centroids[0].tobytes() == np.array([mean, weight]).astype(np.float32).tobytes()


def test_names_and_kernels_match() -> None:
    callables = {name for name in kernels.__all__ if name not in ("LAWS", "warm")}
    assert callables <= set(twins.__all__)


def test_warm_runs_every_kernel() -> None:
    kernels.warm()
