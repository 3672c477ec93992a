"""A run that learns in a minute: ``python -m gem_lab.train.demo``."""

from __future__ import annotations

from gem_lab.train._demo import main

__all__: list[str] = []


if __name__ == "__main__":
    raise SystemExit(main())
