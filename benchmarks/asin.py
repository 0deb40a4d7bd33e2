"""How the package's arcsine compares with numpy's, with the system's, and with the truth.

Ten million seeded points: uniform in [-1, 1], near the ends, near 0, and the values
``2 * i / n - 1`` that digests of unit weights ask for. Run as ``python benchmarks/asin.py``;
with ``--coefficients`` it derives the polynomial anew (both need mpmath). numpy picks its
arcsine by the processor: run once more under
``NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL"`` to see the other one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import mpmath
import numpy as np
from numpy.typing import NDArray

from sweep.fold import kernels
from sweep.fold._asin import COEFFICIENTS

_SAMPLE = 20_000

type Floats = NDArray[np.float64]


def main() -> None:
    """Print the comparison, or the coefficients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10_000_000, help="how many points in all")
    parser.add_argument("--coefficients", action="store_true", help="derive the polynomial instead")
    options = parser.parse_args()
    if options.coefficients:
        print_coefficients()
        return
    for name, x in point_sets(options.points // 4).items():
        ours = own_asin(x)
        print(f"{name}, {len(x)} points")
        print(f"  from numpy {np.__version__}: {difference(ours, np.arcsin(x))}")
        print(f"  from the system's libm: {difference(ours, libm_asin(x))}")
        chosen = np.random.default_rng(1).choice(len(x), _SAMPLE, replace=False)
        for label, function in (("own", own_asin), ("numpy", np.arcsin), ("libm", libm_asin)):
            worst = largest_error(function, x[chosen])
            print(f"  largest error of {label} on {_SAMPLE} of them: {worst:.4f} ulp")


def point_sets(n: int) -> dict[str, Floats]:
    """Four seeded sets of ``n`` points."""
    rng = np.random.default_rng(2024)
    signs = rng.choice([-1.0, 1.0], n)
    sizes = rng.integers(2, 4096, n)
    return {
        "uniform in [-1, 1]": rng.uniform(-1.0, 1.0, n),
        "1e-16 to 1 from an end": signs * (1.0 - 10.0 ** rng.uniform(-16.0, 0.0, n)),
        "1e-12 to 1 from 0": signs * 10.0 ** rng.uniform(-12.0, 0.0, n),
        "2 i / n - 1": 2.0 * (rng.integers(1, sizes) / sizes) - 1.0,
    }


def own_asin(x: Floats) -> Floats:
    """The kernel's arcsine."""
    out = np.empty_like(x)
    kernels.asin_values(x, out)
    return out


def libm_asin(x: Floats) -> Floats:
    """The arcsine that Python itself uses."""
    return np.fromiter(map(math.asin, x.tolist()), dtype=np.float64, count=len(x))


def difference(left: Floats, right: Floats) -> str:
    """How many results differ, by how many ulps."""
    steps = np.abs(left.view(np.int64) - right.view(np.int64))
    found, counts = np.unique(steps[steps > 0], return_counts=True)
    parts = [f"{count} by {step} ulp" for step, count in zip(found.tolist(), counts.tolist(), strict=True)]
    return f"{np.count_nonzero(steps) / len(left):.3%} differ ({', '.join(parts) or 'none'})"


def largest_error(function: Callable[[Floats], Floats], x: Floats) -> float:
    """The largest error in ulps of the exact value."""
    worst = 0.0
    with mpmath.workprec(160):
        for point, value in zip(x.tolist(), function(x).tolist(), strict=True):
            exact = mpmath.asin(mpmath.mpf(point))
            if exact != 0:
                worst = max(worst, float(abs(mpmath.mpf(value) - exact) / math.ulp(abs(float(exact)))))
    return worst


def print_coefficients() -> None:
    """Interpolate ``(asin(sqrt(z)) / sqrt(z) - 1) / z`` on [0, 1/4] at Chebyshev nodes."""

    def target(z: mpmath.mpf) -> mpmath.mpf:
        if z < mpmath.mpf(10) ** -20:
            return mpmath.mpf(1) / 6 + z * 3 / 40
        root = mpmath.sqrt(z)
        return (mpmath.asin(root) / root - 1) / z

    with mpmath.workprec(300):
        found, error = mpmath.chebyfit(target, [0, mpmath.mpf(1) / 4], len(COEFFICIENTS), error=True)
        for value, stored in zip(reversed(found), COEFFICIENTS, strict=True):
            print(float(value).hex(), "as stored" if float(value) == stored else f"stored as {stored.hex()}")
        print(f"relative error 2**{float(mpmath.log(error * 6, 2)):.1f}")


if __name__ == "__main__":
    main()
