"""`Game`: one game of TextArena, isolated from the others and from the rest of the process.

TextArena seeds and draws from the generators of `random` and numpy that the whole process shares, keeps the
observations of the last game after a reset, and downloads data of NLTK while a module is imported. A `Game`
swaps its own generator states in around each call, under one lock; builds a new game for each episode from
the ``-raw`` id, which has no stateful wrappers; and replaces a download by an error that names the command to
run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gem_bridges._foreign import check_dict, foreign_error
from gem_core._core import InvalidKind
from gem_core._observations import encodable
from gem_core._util.forks import ForkSafeLock
from gem_core.errors import ConfigError, DataError, GemError, MissingDependency

_MOST_PLAYERS = 16
_FOLDERS = ("corpora", "taggers", "tokenizers")
_lock = ForkSafeLock(reentrant=True)


class Game:
    """A game of TextArena.

    Args:
        game: TextArena's id; its wrappers only decide whether missing brackets are added to actions.
        players: Number of players, which the game must allow (see `number_of_players`).
        settings: Keyword arguments of the game's constructor.

    Raises:
        ConfigError: TextArena has no such game.
    """

    def __init__(self, game: str, players: int = 1, settings: dict[str, Any] | None = None) -> None:
        self.name = f"textarena:{game}"
        self.settings = check_dict("settings", settings)
        self._generators: tuple[Any, Any] | None = None
        self._game: Any = None
        with self._own_generators():
            self._id, self._adds_brackets = _raw_id(game)
        self.players = players

    @property
    def state(self) -> Any:
        """TextArena's state of the game."""
        return self._game.state

    @property
    def current(self) -> int:
        """Index of the player whose turn it is."""
        return int(self.state.current_player_id)

    @property
    def rewards(self) -> dict[int, float]:
        """Reward of each player at the end of the game; a player who is not mentioned gets 0."""
        return {player: float(reward) for player, reward in (self.state.rewards or {}).items()}

    def start(self, seed: int) -> None:
        """Build a new game, and start it."""
        self._generators = None
        with self._own_generators():
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002  # the generator that the games use
            self._game = _make(self._id, self.settings)
            self._game.reset(num_players=self.players, seed=seed)

    def take(self, action: str) -> tuple[bool, InvalidKind | None]:
        """Take an action of the current player.

        Returns:
            Whether the game is over, and "illegal" if the action did not count.
        """
        player = self.current
        if self._adds_brackets and "[" not in action and "]" not in action:
            action = f"[{action}]"
        before = getattr(self.state, "error_count", 0)
        with self._own_generators():
            done, _ = self._game.step(action)
        invalid = getattr(self.state, "error_count", 0) > before or self._game_info(player).get(
            "invalid_move"
        )
        return bool(done), "illegal" if invalid else None

    def observe(self) -> str:
        """Return the messages that the current player has not seen yet, without the actions of players."""
        import textarena

        with self._own_generators():
            _, messages = self._game.get_observation()
        own = textarena.ObservationType.PLAYER_ACTION
        return encodable("\n".join(str(text) for _, text, kind in messages if kind is not own).strip())

    def reason(self, player: int) -> str:
        """Return the message to a player that says why the game ended."""
        return encodable(str(self._game_info(player).get("reason") or "The game is over."))

    # -- plumbing -----------------------------------------------------------------------------

    def _game_info(self, player: int) -> dict[str, Any]:
        info: dict[str, Any] = (getattr(self.state, "game_info", None) or {}).get(player, {})
        return info

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        with _lock, _no_downloads():
            outer = random.getstate(), np.random.get_state()  # noqa: NPY002
            if self._generators is None:
                random.seed(0)
                np.random.seed(0)  # noqa: NPY002
            else:
                random.setstate(self._generators[0])
                np.random.set_state(self._generators[1])  # noqa: NPY002
            try:
                yield
            finally:
                self._generators = random.getstate(), np.random.get_state()  # noqa: NPY002
                random.setstate(outer[0])
                np.random.set_state(outer[1])  # noqa: NPY002


def number_of_players(game: str, players: int | None, settings: dict[str, Any] | None) -> int:
    """Return the number of players of a game: `players`, or the smallest number that the game allows.

    Raises:
        ConfigError: TextArena has no such game, or it cannot be started.
        DataError: The game needs a download.
        MissingDependency: A package is missing.
    """
    errors = []
    for count in range(1, _MOST_PLAYERS + 1) if players is None else (players,):
        try:
            Game(game, count, settings).start(0)
        except GemError:
            raise
        except ModuleNotFoundError as error:
            raise MissingDependency(
                f"textarena:{game} needs the package {error.name!r}: pip install 'gem-core[textarena]'"
            ) from error
        except Exception as error:  # the game does not state how many players it allows
            errors.append(str(foreign_error(f"textarena:{game}", f"the start with {count} players", error)))
            if isinstance(error, SyntaxError | ImportError | OSError):  # not about the number
                break
        else:
            return count
    tried = f" (also with up to {len(errors)} players)" if len(errors) > 1 else ""
    raise ConfigError(f"{errors[0]}{tried}")


def _raw_id(game: str) -> tuple[str, bool]:
    """Return the id of a game without wrappers, and whether the wrappers add brackets to actions."""
    import textarena
    from textarena.envs.registration import ENV_REGISTRY

    if game not in ENV_REGISTRY:
        from gem_core._util.messages import suggest

        raise ConfigError(f"TextArena has no game {game!r}.{suggest(game, ENV_REGISTRY)}")
    wrappers = ENV_REGISTRY[game].default_wrappers or ()
    adds_brackets = any(kind is textarena.wrappers.ActionFormattingWrapper for kind in wrappers)
    return (f"{game}-raw" if f"{game}-raw" in ENV_REGISTRY else game), adds_brackets


def _make(id: str, settings: dict[str, Any]) -> Any:
    import textarena

    return textarena.make(id, **settings)


@contextmanager
def _no_downloads() -> Iterator[None]:
    """Make NLTK's `download` only check that the data exists."""
    import nltk

    original, nltk.download = nltk.download, _check_data
    try:
        yield
    finally:
        nltk.download = original


def _check_data(info_or_id: str | Sequence[str] | None = None, *args: Any, **kwargs: Any) -> bool:
    import nltk

    names = [info_or_id] if isinstance(info_or_id, str) else list(info_or_id or ())
    for name in names:
        for path in (f"{folder}/{name}{end}" for folder in _FOLDERS for end in ("", ".zip")):
            try:
                nltk.data.find(path)
                break
            except LookupError:
                continue
        else:
            raise DataError(f"the game needs data of NLTK: python -m nltk.downloader {' '.join(names)}")
    return True
