"""ROLL's own env manager plays environments of gem-core through the shim of docs/environments/gem.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="ROLL's env managers need torch")
ROOT = Path(__file__).resolve().parents[3]
IDS = ("game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy", "math:Arithmetic-v0")


def test_rolls_env_manager_plays_our_environments(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "environments" / "gem.md").read_text()
    shim = re.search(r"```python\n((?:from gem_bridges\.compat import .*\n){2})```", page)
    assert shim is not None
    (tmp_path / "gem.py").write_text(shim[1])
    path = [str(tmp_path), os.environ["ROLL_HOME"], *filter(None, sys.path)]
    tokenizer = ROOT / "tests" / "trainers" / "tiny" / "game"
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("shim.py")), str(tokenizer), *IDS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "ROLL_LOG_DIR": str(tmp_path / "logs")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    output = json.loads(run.stdout.splitlines()[-1])
    assert output["gem"] == str(tmp_path / "gem.py")
    for env_id in IDS:
        episodes = output["results"][env_id]
        assert [episode["score"] for episode in episodes] == [1.0, 1.0]
        assert all(episode["env/T/success"] == 1.0 for episode in episodes)
