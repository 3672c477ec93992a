"""`write_package`: an environment as an OpenEnv package, which its tools validate, build, and push."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_core import Env, make, spec
from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError

PROBE_SEED = 7
PROBE_STEPS = 20


def write_package(id: str, folder: str | Path, kwargs: Mapping[str, Any] | None = None) -> list[Path]:
    """Write the files of an OpenEnv package whose server is ``gem-core serve openenv``.

    The manifest gives the range of rewards as -1 to 1, or to `Env.max_return` if that is higher; edit it if
    the rewards of the environment differ.

    Args:
        id: Registered id.
        folder: Folder to write to; it must be new or empty.
        kwargs: Arguments of the environment.

    Returns:
        The files.

    Raises:
        ConfigError: The folder is not empty, or the environment needs a module that is not installed with
            gem-core.
    """
    root = Path(folder)
    if root.exists() and any(root.iterdir()):
        raise ConfigError(f"{root} is not empty; choose a new folder")
    env_spec = spec(id)
    if not isinstance(env_spec.entry_point, str) or not env_spec.entry_point.startswith(_INSTALLED):
        raise ConfigError(f"{id}: a package installs gem-core only, which does not contain this environment")
    extras = ",".join(extra for extra in (env_spec.extra, "serve") if extra)
    name = re.sub(r"[^0-9a-z]+", "_", id.lower())
    arguments = ", ".join(f"{key}={value!r}" for key, value in (kwargs or {}).items())
    served = f"{id}({arguments})" if arguments else id
    with make(id, **(kwargs or {})) as env:
        probe, max_return = _probe(env), env.max_return or 1.0
    command = ["gem-core", "serve", "openenv", served, "--host", "0.0.0.0", "--public", "--port", "8000"]
    values = {
        "name": name, "served": served, "requirement": f"gem-core[{extras}]",
        "description": env_spec.description or id, "max_reward": max(1.0, max_return),
        "command": json.dumps(command),
    }  # fmt: skip
    texts = {path: text.format(**values) for path, text in _FILES.items()}
    texts["validation/runtime.json"] = json.dumps(probe, indent=1) + "\n"
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(root / path, [text])
    return [root / path for path in texts]


def _probe(env: Env) -> dict[str, Any]:
    """Return the episode that OpenEnv's validator plays: random legal actions."""
    env.reset(seed=PROBE_SEED)
    actions = []
    for _ in range(PROBE_STEPS):
        actions.append({"message": env.sample_random_action()})
        _, _, terminated, truncated, _ = env.step(actions[-1]["message"])
        if terminated or truncated:
            break
    reset = {"episode_id": "probe", "seed": PROBE_SEED, "options": {}}
    return {"plan_schema_version": "1", "reset": reset, "actions": actions}


_INSTALLED = ("gem_core.", "gem_envs.", "gem_bridges.")
"""Packages with environments that gem-core installs."""

_FILES = {
    "openenv.yaml": """\
spec_version: 1
name: {name}
version: 0.1.0
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward: {{range: [-1.0, {max_reward}], oracle_tolerance: 0.0, floor_margin: 0.1}}
  resources: {{cpu: 1.0, memory_mb: 512, disk_mb: 1024, episode_timeout_s: 60.0}}
  capabilities: {{verifier: {{kind: reward_channel}}}}
  types: {{tags: [text-game]}}
  network: {{mode: no-network}}
  execution: {{probe_path: validation/runtime.json, dockerfile: Dockerfile, context: .}}
""",
    "Dockerfile": """\
FROM python:3.12-slim
RUN pip install --no-cache-dir '{requirement}'
EXPOSE 8000
CMD {command}
""",
    "README.md": """\
---
title: {name}
sdk: docker
app_port: 8000
tags: [openenv]
---

{description}

An action is `{{"message": TEXT}}`, one whole response of a model. The environment is `{served}` of gem-core.
""",
    "pyproject.toml": """\
[project]
name = "openenv-{name}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["{requirement}", "openenv>=0.2"]

[project.scripts]
server = "server.app:main"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["server"]
""",
    "__init__.py": "",
    "client.py": """\
from openenv.core import GenericEnvClient as Env

__all__ = ["Env"]
""",
    "server/__init__.py": "",
    "server/app.py": """\
import sys


def main():
    from gem_lab import main as run

    sys.exit(run({command}[1:]))


if __name__ == "__main__":
    main()
""",
}
