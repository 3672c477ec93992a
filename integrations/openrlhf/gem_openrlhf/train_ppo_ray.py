"""OpenRLHF with environments: ``python -m gem_openrlhf.train_ppo_ray``, with OpenRLHF's own flags."""

from __future__ import annotations

from gem_openrlhf._train_ppo_ray import main

__all__: list[str] = []


if __name__ == "__main__":
    main()
