"""TRL with environments: ``python -m gem_trl.grpo``, with TRL's own flags."""

from __future__ import annotations

from gem_trl._grpo import main

__all__: list[str] = []


if __name__ == "__main__":
    main()
