"""``python -m sweep``: the command line."""

from __future__ import annotations

from sweep.cli.main import main

if __name__ == "__main__":
    main()
