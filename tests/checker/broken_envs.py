"""`Sound`, an environment that fulfills the whole contract, and variants that each break one rule."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import threading
import time
from typing import Any

import numpy as np

from gem_core import Env
from gem_core.errors import ConfigError
from gem_core.images import image_part

BROKEN: list[tuple[str, type[Env]]] = []
"""Environments, each with the rule that must catch it."""


def breaks(rule: str) -> Any:
    def add(env: type[Env]) -> type[Env]:
        BROKEN.append((rule, env))
        return env

    return add


class Sound(Env):
    """Repeat the digits in the observations, three in a row; anything else is a bad answer."""

    state_fields = ("digit", "turn", "right")
    max_return: float | None = 1.0
    format_error_reward = -0.1

    def __init__(self, digits: str = "0123456789", *, limit: int = 6) -> None:
        self.digits = digits
        self.limit = limit
        self.turn = self.right = 0
        self.digit = ""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        options = dict(options or {})
        state = options.pop("state", None)
        if options:
            raise ConfigError(f"unknown options {sorted(options)}")
        self.begin_episode(seed)
        self.turn = self.right = 0
        self.draw()
        if state is not None:
            self.set_state(state)
        return self.show(), {"suffix": "Your digit?"}

    def draw(self) -> None:
        self.digit = self.random.choice(self.digits)

    def show(self) -> Any:
        return f"Say {self.digit}."

    def parse(self, action: str) -> str | None:
        return action if len(action) == 1 and action in self.digits else None

    def step(self, action: str) -> Any:
        self.require_reset()
        self.turn += 1
        move = self.parse(action)
        info: dict[str, Any] = {"invalid": "format" if move is None else None}
        reward = self.format_error_reward if move is None else 0.0
        if move == self.digit:
            self.right += 1
            reward = 0.25 if self.right < 3 else 0.5
        terminated = self.right == 3
        truncated = self.turn >= self.limit and not terminated
        if terminated or truncated:
            self.end_episode()
            info["success"] = terminated
            info["metrics"] = {"right": self.right}
        self.draw()
        return self.show(), reward, terminated, truncated, info

    def sample_random_action(self) -> str:
        return self.action_random.choice(self.digits)

    def oracle_action(self) -> str | None:
        return self.digit

    def verify(self, action: str) -> bool | None:
        shown = re.search(r"Say (\d)", str(self.show()))
        if shown is None or (action == shown[1] and self.right < 2):
            return None  # other moves follow
        return action == shown[1]


class _Changed(Sound):
    """Changes the result of one step in the middle (`turn` 2) or the last one."""

    def change(self, result: list[Any]) -> None:
        raise NotImplementedError

    def step(self, action: str) -> Any:
        result = list(super().step(action))
        self.change(result)
        return tuple(result)


@breaks("signatures")
class OtherActionName(Sound):
    def step(self, response: str) -> Any:  # type: ignore[override]
        return super().step(response)


@breaks("signatures")
class NoOptions(Sound):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed)


@breaks("unknown_arguments")
class SwallowsArguments(Sound):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__()


@breaks("reset_results")
class NoObservation(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return None, super().reset(seed, options=options)[1]


@breaks("reset_results")
class PartWithoutType(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return [{"text": "Say 1."}], super().reset(seed, options=options)[1]


@breaks("reset_results")
class PartHoldsBytes(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return [{"type": "image", "data": b"PNG"}], super().reset(seed, options=options)[1]


@breaks("reset_results")
class ResetReturnsText(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return super().reset(seed, options=options)[0]


@breaks("reset_results")
class SuffixIsNone(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return super().reset(seed, options=options)[0], {"suffix": None}


@breaks("step_results")
class FourResults(Sound):
    def step(self, action: str) -> Any:
        return super().step(action)[:4]


@breaks("step_results")
class NanReward(_Changed):
    def change(self, result: list[Any]) -> None:
        if self.turn == 2:
            result[1] = float("nan")


@breaks("step_results")
class IntReward(_Changed):
    def change(self, result: list[Any]) -> None:
        result[1] = round(result[1])


@breaks("step_results")
class BothFlags(_Changed):
    def change(self, result: list[Any]) -> None:
        result[2] = result[3] = result[2] or result[3]


@breaks("step_results")
class FlagIsNumpy(_Changed):
    def change(self, result: list[Any]) -> None:
        result[2] = np.bool_(result[2])


@breaks("step_results")
class NoSuccess(_Changed):
    def change(self, result: list[Any]) -> None:
        result[4].pop("success", None)


@breaks("step_results")
class SuccessTooEarly(_Changed):
    def change(self, result: list[Any]) -> None:
        result[4].setdefault("success", False)


@breaks("step_results")
class UnknownInvalid(_Changed):
    def change(self, result: list[Any]) -> None:
        result[4]["invalid"] = False


@breaks("step_results")
class MetricIsText(_Changed):
    def change(self, result: list[Any]) -> None:
        result[4]["metrics"] = {"digit": self.digit}


@breaks("step_results")
class InfoHoldsSet(_Changed):
    def change(self, result: list[Any]) -> None:
        result[4]["seen"] = {1, 2}


@breaks("step_results")
class NoRandomAction(Sound):
    def sample_random_action(self) -> str:
        return Env.sample_random_action(self)


@breaks("results_are_new")
class SameInfo(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.info: dict[str, Any] = {}

    def step(self, action: str) -> Any:
        *result, info = super().step(action)
        if "success" in info:
            return (*result, info)
        self.info.clear()
        self.info.update(info)
        return (*result, self.info)


@breaks("results_are_new")
class ObservationChangesLater(Sound):
    state_fields = (*Sound.state_fields, "parts")
    parts: list[dict[str, Any]]

    def draw(self) -> None:
        super().draw()
        self.parts = [*(self.parts if self.turn else []), {"type": "text", "text": self.digit}]
        self.parts[0]["text"] = self.digit

    def show(self) -> Any:
        return self.parts


@breaks("reset_results")
class ImageIsAnAddress(Sound):
    shows_images = True

    def show(self) -> Any:
        return [{"type": "image_url", "image_url": {"url": f"https://example.org/{self.digit}.png"}}]


@breaks("reset_results")
class ImagesComeUnannounced(Sound):
    def show(self) -> Any:
        return [image_part(b"GIF89a" + self.digit.encode())]


@breaks("random_actions_are_legal")
class RandomIsIllegal(Sound):
    def sample_random_action(self) -> str:
        return self.action_random.choice("0x")


@breaks("episodes_end")
class NoLimit(Sound):
    def __init__(self) -> None:
        super().__init__(limit=10**9)

    def step(self, action: str) -> Any:
        self.right = 0
        return super().step(action)


@breaks("episodes_end")
class NonsenseIsFree(Sound):
    def step(self, action: str) -> Any:
        if self.parse(action) is None:
            self.turn -= 1
        return super().step(action)


@breaks("reset_is_needed")
class StepsBeforeReset(Sound):
    def require_reset(self) -> None:
        pass


@breaks("reset_is_needed")
class StepsAfterEnd(Sound):
    def end_episode(self) -> None:
        pass


@breaks("unknown_options")
class OptionsAreKeyError(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return super().reset(seed, options=options and {"state": options["state"]})


@breaks("best_return")
class PaysMore(Sound):
    max_return = 0.75


@breaks("best_return")
class OracleLoses(Sound):
    def oracle_action(self) -> str | None:
        return "0"


@breaks("best_return")
class OracleGivesUp(Sound):
    def oracle_action(self) -> str | None:
        return None if self.right == 2 else self.digit


@breaks("best_return")
class OracleTalks(Sound):
    def oracle_action(self) -> str | None:
        return self.digit if self.turn else "I say " + self.digit

    max_return = 0.9


@breaks("junk_earns_nothing")
class PaysForNothing(Sound):
    def step(self, action: str) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, 0.0 if not action else reward, *rest


@breaks("any_text_is_taken")
class TrustsIsdigit(Sound):
    def parse(self, action: str) -> str | None:
        return super().parse(str(int(action))) if action.isdigit() else None


@breaks("any_text_is_taken")
class FormatErrorPays(Sound):
    def step(self, action: str) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, 0.1 if "reveal" in action else reward, *rest


@breaks("long_text_is_taken")
class Recursive(Sound):
    def parse(self, action: str) -> str | None:
        def depth(at: int) -> int:
            return 1 + depth(at + 1) if action[at : at + 1] == "{" else 0

        return None if depth(0) else super().parse(action)


@breaks("long_text_is_taken")
class Slow(Sound):
    def parse(self, action: str) -> str | None:
        end = time.process_time() + (0.6 if len(action) > 50_000 else 0.0)
        while time.process_time() < end:
            pass
        return super().parse(action)


@breaks("twins_are_equal")
class UnseededRandom(Sound):
    def draw(self) -> None:
        self.digit = random.Random().choice(self.digits)


@breaks("twins_are_equal")
class SeedIgnoredLater(Sound):
    def begin_episode(self, seed: int | None) -> None:
        super().begin_episode(seed)
        if seed is None:
            self.random.seed(time.time_ns())


@breaks("sampling_changes_nothing")
class SamplingDraws(Sound):
    def sample_random_action(self) -> str:
        return self.random.choice(self.digits)


@breaks("sampling_changes_nothing")
class OracleDraws(Sound):
    def oracle_action(self) -> str | None:
        self.random.random()
        return self.digit


@breaks("global_random_is_left_alone")
class DrawsGlobally(Sound):
    def step(self, action: str) -> Any:
        random.random()
        return super().step(action)


@breaks("global_random_is_left_alone")
class SeedsNumpy(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        np.random.seed(seed)  # noqa: NPY002
        return super().reset(seed, options=options)


@breaks("episodes_leave_no_trace")
class Remembers(Sound):
    state_fields = (*Sound.state_fields, "memory")
    memory = 0

    def draw(self) -> None:
        super().draw()
        self.memory += 1

    def show(self) -> Any:
        return f"{super().show()} ({self.memory} so far)"


@breaks("instances_are_independent")
class SharedClassAttribute(Sound):
    shared = 0

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        type(self).shared = 0
        return super().reset(seed, options=options)

    def show(self) -> Any:
        type(self).shared += 1
        return f"{super().show()} ({self.shared})"


@breaks("threads_change_nothing")
class UsesSignals(Sound):
    def step(self, action: str) -> Any:
        signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        return super().step(action)


@breaks("threads_change_nothing")
class KnowsItsThread(Sound):
    def show(self) -> Any:
        where = "" if threading.current_thread() is threading.main_thread() else " in a thread"
        return f"{super().show()}{where}"


@breaks("async_is_the_same")
class OtherAsync(Sound):
    async def astep(self, action: str) -> Any:
        await asyncio.sleep(0)
        observation, reward, *rest = self.step(action)
        return observation, reward + 1, *rest


@breaks("states_survive_json")
class ForgetsField(Sound):
    state_fields = ("turn", "right")


@breaks("states_survive_json")
class OwnGenerator(Sound):
    def begin_episode(self, seed: int | None) -> None:
        super().begin_episode(seed)
        self.dice = random.Random(self.random.random())

    def draw(self) -> None:
        self.digit = self.dice.choice(self.digits)


@breaks("states_survive_json")
class StateHoldsSet(Sound):
    state_fields = (*Sound.state_fields, "seen")
    seen: Any = frozenset()


@breaks("states_survive_json")
class LiveState(Sound):
    state_fields = (*Sound.state_fields, "told")
    told: list[str]

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.told = []
        return super().reset(seed, options=options)

    def step(self, action: str) -> Any:
        result = super().step(action)
        self.told.append(action)
        return result

    def get_state(self) -> Any:
        state = super().get_state()
        state["fields"]["told"] = getattr(self, "told", None)
        return state


@breaks("forks_are_equal_and_independent")
class ForkIsItself(Sound):
    def spawn(self, same_state: bool = False) -> Any:
        return self if same_state else super().spawn()


@breaks("forks_are_equal_and_independent")
class ForkIsNew(Sound):
    def spawn(self, same_state: bool = False) -> Any:
        sibling = super().spawn()
        sibling.reset(0)
        return sibling


@breaks("resets_start_from_a_state")
class ForgetsState(Sound):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        options = dict(options or {})
        options.pop("state", None)
        return super().reset(seed, options=options)


@breaks("closing_twice_is_fine")
class ClosesOnce(Sound):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


def attacks(*marks: str) -> Any:
    """Return a test whether a text is a payload with one of `marks`; nothing else is run here."""
    return lambda text: "gem" in text and "attack" in text and any(mark in text for mark in marks)


class _Runs(Sound):
    """Runs the payloads selected by `runs` in this process."""

    def runs(self, text: str) -> bool:
        raise NotImplementedError

    def step(self, action: str) -> Any:
        if self.runs(action) and action.startswith("exec("):
            eval(action)
        return super().step(action)


@breaks("attacks_change_nothing")
class RunsText(_Runs):
    """The payload writes a file."""

    runs = staticmethod(attacks("open("))


@breaks("attacks_change_nothing")
class AllowsAttributes(_Runs):
    runs = staticmethod(attacks("import builtins"))


@breaks("attacks_change_nothing")
class AllowsVariables(_Runs):
    runs = staticmethod(attacks("os.environ["))


@breaks("attacks_change_nothing")
class AllowsChdir(_Runs):
    runs = staticmethod(attacks("os.chdir("))


@breaks("attacks_change_nothing")
class AllowsProcesses(_Runs):
    runs = staticmethod(attacks("os.spawnlp("))


@breaks("attacks_change_nothing")
class AllowsForks(_Runs):
    runs = staticmethod(attacks("os.fork("))


@breaks("attacks_change_nothing")
class Formats(Sound):
    def step(self, action: str) -> Any:
        observation, *rest = super().step(action)
        if action.startswith("{0.__class__"):
            observation += (action.partition("}")[0] + "}").format(self)
        return observation, *rest


@breaks("attacks_change_nothing")
class Sleeps(Sound):
    def step(self, action: str) -> Any:
        if action.endswith(".sleep(8)"):
            time.sleep(1)
        return super().step(action)


class Interprets(Sound):
    """Runs every response that is one of the texts of `language` in a real interpreter, without any limit."""

    def __init__(self, language: str, only: str = "") -> None:
        super().__init__()
        self.language, self.only = language, only

    def step(self, action: str) -> Any:
        observation, *rest = super().step(action)
        if self.only in action and len(action) > 1:
            with contextlib.suppress(Exception):  # the text may be no program of this language
                observation += str(INTERPRETERS[self.language](action))
        return observation, *rest


def _command(*words: str) -> Any:
    """Return a function that runs a program with the text as its last argument."""
    return lambda text: subprocess.run([*words, text], input="x\n", capture_output=True, text=True).stdout


def _shell_words(text: str) -> str:
    words = [".", *(word for word in text.split(" "))]
    return subprocess.run(["find", *words], capture_output=True, text=True).stdout


INTERPRETERS: dict[str, Any] = {
    "SQL": lambda text: sqlite3.connect(":memory:").execute(text).fetchall(),
    "SQL script": lambda text: sqlite3.connect(":memory:").executescript(text),
    "regex": lambda text: re.search(text, "Say 1. " * 10),
    "letters": lambda text: re.match(r"(a+)+$", text),
    "digits": lambda text: re.match(r"(\d+)*$", text),
    "blanks": lambda text: re.search(r"\s+$", text),
    "Python": lambda text: eval(text),
    "awk": _command("awk"),
    "sed": _command("sed"),
    "perl": _command("perl", "-e"),
    "jq": _command("jq", "-n"),
    "shell": _command("bash", "-c"),
    "JavaScript": _command("node", "-p"),
    "bc": lambda text: subprocess.run(["bc"], input=f"{text}\n", capture_output=True, text=True).stdout,
    "find": _shell_words,
}
"""Interpreters that each run one text, as environments do that trust the model."""


@breaks("attacks_change_nothing")
class RunsOneStatement(Interprets):
    def __init__(self) -> None:
        super().__init__("SQL", "ATTACH")


@breaks("attacks_change_nothing")
class RunsQueriesWithoutLimit(Interprets):
    def __init__(self) -> None:
        super().__init__("SQL", "WITH RECURSIVE")


@breaks("attacks_change_nothing")
class ShowsHugeResults(Interprets):
    def __init__(self) -> None:
        super().__init__("SQL", "printf")


@breaks("attacks_change_nothing")
class Backtracks(Interprets):
    def __init__(self) -> None:
        super().__init__("regex", "(?!)")


@breaks("attacks_change_nothing")
class WaitsForPrograms(Interprets):
    def __init__(self) -> None:
        super().__init__("shell", "while :")


@breaks("attacks_change_nothing")
class Exits(Sound):
    def step(self, action: str) -> Any:
        if action == "any(iter(int, 1))":
            os._exit(3)
        return super().step(action)


_patched: list[str] = []
"""State that a worker process would hold, so that no attribute of this process changes."""


@breaks("attacks_change_nothing")
class GradesOtherwiseLater(Sound):
    def step(self, action: str) -> Any:
        if "score_answer" in action:
            _patched.append(action)
        observation, reward, *rest = super().step(action)
        return observation, reward + bool(_patched) * 0.01, *rest

    def close(self) -> None:
        _patched.clear()


@breaks("labels_are_right")
class WrongLabel(Sound):
    """Stores another digit than it shows in one of twenty draws, and believes it."""

    state_fields = (*Sound.state_fields, "shown")
    shown = ""

    def draw(self) -> None:
        super().draw()
        self.shown = self.random.choice(self.digits) if self.random.random() < 0.05 else self.digit

    def show(self) -> Any:
        return f"Say {self.shown}."


class OneTurn(Sound):
    """Asks for one digit."""

    max_return = 0.5

    def __init__(self) -> None:
        super().__init__(limit=1)

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        result = super().reset(seed, options=options)
        self.right = max(self.right, 2)
        return result


@breaks("labels_are_right")
class PaysNeighbors(OneTurn):
    """Pays the next digit, too."""

    def parse(self, action: str) -> str | None:
        move = super().parse(action)
        return self.digit if move is not None and int(move) - int(self.digit) in (0, 1) else move


@breaks("labels_are_right")
class RejectsSynonym(OneTurn):
    """Pays one of two responses that are equally right."""

    def verify(self, action: str) -> bool | None:
        return super().verify(action) or action == str((int(self.digit) + 1) % 10)


class Guessable(Sound):
    """Not in `BROKEN`, because the rule about floors needs a spec."""

    def draw(self) -> None:
        self.digit = "0" if self.random.random() < 0.9 else "7"


class SameEverySeed(Sound):
    """Not in `BROKEN`, because the rule about floors needs a spec."""

    def draw(self) -> None:
        self.digit = "271"[self.right % 3]

    def oracle_action(self) -> str | None:
        return self.digit


class HashOrder(Sound):
    """Not in `BROKEN`, because only another process reveals that it draws from a set."""

    def draw(self) -> None:
        self.digit = self.random.choice(list({"1", "2", "3", "4", "5", "6", "7", "8"}))


class HashPlayers(Sound):
    """Not in `BROKEN`, because only another process reveals that its players iterate over a set."""

    def sample_random_action(self) -> str:
        return self.action_random.choice(list({"1", "2", "3", "4", "5", "6", "7", "8"}))


class HoldsTuple(Sound):
    """Not in `BROKEN`, because a tuple among the arguments breaks its spec."""

    def __init__(self, digits: Any) -> None:
        super().__init__("".join(digits))
