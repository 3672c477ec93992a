"""Oat with environments: ``python -m gem_oat.train``, with Oat's own flags."""

from __future__ import annotations

from gem_oat._train import main, run

__all__ = [
    "main",
    "run",
]


if __name__ == "__main__":
    main()
