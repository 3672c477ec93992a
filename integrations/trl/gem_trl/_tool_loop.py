"""Environments in TRL's own tool loop, through the argument ``environment_factory`` of its `GRPOTrainer`.

    Wordle = gem_trl.environment("game:Wordle-v0")
    trainer = GRPOTrainer(
        model, args=args, train_dataset=Wordle.dataset(10_000), environment_factory=Wordle
    )

The model acts by calling the tool ``act``; the reward of an episode is its return. TRL owns the loop, so some
properties of `gem_trl.GemGRPOTrainer` are missing:

- An episode has one reward, and all of its tokens have the same advantage: there is no credit per turn.
- The environment sees the argument of the tool call instead of the whole response. A response without a
  readable call ends the episode, and the environment's reward for bad format does not apply.
- The limits on turns and tokens are TRL's ``max_tool_calling_iterations`` and ``max_completion_length``. If
  the answer to an action does not fit, TRL drops the answer, but the reward of the action counts.
- Episodes are played one after the other in the training process, without a time limit for a step.
- There are no metrics of episodes, no traces, and no images.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from gem_chat._special_tokens import separate_known
from gem_core import Env, Info, Observation, render_observation
from gem_core._core import Split, require_one_agent
from gem_core._observations import encodable, observation_text
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError
from gem_core.rollout._calls import start_closing
from gem_core.tasks import EnvChoice, make_tasks, read_task, reset_arguments
from gem_core.trainers import pack_task
from gem_core.trainers._tasks import check_environment

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

OVER = "The episode is over."
"""Answer to an action after the end of an episode."""


def environment(env: str, *, wrappers: str = "", parse_special: bool = False) -> type[ToolEnvironment]:
    """Return a class for ``environment_factory`` that plays one environment.

    For several environments, pass TRL a dict from ``Class.__name__`` to the class, and concatenate the
    datasets of the classes. TRL logs the returns as ``rewards/<Class.__name__>/mean``.

    Args:
        env: Environment id with optional arguments, such as ``"game:GuessTheNumber-v0(max_number=50)"``.
        wrappers: Wrappers around the environment, as in `gem_core.make`.
        parse_special: Whether a control token that the environment spells, such as ``<|im_end|>``, becomes
            that token. By default, a word joiner (U+2060) in it keeps TRL from parsing it.

    Raises:
        ConfigError: The environment rejects its arguments, shows images, or has several agents.
        GemError: As in `gem_core.make`.
    """
    choice = EnvChoice.parse(env)
    check_environment(choice, wrappers, no_images="TRL's tool loop shows the answers of a tool as text")
    with choice.make() as built:
        require_one_agent(built, "TRL's tool loop")
    return type(
        choice.label,
        (ToolEnvironment,),
        {"_choice": choice, "_wrappers": wrappers, "_parse_special": parse_special},
    )


class _Class(type):
    """Class of `ToolEnvironment` and its subclasses.

    TRL 1.14 and older turn class methods into tools, too, so instances must not show `dataset`.
    """

    _choice: EnvChoice

    def dataset(cls, num_tasks: int, *, seed: int = 0, split: Split = "train") -> Dataset:
        """Return a dataset with one task per row and an empty user message, which the rules are added to.

        To tell the model how to call the tool, replace the column ``prompt`` by messages of your own that
        end with a user message.

        Args:
            num_tasks: Number of tasks.
            seed: Seed of the tasks, as in `gem_core.tasks.make_tasks`.
            split: Whether the tasks are for training or evaluation.
        """
        from datasets import Dataset

        tasks = make_tasks([cls._choice], num_tasks, seed=seed, split=split)
        message = {"role": "user", "content": ""}
        rows = [{"prompt": [message], "environment": cls.__name__, **pack_task(task)} for task in tasks]
        return Dataset.from_list(rows)


class ToolEnvironment(metaclass=_Class):
    """One slot of TRL's pool of environments. Every public method is a tool, except those that TRL calls.

    Attributes:
        success: Whether the last episode solved its task; False while it runs.
        turns: Number of actions of the last episode.
    """

    _choice: ClassVar[EnvChoice]
    _wrappers: ClassVar[str]
    _parse_special: ClassVar[bool]

    def __init__(self) -> None:
        self.success = False
        self.turns = 0
        self._env: Env | None = None
        self._label = ""  # of the environment in `_env`
        self._return: float | None = None
        self._over = True

    def reset(self, **row: Any) -> str:
        """Start the episode of a row of the dataset and return its first observation.

        A failing environment does not end the run: its episode gets no reward, and TRL leaves it out.

        Raises:
            ConfigError: The row names no task, or a task of another environment.
        """
        self.success, self.turns, self._return, self._over = False, 0, 0.0, False
        task = self._task(row)
        try:
            source = EnvChoice.of(task)
            if self._env is None or self._label != source.label:
                self._close()
                self._env, self._label = source.make(self._wrappers), source.label
            observation, info = self._env.reset(**reset_arguments(task))
            return self._text(observation, info)
        except Exception as error:  # an environment may raise anything
            return self._fail("reset", error)

    def act(self, action: str) -> str:
        """Act in the environment.

        Args:
            action: The action, in the format that the rules ask for.

        Returns:
            The answer of the environment.
        """
        if self._over or self._env is None or self._return is None:
            return OVER
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
            text = self._text(observation, info)
        except Exception as error:
            return self._fail("step", error)
        self.turns += 1
        self._return += reward
        self._over = terminated or truncated
        self.success = self._over and bool(info.get("success"))
        return text

    def get_reward(self) -> float | None:
        """Return the return of the episode so far; None if the environment failed."""
        return self._return

    def _text(self, observation: Observation, info: Info) -> str:
        text = encodable(observation_text(render_observation(observation, info)))
        return text if self._parse_special else separate_known(text)

    def _task(self, row: Mapping[str, Any]) -> Any:
        try:
            task = read_task(row)
        except ConfigError as error:
            raise ConfigError(
                f"a row of the dataset: {error}; make the dataset with dataset() of the environment's class"
            ) from None
        if task["env_id"] != self._choice.env_id:
            raise ConfigError(
                f"a row of the dataset names {task['env_id']}, but this class plays {self._choice.env_id}; "
                "for several environments, pass a dict to environment_factory"
            )
        return task

    def _fail(self, call: str, error: Exception) -> str:
        logger.warning("%s of %s failed: %s", call, self._choice.label, error_line(error))
        self._return, self._over = None, True
        self._close()
        return OVER

    def _close(self) -> None:
        if self._env is not None:
            start_closing(self._env)
            self._env = None
