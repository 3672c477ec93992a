"""RL2 with environments: ``python -m gem_rl2.train`` under torchrun."""

from __future__ import annotations

from gem_rl2._train import main

__all__: list[str] = []


if __name__ == "__main__":
    main()
