r"""``gymnasium:ID``: a Gymnasium environment as an environment of text.

The first observation holds the docstring of the environment (its description, action and observation spaces,
rewards, and end), then the position. A position is the ``ansi`` rendering, if there is one, and the
observation with six decimals; a highlighted character is put in brackets.

A response holds the action in ``\boxed{...}``: the name or number of a discrete action, and JSON for the
other spaces. A response without an action from the space is not passed on: it uses up a turn and earns
`format_error_reward`.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium
from gymnasium import spaces

from gem_bridges._actions import Action, ActionGrammar
from gem_bridges._foreign import ForeignEnv, check_dict, json_value
from gem_bridges.gymnasium._spaces import action_schema, from_json, space_text
from gem_core import Info
from gem_core._core import ResetResult, StepResult
from gem_core._util.checks import check_number
from gem_core._util.entry_points import load_attribute
from gem_core.errors import ConfigError

ToText: TypeAlias = Callable[[Any, Any], str]
ToAction: TypeAlias = Callable[[Any, str], Any]

MAX_TURNS = 200
"""Turn limit of an environment that has no limit of its own."""
NAMES: dict[str, tuple[str, ...]] = {
    "Blackjack": ("stick", "hit"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "TaxiRainy": ("south", "north", "east", "west", "pickup", "dropoff"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "none", "right"),
    "LunarLander": ("none", "left engine", "main engine", "right engine"),
}
"""Names of the actions 0, 1, ... of Gymnasium's own environments, which only their docstrings list."""
_SECTIONS = ("Description", "Action Space", "Observation Space", "Rewards", "Episode End")
_ANSI = re.compile(r"\x1b\[([0-9;]*)m(.?)", re.DOTALL)


