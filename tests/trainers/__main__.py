"""The gem-core command with recorders of our trainers: ``python -m tests.trainers consistency --run``."""

from __future__ import annotations

import sys

from gem_lab import main
from tests.trainers.recorders import register

if __name__ == "__main__":
    register()
    sys.exit(main())
