"""Tests of the sweep package; shared helpers are in ``tests.reference`` and ``tests.support``."""
