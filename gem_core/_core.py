"""The environment contract: `Env`, `Observation`, and `Info`.

An environment is a text game for a language model. Each call of `step` takes one whole response:

    env = gem_core.make("game:GuessTheNumber-v0-easy")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(r"I try \\boxed{5}")

The signatures follow Gymnasium, with text instead of arrays. This module imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypedDict

from gem_core._util.checks import check_int
from gem_core._util.closing import Closing
from gem_core._util.copies import copy_state
from gem_core._util.messages import error_line
from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError, ResetNeeded

if TYPE_CHECKING:
    from typing_extensions import Self

    from gem_core._spec import EnvSpec

Observation: TypeAlias = str | list[dict[str, Any]]
"""Text, or a list of OpenAI-style content parts when there are images; `gem_core.images` creates them."""

InvalidKind: TypeAlias = Literal["format", "illegal", "length"]

Split: TypeAlias = Literal["train", "eval"]
"""What a task is for: training or evaluation."""


Info: TypeAlias = dict[str, Any]
"""Additional JSON-serializable data about a step; the keys of `InfoKeys` have a fixed meaning."""


class InfoKeys(TypedDict, total=False):
    """Reserved keys of an info dict, with their types. An environment may add other keys."""

    prefix: str
    """Text shown before the observation, such as a board."""
    suffix: str
    """Text shown after the observation, such as a request for the next move."""
    success: bool
    """Whether the task was solved; set when the episode ends."""
    metrics: dict[str, float]
    """Numbers to average over episodes."""
    invalid: InvalidKind | None
    """Why the last action did not count: unparsable, against the rules, or cut by a length limit."""
    state_key: str
    """Key of the state after this step, for estimators that compare turns from the same state; without it,
    the key is a hash of all observations since the reset."""
    reward_components: dict[str, float]
    """Components of the reward of this step, by name, for estimators that normalize each one (GDPO); see
    `Env.reward_components`."""
    use_tool: bool
    """Whether the last action was a tool call."""
    tool_error: str
    """What went wrong in that tool call; absent when it worked."""
    side_turn: bool
    """Whether this turn stands beside the others, such as a summary; see `Episode.threads`."""
    agent: str
    """The agent that acts, if the episode is one side of an environment with several agents."""
    parsed_action: str
    """What the environment parsed from the response."""
    final_obs: Observation
    """Last observation of an episode that a vector env has just replaced with a new one."""
    final_info: dict[str, Any]
    """Info that belongs to `final_obs`."""
    error: str
    """The failure of the environment that cut this episode."""


class ResetOptions(TypedDict, total=False):
    """The keys that `Env.reset(options=...)` understands."""

    index: int
    """Index of the item in the environment's dataset; see `Env.items`."""
    state: dict[str, Any]
    """Start from this state (a value of `Env.get_state`) instead of a new episode."""


ResetResult: TypeAlias = tuple[Observation, Info]
StepResult: TypeAlias = tuple[Observation, float, bool, bool, Info]


