r"""`TurnBasedEnv`: the base class of environments in which each response makes one move.

The move is the last readable ``\boxed{...}`` of a response. All subclasses treat moves in the same way:

| response | reward | effect |
|---|---|---|
| without a readable move | `format_error_reward` | terminates the episode, ``info["invalid"] == "format"`` |
| against the rules | 0 | uses up the turn, ``info["invalid"] == "illegal"`` |
| a legal move | set by the subclass | uses up the turn, ``info["invalid"]`` is None |
| on the last turn, not ending the episode by the rules | adds `limit_reward` | truncates the episode |

A subclass may deviate: WikiGame clears `format_error_ends` and sets its own reward for illegal moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from gem_core import Env, Info
from gem_core._core import ResetOptions, ResetResult, StepResult, check_reset_options
from gem_core._util.checks import check_int, expected
from gem_core.errors import ConfigError, ResetNeeded
from gem_envs._text import boxes, plain, undecorated

Move = TypeVar("Move")

MoveVerdict: TypeAlias = Literal["continue", "solved", "lost", "illegal"]
"""Effect of a readable move. An illegal move is not played, and the episode continues."""

MoveResult: TypeAlias = tuple[str, float, MoveVerdict]
"""Text for the player, reward (0 for an illegal move, except in WikiGame), and verdict.

