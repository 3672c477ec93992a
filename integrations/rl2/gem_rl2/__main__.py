"""``python -m gem_rl2`` prints the value of ``rollout.env_path``."""

from __future__ import annotations

import sys

from gem_rl2 import ENV_PATH

sys.stdout.write(f"{ENV_PATH}\n")
