"""``skyrl:ENV``: an environment of skyrl-gym over the rows of a dataset.

SkyRL's environments hold no tasks: a trainer passes them one row of its dataset per episode. Here the rows
are the items of the environment. They have the fields of SkyRL's datasets: "prompt" (messages),
"reward_spec", and optional ones such as "extra_info".
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import omegaconf
import skyrl_gym

from gem_bridges._foreign import ForeignEnv, check_dict
from gem_core._core import ResetResult, StepResult
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError
from gem_envs.data import open_rows

MAX_TURNS = 100
"""Turn limit without `max_turns`, because a SkyRL environment may have none."""


class SkyRLEnv(ForeignEnv):
    """An environment of skyrl-gym.

    An observation is the text of the new messages. ``metadata["truncated"]`` of the last step truncates, and
    ``metadata["success"]`` counts as the success, if the environment sets them.

    Args:
        env_id: Id in skyrl-gym; ``module:id`` imports the module first, which registers the id.
        rows: The rows, or a dataset of them as in `gem_envs.data.open_rows`.
        split: Split of the dataset; None if it has only one.
        config: Configuration of the environment.
        max_turns: Turn limit, passed to the environment; None keeps the environment's own limit.
        success_at: Smallest return that counts as a success.

    Raises:
        ConfigError: There are no rows, or skyrl-gym has no such id.
    """

    def __init__(
        self,
        env_id: str,
        rows: Sequence[dict[str, Any]] | str = (),
        split: str | None = None,
        config: dict[str, Any] | None = None,
        max_turns: int | None = None,
        success_at: float = 1.0,
    ) -> None:
        module, _, self.env_id = env_id.rpartition(":")
        if module:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ConfigError(f"skyrl:{env_id}: {module!r} cannot be imported: {error}") from error
        if self.env_id not in skyrl_gym.registry:
            known = ", ".join(sorted(skyrl_gym.registry))
            raise ConfigError(f"unknown skyrl-gym environment {self.env_id!r}. Available: {known}")
        self.rows: Any = open_rows(rows, split) if isinstance(rows, str) else list(rows)
        if not len(self.rows):
            raise ConfigError(f"skyrl:{env_id} needs rows, because environments of SkyRL hold no tasks")
        if "prompt" not in self.rows[0]:
            raise ConfigError(
                f"skyrl:{env_id}: a row has the fields {', '.join(self.rows[0])}, but no 'prompt'"
            )
        own_limit = check_int("max_turns", max_turns, 1, optional=True)
        super().__init__(f"skyrl:{env_id}", own_limit or MAX_TURNS, success_at, len(self.rows))
        self.own_limit = own_limit
        self.config = omegaconf.OmegaConf.create(check_dict("config", config))
        self.env: Any = None

    def begin(self, seed: int) -> ResetResult:
        assert self.item is not None
        row = copy.deepcopy(self.rows[self.item])
        prompt = row.pop("prompt")
        row.setdefault("extra_info", {})
        if self.own_limit is not None:
            row["max_turns"] = self.own_limit
        self._close_env()
        self.env = skyrl_gym.make(self.env_id, env_config=self.config, extras=row)
        messages, _ = self.env.init(prompt)
        return _text(messages), {}

    def advance(self, action: str) -> StepResult:
        output = self.env.step(action)
        done, details = bool(output["done"]), dict(output.get("metadata") or {})
        truncated = done and bool(details.get("truncated"))
        info: dict[str, Any] = {"details": details}
        if done and isinstance(details.get("success"), bool):
            info["success"] = details["success"]
        return _text(output["observations"]), float(output["reward"]), done and not truncated, truncated, info

    def close(self) -> None:
        super().close()
        self._close_env()

    def _close_env(self) -> None:
        if self.env is not None:
            self.env.close()
            self.env = None


def _text(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(str(message["content"]) for message in messages)
