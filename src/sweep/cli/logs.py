"""Where the package's log goes when the command line runs."""

from __future__ import annotations

import logging

__all__ = ["configure_logging"]

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _Formatter(logging.Formatter):
    """One line a record, its ``extra`` fields behind the message."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        fields = " ".join(f"{key}={value}" for key, value in extra.items() if key != "event")
        return f"{record.levelname.lower()}: {record.getMessage()} {fields}".rstrip()


def configure_logging(verbosity: int) -> None:
    """Send the package's log to standard error: nothing, ``-v`` INFO, ``-vv`` DEBUG."""
    logger = logging.getLogger("sweep")
    if verbosity <= 0:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
