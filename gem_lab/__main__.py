"""`python -m gem_lab` is the console script `gem-core`."""

from __future__ import annotations

import sys

from gem_lab._cli import main

if __name__ == "__main__":
    sys.exit(main())