A plain tuple: building any other object would cost a fifth of a step.
"""


class TurnBasedEnv(Env, Generic[Move]):
    r"""Base class of turn-based environments. A subclass defines the setup, the moves, and the observations:

        class Coin(TurnBasedEnv[str]):
            state_fields = (*TurnBasedEnv.state_fields, "coin")

            def new_game(self):
                self.turn_limit = 3
                self.coin = self.random.choice(["heads", "tails"])

            def rules(self):
                return r"Name the side of the coin, as \boxed{heads} or \boxed{tails}."

            def parse(self, text):
                return text if text.isalpha() else None

            def play(self, move):
                if move not in ("heads", "tails"):
                    return "A coin has no such side.", 0.0, "illegal"
                return ("Right.", 1.0, "solved") if move == self.coin else ("Wrong.", 0.0, "continue")

            def random_move(self, random):
                return random.choice(["heads", "tails"])

    `state_fields` lists every attribute that a running episode needs, so `get_state` is complete.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("turn", "turn_limit")
    format_error_reward = -0.1
    """Reward of a response without a readable move."""
    format_error_ends: ClassVar[bool] = True
    """Whether such a response ends the episode; otherwise it uses up the turn."""
    form: ClassVar[str] = "\\boxed{}"
    """How a response marks a move, for messages."""
    unreadable: ClassVar[str] = "The box holds no readable move."
    """Message about a response in which a move is marked but cannot be read."""
    num_items: int = 0
    """Number of items to choose from; ``reset(options={"index": i})`` plays item i. 0 if there are none."""
    max_return: float | None = 1.0
    """A perfect episode earns 1 in total."""

    turn: int
    """Number of turns used in this episode."""
    turn_limit: int
    """Number of turns of this episode; the last one truncates it."""

    # -- hooks --------------------------------------------------------------------------------

    def new_game(self) -> None:
        """Set `turn_limit` and the initial position, drawing from `self.random` only."""
        raise NotImplementedError

    def rules(self) -> str:
        """Return the first observation: the task, the limits, and the answer format."""
        raise NotImplementedError

    def parse(self, text: str) -> Move | None:
        """Read a move from the stripped content of a box; None if it is not a move.

        `step` then tries the content again without a surrounding ``\\text{...}``, ``$...$``, and the like
        (`undecorated`), without brackets, quotation marks, and a label (`plain`), and then the boxes before
        it. A response without a readable box is a format error.
        """
        raise NotImplementedError

    find = staticmethod(boxes)
    """Return the candidate moves in a response, last box first; the first readable one is played."""

    def take_item(self, index: int) -> None:
        """Set up item `index`, after `new_game`; for environments with `num_items`."""

    def play(self, move: Move) -> MoveResult:
        """Play a move, or reject it as illegal without changing anything."""
        raise NotImplementedError

    def random_move(self, random: Random) -> str:
        """Return a legal move, drawn from `random`, as the content of a box."""
        raise NotImplementedError

    def best_move(self) -> str | None:
        """Return a best move given what the player has seen, as the content of a box; None if unknown."""
        return None

    def board(self) -> str:
        """Return the position as the player sees it, shown below each observation."""
        return ""

    def progress(self) -> float:
        """Return the completed share of the task, from 0 to 1; a metric at the end of the episode."""
        return 0.0

    def limit_reward(self) -> float:
        """Return the extra reward of a last turn whose move was legal and did not end the episode."""
        return 0.0

    # -- the contract -------------------------------------------------------------------------

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        state, index = (None, None) if options is None else _read_options(options, self.num_items)
        self.begin_episode(seed)
        if state is None:
            self.turn = 0
            self.new_game()
            if index is not None:
                self.take_item(index)
        else:
            self.resume_episode(state)
            if seed is not None:
                self.begin_episode(seed)
        return self.rules(), {"suffix": self._suffix()}

    def step(self, action: str) -> StepResult:
        if not self._running:
            self.require_reset()
        if not isinstance(action, str):
            raise TypeError(f"an action is the response as a str, not {type(action).__name__}")
        self.turn += 1
        content, move = self._read_move(action)
        if content is None:
            return self._format_error(f"No {self.form} was found.")
        if move is None:
            return self._format_error(self.unreadable)
        text, reward, verdict = self.play(move)
        illegal = verdict == "illegal"
        info: Info = {"invalid": "illegal" if illegal else None, "parsed_action": content}
        if verdict == "solved" or verdict == "lost":
            return self._end(text, reward, info, success=verdict == "solved")
        if self.turn >= self.turn_limit:
            reward = reward if illegal else reward + self.limit_reward()
            return self._end(f"{text} No turns are left.", reward, info, success=None)
        info["suffix"] = self._suffix()
        return text, reward, False, False, info

    def sample_random_action(self) -> str:
        self._require_running("sample_random_action")
        return f"\\boxed{{{self.random_move(self.action_random)}}}"

    def oracle_action(self) -> str | None:
        self._require_running("oracle_action")
        move = self.best_move()
        return None if move is None else f"\\boxed{{{move}}}"

    # -- plumbing -----------------------------------------------------------------------------

    def _read_move(self, action: str) -> tuple[str | None, Any]:
        """Return the first answer that is a move and the move; without one, the last answer and None."""
        content = None
        for content in self.find(action):
            content = content.strip()
            for simplified in (str, undecorated, plain):
                content = simplified(content)
                move = self.parse(content)
                if move is not None:
                    return content, move
        return content, None

    def _format_error(self, reason: str) -> StepResult:
        reward, info = self.format_error_reward, {"invalid": "format"}
        if self.format_error_ends:
            return self._end(reason, reward, info, success=False)
        if self.turn >= self.turn_limit:
            return self._end(f"{reason} No turns are left.", reward, info, success=None)
        info["suffix"] = self._suffix()
        return reason, reward, False, False, info

    def _end(self, text: str, reward: float, info: Info, *, success: bool | None) -> StepResult:
        """End the episode; `success` is None at the turn limit, which truncates."""
        self.end_episode()
        info["success"] = bool(success)
        info["metrics"] = {"progress": self.progress()}
        if board := self.board():
            info["suffix"] = board
        return text, reward, success is not None, success is None, info

    def _suffix(self) -> str:
        board = self.board()
        turns = f"Turns left: {self.turn_limit - self.turn}."
        return f"{board}\n{turns}" if board else turns

    def _require_running(self, method: str) -> None:
        if not self._running:
            raise ResetNeeded(f"{type(self).__name__}.{method}() needs a running episode; call reset() first")


def check_bool(name: str, value: Any) -> bool:
    """Check for True or False.

    Raises:
        ConfigError: The value is anything else, such as 0 or "false".
    """
    if not isinstance(value, bool):
        raise expected(name, value, "True or False")
    return value


def check_together(**sizes: object) -> None:
    """Reject sizes if only some of them are None, which means that they are drawn at each reset."""
    if len({value is None for value in sizes.values()}) > 1:
        listed = ", ".join(f"{name}={value}" for name, value in sizes.items())
        raise ConfigError(f"{listed}: expected values for all, or None for all to draw them at each reset")


def _read_options(options: ResetOptions, num_items: int) -> tuple[Mapping[str, Any] | None, int | None]:
    """Return the state and the index in the options of a reset."""
    known = ("state", "index") if num_items else ("state",)
    check_reset_options(options, known, "a game")
    index = options.get("index")
    if index is None:
        return options.get("state"), None
    if options.get("state") is not None:
        raise ConfigError("reset options 'index' and 'state' cannot be combined")
    return None, check_int("index", index, 0, num_items - 1)
