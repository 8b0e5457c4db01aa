"""`moeshapes` with planted workers, as a process: for tests that kill it."""

from __future__ import annotations

import sys
from unittest.mock import patch

from moeshapes import cli
from planted_worker import planted_pool

if __name__ == "__main__":
    with patch("moeshapes.commands.verify.local_pool", planted_pool):
        cli.main(sys.argv[1:])