class Env(Closing):
    r"""Base class of every environment.

    A subclass overrides `new_task`, `prompt`, and `step`, draws all its randomness from `self.random`, and
    lists the attributes that make up its state in `state_fields`:

        class Echo(Env):
            state_fields = ("word",)

            def new_task(self):
                self.word = self.random.choice(["yes", "no"])

            def prompt(self):
                return f"Say \\boxed{{{self.word}}}."

            def step(self, action):
                self.require_reset()
                self.end_episode()
                return "Done.", float(self.word in action), True, False, {"success": self.word in action}

    The constructor's arguments are recorded, so `spawn` works without further code.
    """

    state_fields: ClassVar[tuple[str, ...]] = ()
    """Attributes that `get_state` saves; their values must be JSON-serializable."""

    blocking: bool | Literal["cpu"] = False
    """Whether a step is too slow for an event loop: True if it waits (for a network or a subprocess),
    ``"cpu"`` if it computes for a millisecond or more. A vector env chooses threads or processes by this."""

    max_return: float | None = None
    """Best possible undiscounted return; None if it depends on the episode or is unknown."""

    format_error_reward: float = 0.0
    """Reward of a response without a readable action."""

    oracle_certain: bool = True
    """Whether the oracle reaches `max_return` in every episode; False if even the best player needs luck."""

    multi_agent: ClassVar[bool] = False
    """Whether `reset` and `step` take and return dicts by agent; see `gem_envs.multiagent`."""

    shows_images: bool = False
    """Whether observations may hold images (`gem_core.images`), which not every model can be shown."""

    reward_components: tuple[str, ...] = ()
    """Names of the components of the reward, if steps report them as ``info["reward_components"]``."""

    legal_random_actions: bool = True
    """Whether `sample_random_action` knows what is legal in the current position."""

    spec: EnvSpec | None = None
    """How `make` built this environment; None if the constructor was called directly."""

    _init_args: tuple[tuple[Any, ...], dict[str, Any]]
    _action_random: Random | None
    _running: bool
    random: Random
    """This environment's own generator, seeded by `reset(seed=...)`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._init_args = (args, kwargs)
        self.random = Random()
        self._action_random = None
        self._running = False
        return self

    def __init__(self) -> None:  # rejects arguments that a subclass without __init__ would swallow
        pass

    # -- the contract -------------------------------------------------------------------------

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        """Start a new episode.

        Args:
            seed: Seeds this environment's generator. None continues with the generator's current state,
                which gives the next episode of the same stream.
            options: See `ResetOptions`; an unknown key raises a `ConfigError`.

        Returns:
            The first observation and an info dict.

        The default calls `new_task` or restores the option ``state``, and returns `prompt`. An environment
        with other options or a first info dict overrides it.
        """
        if type(self).new_task is Env.new_task:
            raise NotImplementedError(
                f"{type(self).__name__} called Env.reset(), but defines no new_task(): define it, call "
                "self.begin_episode(seed) instead, or derive an environment written for GEM from "
                "gem_bridges.compat.Env"
            )
        check_reset_options(options, ("state",), type(self).__name__)
        state = None if options is None else options.get("state")
        if state is not None:
            self.resume_episode(state)
        if state is None or seed is not None:
            self.begin_episode(seed)
        if state is None:
            self.new_task()
        return self.prompt(), {}

    def new_task(self) -> None:
        """Set up an episode, drawing from `self.random` only; called by the default `reset`."""
        raise NotImplementedError

    def prompt(self) -> Observation:
        """Return the first observation; called by the default `reset`, also after a state was restored."""
        raise NotImplementedError

    def step(self, action: str) -> StepResult:
        """Take one whole response of the model.

        Args:
            action: The response. Text without a readable action is a bad move with the documented reward,
                never an exception.

        Returns:
            ``(observation, reward, terminated, truncated, info)``. ``reward`` is finite.
            ``terminated`` (the task ended by its rules) and ``truncated`` (a limit cut it) are never
            both true.

        Raises:
            ResetNeeded: Before the first `reset`, or after the episode ended.
        """
        raise NotImplementedError

    async def areset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        """`reset` for async callers: inline, or in a thread if the environment is `blocking`."""
        if self.blocking:
            from gem_core._util.owners import calls_of
            from gem_core._util.threads import in_thread  # asyncio: a third of the time of `import gem_core`

            with calls_of(self.unwrapped):
                if options is None:  # also for a reset without the parameter
                    return await in_thread(self.reset, seed)
                return await in_thread(self.reset, seed, options=options)
        return self.reset(seed) if options is None else self.reset(seed, options=options)

    async def astep(self, action: str) -> StepResult:
        """`step` for async callers: inline, or in a thread if the environment is `blocking`."""
        if self.blocking:
            from gem_core._util.owners import calls_of
            from gem_core._util.threads import in_thread

            with calls_of(self.unwrapped):
                return await in_thread(self.step, action)
        return self.step(action)

    def items(self, split: Split) -> Sequence[int] | None:
        """Return the items of this environment's dataset that belong to `split`.

        Args:
            split: ``"train"`` or ``"eval"``. No item is in both.

        Returns:
            Numbers for ``reset(options={"index": i})``, each at most once; empty if the split has no items.
            None if the environment has no numbered items, so that the seed alone determines an episode.
        """
        return None

    def check_services(self) -> None:
        """Check that every server that episodes depend on answers; takes a few seconds at most.

        It is called once before a run. The default does nothing, for environments that need no server.

        Raises:
            GemError: A server does not answer, or something else answers at its address.
        """

    def rest(self) -> None:
        """Give up what other episodes may be waiting for; the next call is `reset` or `close`.

        A pool calls it on an environment that it keeps for a later episode; it must not block. The default
        does nothing.
        """

    # -- players ------------------------------------------------------------------------------

    def sample_random_action(self) -> str:
        """Return a random legal response. Drawing one does not affect the episode."""
        raise NotImplementedError(f"{type(self).__name__} does not define sample_random_action()")

    def oracle_action(self) -> str | None:
        """Return a best response, or None if the environment does not know one."""
        return None

    def verify(self, action: str) -> bool | None:
        """Return a second opinion on a response: whether it solves the task.

        The default has no opinion. An environment with labels that could be wrong overrides it with a solver
        that starts from the text of the prompt, and shares nothing with the code that draws the task, stores
        its answer, and grades. It is called before `step`, and does not change the episode; see the rule
        `labels_are_right` of `gem_lab.check_env`.

        Returns:
            True if the response completes the task, and False if it is wrong or if the task has no right
            response. None if there is no second opinion, and for a right move that others must follow.
        """
        return None

    # -- state --------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the whole state as JSON-serializable data, random generators included."""
        return {
            "running": self._running,
            "random": _rng_state(self.random),
            "action_random": _rng_state(self._action_random),
            "fields": {name: copy_state(getattr(self, name, None)) for name in self.state_fields},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` of an environment with the same arguments returned.

        Raises:
            ConfigError: It is not such a state.
        """
        fields = state.get("fields") if isinstance(state, Mapping) else None
        if not isinstance(fields, Mapping) or not fields.keys() >= set(self.state_fields):
            raise ConfigError(f"{state!r:.80} is no state of {self!r}: expected what its get_state returned")
        self._running = state["running"]
        self.random.setstate(_rng_tuple(state["random"]))
        self._action_random = None
        if state["action_random"] is not None:
            self._action_random = Random()
            self._action_random.setstate(_rng_tuple(state["action_random"]))
        for name in self.state_fields:
            setattr(self, name, copy_state(fields[name]))

    def spawn(self, same_state: bool = False) -> Self:
        """Return a new environment with the same arguments; `same_state` copies the running episode too."""
        args, kwargs = self._init_args
        sibling = type(self)(*args, **kwargs)
        sibling.spec = self.spec
        if same_state:
            sibling.set_state(self.get_state())
        return sibling

    @property
    def call_readers(self) -> Sequence[Any]:
        """Parts that read tool calls, outermost first; see `gem_chat._tools.CallReader`."""
        return ()

    @property
    def unwrapped(self) -> Env:
        """The environment below all wrappers."""
        return self

    # -- helpers for subclasses ---------------------------------------------------------------

    def begin_episode(self, seed: int | None) -> None:
        """Seed the generator (unless `seed` is None) and allow steps; call it first in every `reset`."""
        if seed is not None:
            if type(seed) is not int or seed < 0:  # random.Random would take -1 for 1
                seed = check_int("seed", seed, 0, optional=True)
            self.random.seed(seed)
            self._action_random = None  # without a seed, the stream of the actions continues, too
        self._running = True

    def resume_episode(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`, an option of `reset`.

        Raises:
            ConfigError: `state` is not a state of this environment, or its episode has ended.
        """
        try:
            self.set_state(state)
        except (KeyError, TypeError, ValueError) as error:
            self.end_episode()
            raise ConfigError(
                f"options['state'] is not a state of {type(self).__name__} "
                f"({error_line(error)}); pass what get_state() returned"
            ) from error
        if not self._running:
            raise ConfigError("options['state'] belongs to an episode that has ended; pass an earlier state")

    def require_reset(self) -> None:
        """Raise `ResetNeeded` unless an episode is running; call it first in every `step`."""
        if not self._running:
            raise ResetNeeded(
                f"{type(self).__name__}.step() was called without a running episode; call reset() first"
            )

    def end_episode(self) -> None:
        """Reject further steps until the next `reset`."""
        self._running = False

    @property
    def action_random(self) -> Random:
        """Generator for `sample_random_action`: derived from `random`'s state without drawing from it."""
        if self._action_random is None:
            twin = Random()
            twin.setstate(self.random.getstate())
            self._action_random = derive_rng("actions", twin.getrandbits(64))
        return self._action_random

    # -- plumbing -----------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{f' {self.spec.id}' if self.spec else ''}>"


def check_reset_options(options: ResetOptions | None, known: Sequence[str], who: str) -> None:
    """Check that all options of a reset are `known` to `who`.

    Raises:
        ConfigError: An option is unknown; the message names the known ones.
    """
    unknown = [key for key in options or () if key not in known]
    if unknown:
        names = " and ".join(map(repr, known))
        raise ConfigError(f"unknown reset options {unknown}; {who} accepts {names or 'none'}")


def require_one_agent(env: Env, who: str) -> None:
    """Reject an environment with several agents, because `who` plays only one.

    Raises:
        ConfigError: The environment has several agents; the message says what to do.
    """
    if env.multi_agent:
        raise ConfigError(
            f"{env!r} has several agents, but {who} plays one: name an opponent for the others, or play them "
            "all with run_agents or `gem-core train`"
        )


def _rng_state(generator: Random | None) -> list[Any] | None:
    if generator is None:
        return None
    version, words, gauss = generator.getstate()
    return [version, list(words), gauss]


def _rng_tuple(state: list[Any]) -> tuple[Any, ...]:
    version, words, gauss = state
    return version, tuple(words), gauss
