"""Constants of the arcsine that kernels and twins share.

``asin(x) = x + x*z*P(z)`` with ``z = x*x`` for ``|x| <= 0.5``, and
``pi/2 - 2*asin(sqrt((1 - x)/2))`` above. ``P`` is the polynomial of degree 12 that
interpolates ``(asin(sqrt(z))/sqrt(z) - 1)/z`` at Chebyshev nodes of [0, 0.25]; its
relative error is 2**-53. ``python benchmarks/asin.py --coefficients`` prints it anew.

Source: docs/design/0002-arcsin.md.
"""

from __future__ import annotations

__all__ = ["COEFFICIENTS", "HALF_PI", "HALF_PI_LOW", "SPLIT"]

COEFFICIENTS = (
    float.fromhex("0x1.5555555555556p-3"),
    float.fromhex("0x1.3333333332ecap-4"),
    float.fromhex("0x1.6db6db6e31f13p-5"),
    float.fromhex("0x1.f1c71c1db0623p-6"),
    float.fromhex("0x1.6e8bb1c8209a2p-6"),
    float.fromhex("0x1.1c4d35cf95421p-6"),
    float.fromhex("0x1.c9cf07674736ap-7"),
    float.fromhex("0x1.782651caa6547p-7"),
    float.fromhex("0x1.52420b04b37bep-7"),
    float.fromhex("0x1.65a9c4dfcf8b2p-8"),
    float.fromhex("0x1.1d189408314eep-6"),
    float.fromhex("-0x1.e6aaa8a0a04ccp-7"),
    float.fromhex("0x1.d72b2bc8155f8p-6"),
)
"""``P`` from the constant term up."""

HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
HALF_PI_LOW = float.fromhex("0x1.1a62633145c07p-54")
"""``pi/2 - HALF_PI``, rounded."""

SPLIT = 134217729.0
"""``2**27 + 1``: cuts a float64 into two halves of 26 bits."""
