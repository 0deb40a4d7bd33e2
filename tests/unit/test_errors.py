"""The error tree: reactions, messages, pickling."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sweep import errors
from sweep.errors import (
    AccessError,
    AdmissionError,
    ArtifactError,
    CapacityError,
    ColumnMovedError,
    DeclarationError,
    FleetUnreachableError,
    ForeignWriteError,
    LeaseHeldError,
    LeaseLostError,
    StoreUnavailableError,
    SweepError,
    TransientError,
    TransportThrottledError,
)


def tree(root: type[SweepError] = SweepError) -> list[type[SweepError]]:
    """The class and all below it that the package defines."""
    below = [
        each for sub in root.__subclasses__() if sub.__module__.startswith("sweep") for each in tree(sub)
    ]
    return [root, *below]


def test_the_tree_is_what_the_module_lists() -> None:
    assert {each.__name__ for each in tree()} == set(errors.__all__)


# What a caller does with each; the reaction is the branch that it can catch.
@pytest.mark.parametrize(
    ("cls", "caught_as"),
    [
        (LeaseHeldError, AdmissionError),
        (LeaseLostError, AdmissionError),
        (StoreUnavailableError, TransientError),
        (TransportThrottledError, TransientError),
        (ColumnMovedError, ArtifactError),
        (DeclarationError, ValueError),
        (FleetUnreachableError, AccessError),
    ],
)
def test_branches(cls: type[SweepError], caught_as: type[Exception]) -> None:
    assert issubclass(cls, caught_as)


def test_reactions_do_not_overlap() -> None:
    branches = (
        DeclarationError,
        AdmissionError,
        ForeignWriteError,
        TransientError,
        AccessError,
        CapacityError,
        ArtifactError,
    )
    for cls in tree()[1:]:
        assert sum(issubclass(cls, branch) for branch in branches) == 1


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_an_error_survives_pickling(cls: type[SweepError]) -> None:
    context: dict[str, Any] = {
        "key": "2/1/all.zarr",
        "node": "-21",
        "holder": {"run_id": "stage-x", "ttl_s": 900},
    }
    error = cls("what, where, and what to do", kind="special", **context)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (copy.message, copy.kind, copy.context) == (error.message, "special", context)
    assert str(copy) == "what, where, and what to do"
    assert copy.args == error.args


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_every_class_has_a_kind_of_its_own(cls: type[SweepError]) -> None:
    assert cls("text").kind == cls.default_kind
    assert [each.default_kind for each in tree()].count(cls.default_kind) == 1
    assert cls("text").context == {}


def test_problems_of_one_and_of_many() -> None:
    alone = DeclarationError("it is wrong")
    assert alone.problems == ("it is wrong",)
    one = DeclarationError.of("morton_hive.json", ["no ladder"], kind="no-ladder", key="k")
    assert (one.message, one.problems) == ("morton_hive.json: no ladder", ("no ladder",))
    assert (one.kind, one.context["key"]) == ("no-ladder", "k")
    many = DeclarationError.of("morton_hive.json", iter(["first", "second"]))
    assert many.message == "morton_hive.json: \n  - first\n  - second"
    assert many.problems == ("first", "second")
    assert pickle.loads(pickle.dumps(many)).problems == ("first", "second")
