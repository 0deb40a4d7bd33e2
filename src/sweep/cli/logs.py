"""Where the package's log goes when the command line runs."""

from __future__ import annotations

import logging

__all__ = ["configure_logging"]

_NAME = "sweep-command-line"
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _Formatter(logging.Formatter):
    """One line a record, its ``extra`` fields behind the message; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        fields = " ".join(f"{key}={value}" for key, value in extra.items() if key != "event")
        line = f"{record.levelname.lower()}: {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(verbosity: int) -> None:
    """Send the package's log to standard error: nothing, ``-v`` INFO, ``-vv`` DEBUG.

    A second call replaces what the first one set up.
    """
    logger = logging.getLogger("sweep")
    for handler in [each for each in logger.handlers if each.name == _NAME]:
        logger.removeHandler(handler)
    if verbosity > 0:
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter())
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
    else:
        # without any handler Python would print warnings itself
        handler = logging.NullHandler()
        logger.setLevel(logging.NOTSET)
    handler.name = _NAME
    logger.addHandler(handler)
