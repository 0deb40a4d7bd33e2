"""``python -m sweep.fleet STORE ...``: the dispatcher, the same as ``sweep fleet``."""

from __future__ import annotations

import sys

from sweep.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "fleet")
    main()
