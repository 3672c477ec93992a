r"""`Game`: what all text games share, so that each game holds its own rules and nothing else.

The last ``\boxed{...}`` of a response that can be read is the move. Every game treats it alike:

| the response | reward | then |
|---|---|---|
| holds no readable move | `format_error_reward` | the episode terminates, ``info["invalid"] == "format"`` |
| breaks the rules | 0 | the turn is used up, ``info["invalid"] == "illegal"`` |
| is a move | of the game | the turn is used up, ``info["invalid"]`` is None |
| is the last turn's, without an end by the rules | the game's `limit_reward` on top | truncated |

A game that says otherwise (WikiGame) sets `format_error_ends` and pays for illegal moves itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from gem_core.core import Env, Info, ResetOptions, ResetResult, StepResult, check_options
from gem_core.errors import ConfigError, ResetNeeded
from gem_core.text import boxes, undecorated

Move = TypeVar("Move")

Verdict: TypeAlias = Literal["goes on", "solved", "lost", "illegal"]
"""What a readable move led to; an illegal one was not played, and the game goes on."""

Outcome: TypeAlias = tuple[str, float, Verdict]
"""What the player is told, the reward (0 for an illegal move, except in WikiGame), and the verdict.

A plain tuple, because building anything else would cost a fifth of a step.
"""


class Game(Env, Generic[Move]):
    r"""Template of a game. A subclass says how a game is set up, read, played and shown:

        class Coin(Game[str]):
            state_fields = (*Game.state_fields, "coin")

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
                return ("Right.", 1.0, "solved") if move == self.coin else ("Wrong.", 0.0, "goes on")

            def random_move(self, random):
                return random.choice(["heads", "tails"])

    Everything that a running game needs is in `state_fields`, so `get_state` holds all of it.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("turn", "turn_limit")
    format_error_reward = -0.1
    """Paid for a response without a readable move."""
    format_error_ends: ClassVar[bool] = True
    """Whether such a response ends the episode; if not, it uses up the turn."""
    form: ClassVar[str] = "\\boxed{}"
    """How a move is marked, for messages."""
    num_items: int = 0
    """Number of items that an episode can be about; ``reset(options={"index": i})`` takes item i."""
    max_return: float | None = 1.0
    """Every game pays 1 in all for a perfect episode."""

    turn: int
    """Turns used in this episode."""
    turn_limit: int
    """Turns of this episode; the last one truncates."""

    # -- hooks --------------------------------------------------------------------------------

    def new_game(self) -> None:
        """Set `turn_limit` and the position, drawing from `self.random` only."""
        raise NotImplementedError

    def rules(self) -> str:
        """The first observation: the task, the limits and the form of an answer."""
        raise NotImplementedError

    def parse(self, text: str) -> Move | None:
        """Read the content of a box, stripped; None if it is not a move.

        It is then read again without ``\\text{...}``, ``$...$`` and the like around it. If that fails, too,
        the box before is read; a response in which no box can be read is a format error.
        """
        raise NotImplementedError

    @staticmethod
    def find(text: str) -> Iterable[str]:
        """Return what may be the move in a response, last box first; the first that `parse` reads is it."""
        return boxes(text)

    def take_item(self, index: int) -> None:
        """Make the new game one about item `index`; for games with `num_items`."""

    def play(self, move: Move) -> Outcome:
        """Carry out a move, or refuse it as illegal and change nothing.

        A plain text means that the move is played, pays nothing, and the game goes on.
        """
        raise NotImplementedError

    def random_move(self, random: Random) -> str:
        """A legal move, drawn from `random`, as it would stand in the box."""
        raise NotImplementedError

    def best_move(self) -> str | None:
        """A best move given what the player has seen, as it would stand in the box."""
        return None

    def board(self) -> str:
        """The position as the player sees it, shown below each observation."""
        return ""

    def progress(self) -> float:
        """How much of the task is done, from 0 to 1; a metric at the end of the episode."""
        return 0.0

    def limit_reward(self) -> float:
        """Paid on the last turn when its move was legal and the rules did not end the game."""
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
        content = move = None
        for content in self.find(action):
            content = content.strip()
            move = self.parse(content)
            if move is None:
                content = undecorated(content)
                move = self.parse(content)
            if move is not None:
                break
        if content is None:
            return self._format_error(f"No {self.form} was found.")
        if move is None:
            return self._format_error("The box holds no readable move.")
        text, reward, verdict = self.play(move)
        if verdict == "goes on" and self.turn < self.turn_limit:  # most steps end here
            return text, reward, False, False, {
                "invalid": None, "parsed_action": content, "suffix": self._suffix()
            }  # fmt: skip
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

    def _format_error(self, reason: str) -> StepResult:
        reward, info = self.format_error_reward, Info(invalid="format")
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


def check_count(name: str, value: int, low: int, high: int | None = None) -> int:
    """`value` when it is an int in [low, high], else a ConfigError that names the argument."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and low <= value and (high is None or value <= high):
        return value
    bounds = f"at least {low}" if high is None else f"from {low} to {high}"
    raise ConfigError(f"{name} must be a whole number {bounds}, not {value!r}")


def check_together(**sizes: object) -> None:
    """Refuse sizes of which only some are None (None: drawn at each reset)."""
    if len({value is None for value in sizes.values()}) > 1:
        given = ", ".join(f"{name}={value}" for name, value in sizes.items())
        raise ConfigError(f"give all of {', '.join(sizes)}, or none of them to draw them at reset: {given}")


def _read_options(options: ResetOptions, num_items: int) -> tuple[Mapping[str, Any] | None, int | None]:
    """The state and the index that are asked for."""
    known = ("state", "index") if num_items else ("state",)
    check_options(options, known, "a game")
    index = options.get("index")
    if index is None:
        return options.get("state"), None
    if options.get("state") is not None:
        raise ConfigError("reset options 'index' and 'state' do not go together")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < num_items:
        raise ConfigError(f"index={index!r}: expected a number from 0 to {num_items - 1}")
    return None, index
