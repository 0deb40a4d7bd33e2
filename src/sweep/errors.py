"""Every exception that the package raises, in one tree.

There is one branch for each *reaction* of a caller: fix the input, wait, stop,
retry, split, count, or repair access. A message says what is wrong, where, what
was seen, what was expected and the next step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "AccessError",
    "AdmissionError",
    "ArtifactError",
    "CapacityError",
    "ColumnMovedError",
    "DeclarationError",
    "FleetUnreachableError",
    "ForeignWriteError",
    "LeaseHeldError",
    "LeaseLostError",
    "StoreUnavailableError",
    "SweepError",
    "TransientError",
    "TransportThrottledError",
]


def _rebuild(cls: type[SweepError], message: str, kind: str, context: dict[str, Any]) -> SweepError:
    error = cls.__new__(cls)
    SweepError.__init__(error, message, kind=kind, **context)
    return error


class SweepError(Exception):
    """Base of every error of this package.

    Parameters
    ----------
    message : str
        What is wrong, where, what was seen and expected, and what to do.
    kind : str, optional
        A stable identifier of the case, for programs. Defaults to the class's own.
    **context
        Where it happened: ``key``, ``node``, ``run_id``, ... Values must be picklable.

    Notes
    -----
    Instances survive pickling with message, kind and context.
    """

    default_kind = "sweep"

    def __init__(self, message: str, *, kind: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.context = context

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.context)


class DeclarationError(SweepError, ValueError):
    """A manifest, config, scope or invocation that cannot be used. Fix the input.

    Attributes
    ----------
    problems : tuple of str
        Everything found wrong, not only the first; ``(message,)`` when there is one.
    """

    default_kind = "declaration"

    @classmethod
    def of(
        cls, subject: str, problems: Iterable[str], *, kind: str | None = None, **context: Any
    ) -> DeclarationError:
        """Build one error from all ``problems`` found in ``subject``."""
        found = tuple(problems)
        text = found[0] if len(found) == 1 else "".join(f"\n  - {problem}" for problem in found)
        return cls(f"{subject}: {text}", kind=kind, problems=found, **context)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self.context.get("problems", (self.message,)))


class AdmissionError(SweepError):
    """The store's lease does not admit this run."""

    default_kind = "admission"


class LeaseHeldError(AdmissionError):
    """Another run holds the store. Wait for it; ``context["holder"]`` says who."""

    default_kind = "lease-held"


class LeaseLostError(AdmissionError):
    """This run no longer holds the store. Stop now, write and release nothing."""

    default_kind = "lease-lost"


class ForeignWriteError(SweepError):
    """Another run is writing this store at this moment. Abort."""

    default_kind = "foreign-write"


class TransientError(SweepError):
    """A failure that may pass. Retry with backoff."""

    default_kind = "transient"


class StoreUnavailableError(TransientError):
    """The store did not answer, or answered with a passing fault."""

    default_kind = "store-unavailable"


class TransportThrottledError(TransientError):
    """The transport refused work for now."""

    default_kind = "transport-throttled"


class AccessError(SweepError):
    """The store answered no: permission, credentials, read-only, full, no such bucket.

    Retrying changes nothing until somebody repairs the access.
    """

    default_kind = "access"


class FleetUnreachableError(AccessError):
    """No event can reach a worker: no such function, no permission to invoke it, no workers."""

    default_kind = "fleet-unreachable"


class CapacityError(SweepError):
    """A batch too big for memory, time or payload. Split it and fire again."""

    default_kind = "capacity"


class ArtifactError(SweepError):
    """An artifact that is torn, unreadable or inconsistent. Count it, never fill in silence."""

    default_kind = "artifact"


class ColumnMovedError(ArtifactError):
    """A source was rewritten while it was being read. Fold again from fresh readers."""

    default_kind = "column-moved"