class GymnasiumEnv(ForeignEnv):
    """A Gymnasium environment.

    Args:
        env_id: Gymnasium's id; ``module:Name-v0`` imports the module first.
        actions: Names of the actions of a discrete space, in order. None means those of Gymnasium's own
            environments, or else numbers.
        about: Description of the task in the first observation; None means the docstring of the class.
        max_turns: Turn limit; None means the limit of the id, or 200 if it has none.
        success_at: Smallest return that counts as a success; None means the reward threshold of the id. If
            that is also None, a positive return counts.
        format_error_reward: Reward of a response without an action from the space.
        to_text: Function ``(env, observation) -> str``, or its ``module:function``, that renders a position
            of the Gymnasium environment `env`; None renders as described in the module.
        to_action: Function ``(env, response) -> action``, or its ``module:function``, that returns None for a
            response without an action; None reads responses as described in the module.
        settings: Keyword arguments of `gymnasium.make`.

    Raises:
        ConfigError: Gymnasium has no such id, or its actions have no text form.
    """

    def __init__(
        self,
        env_id: str,
        actions: Sequence[str] | None = None,
        about: str | None = None,
        max_turns: int | None = None,
        success_at: float | None = None,
        format_error_reward: float = -1.0,
        to_text: str | ToText | None = None,
        to_action: str | ToAction | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.env = _make(env_id, check_dict("settings", settings))
        spec = self.env.spec
        own_limit = None if spec is None else spec.max_episode_steps
        super().__init__(
            f"gymnasium:{env_id}",
            max_turns or own_limit or MAX_TURNS,
            spec.reward_threshold if success_at is None and spec is not None else success_at,
        )
        self.format_error_reward = check_number("format_error_reward", format_error_reward)
        self.about = _about(self.env) if about is None else about
        self.to_text: ToText | None = _function("to_text", to_text)
        self.to_action: ToAction | None = _function("to_action", to_action)
        self.space: spaces.Space[Any] = copy.deepcopy(self.env.action_space)  # drawn from without a trace
        self.names = self._check_names(env_id, actions)
        self.grammar = None if self.to_action else ActionGrammar(action_schema(self.space))
        self.mask: Any = None

    def begin(self, seed: int) -> ResetResult:
        observation, info = self.env.reset(seed=seed)
        text = self._position(observation, info)
        return (f"{self.about}\n\n{text}" if self.about else text), {"suffix": self.instructions()}

    def advance(self, action: str) -> StepResult:
        move = self.read(action)
        if move.invalid is not None:
            info: Info = {"invalid": move.invalid, "suffix": self.instructions()}
            return (
                f"{move.reason[:1].upper()}{move.reason[1:]}.",
                self.format_error_reward,
                False,
                False,
                info,
            )
        observation, reward, terminated, truncated, details = self.env.step(move.value)
        info = {"parsed_action": str(json_value(move.value)), "details": details}
        if self.success_at is None and (terminated or truncated):
            info["success"] = bool(self.total_reward + float(reward) > 0)
        return self._position(observation, details), float(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        super().close()
        self.env.close()

    def sample_random_action(self) -> str:
        if self.grammar is None:
            raise NotImplementedError(f"{self.name}: with to_action, legal responses are unknown")
        self.require_reset()
        self.space.seed(self.action_random.getrandbits(31))
        if isinstance(self.space, spaces.Discrete):
            move = int(self.space.sample(mask=self.mask))
            return f"\\boxed{{{self._name(move)}}}"
        return self.grammar.write(json_value(self.space.sample()))

    def instructions(self) -> str:
        """Return the sentence that tells a model how to answer; "" if `to_action` reads responses."""
        if self.names:
            return f"Answer with \\boxed{{action}}, where the action is one of: {', '.join(self.names)}."
        return "" if self.grammar is None else self.grammar.instructions()

    def read(self, response: str) -> Action:
        """Return the action of the space in a response."""
        if self.to_action is not None:
            move = self.to_action(self.env, response)
            return Action(None, "format", "the response holds no action") if move is None else Action(move)
        assert self.grammar is not None
        if self.names and isinstance(self.space, spaces.Discrete):
            named = ActionGrammar({"enum": list(self.names)}).read(response)
            if named.invalid is None:
                return Action(int(self.space.start) + self.names.index(named.value))
            numbered = self.grammar.read(response)
            return numbered if numbered.invalid is None else named
        action = self.grammar.read(response)
        if action.invalid is not None:
            return action
        try:
            value = from_json(action.value, self.space)
        except (ValueError, TypeError, OverflowError):
            value = None
        if value is None or not self.space.contains(value):
            return Action(None, "illegal", f"the action is not in {self.space!r:.200}")
        return Action(value)

    # -- plumbing -----------------------------------------------------------------------------

    def _position(self, observation: Any, details: Any) -> str:
        self.mask = details.get("action_mask") if isinstance(self.space, spaces.Discrete) else None
        if self.to_text is not None:
            return self.to_text(self.env, observation)
        text = space_text(observation)
        if self.env.render_mode == "ansi":
            picture = _ANSI.sub(_bracket, str(self.env.render())).strip("\n")
            text = f"{picture}\nobservation: {text}"
        if self.mask is not None:
            legal = [self._name(int(self.space.start) + i) for i, ok in enumerate(self.mask) if ok]  # type: ignore[attr-defined]
            text = f"{text}\nlegal actions: {', '.join(legal)}"
        return text

    def _name(self, move: int) -> str:
        return self.names[move - int(self.space.start)] if self.names else str(move)  # type: ignore[attr-defined]

    def _check_names(self, env_id: str, actions: Sequence[str] | None) -> tuple[str, ...]:
        if not isinstance(self.space, spaces.Discrete):
            if actions is not None:
                raise ConfigError(
                    f"actions={list(actions)}: expected None, as actions are {self.space!r:.80}"
                )
            return ()
        names = tuple(actions or NAMES.get(env_id.rpartition("-v")[0], ()))
        if names and len(names) != self.space.n:
            raise ConfigError(f"actions={list(names)}: expected {self.space.n} names, one per action")
        return names


def _make(env_id: str, settings: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        creator: Any = gymnasium.spec(env_id).entry_point
        if isinstance(creator, str):
            creator = gymnasium.envs.registration.load_env_creator(creator)
        modes = getattr(creator, "metadata", {}).get("render_modes", ())
        if "ansi" in modes:
            settings.setdefault("render_mode", "ansi")
        return gymnasium.make(env_id, disable_env_checker=True, **settings)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ConfigError(f"gymnasium:{env_id} cannot be made: {' '.join(str(error).split())}") from error


def _about(env: gymnasium.Env[Any, Any]) -> str:
    """Return the sections of a class's docstring that a player needs, or its first paragraph."""
    doc = inspect.cleandoc(type(env.unwrapped).__doc__ or "")
    start, *sections = re.split(r"^## ", doc, flags=re.MULTILINE)
    chosen = [text.strip() for text in sections if text.startswith(_SECTIONS)]
    return "\n\n".join(f"## {text}" for text in chosen) or start.split("\n\n")[0].strip()


def _bracket(match: re.Match[str]) -> str:
    return f"[{match[2]}]" if match[1] not in ("0", "") else match[2]


def _function(name: str, function: Any) -> Any:
    return load_attribute(name, function) if isinstance(function, str) else function
