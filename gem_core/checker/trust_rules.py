"""Rules on trust: model text is never run outside the sandbox, and only solutions are rewarded."""

from __future__ import annotations

import math
import time

from gem_core.checker.attacks import Payload, payloads, wrapped
from gem_core.checker.floors import documented
from gem_core.checker.host import Host, timed
from gem_core.checker.null_policies import FORMS, find_readable_forms, play, readable_forms, replays
from gem_core.checker.rules import rule
from gem_core.checker.subject import Subject, broken, clip, random_action, reset, skip, step, step_result
from gem_core.core import Env
from gem_core.registration import list_envs, spec
from gem_core.sandbox import self_check
from gem_core.text import last_boxed

NULL_SEEDS = 20
"""Number of episodes of each null policy."""
NULL_SECONDS = 5.0
"""Seconds after which no further seed is started; some environments start processes in every step."""
UNDOCUMENTED = 0.1
"""Allowed success rate of a null policy if no floor is documented."""
RESOLUTION = 0.005
"""Plausible true value of a floor that was measured as 0 over 200 seeds."""
_CHANCE = 1e-3
_PROGRAMS = frozenset(("program", "command", "block"))
"""Forms whose texts are run by design."""
_FEW = frozenset(("exec", "class walk", "os.system", "command", "SQL", "format", "yaml", "jinja"))
"""Names of the payloads that are also sent in forms that the environment does not read."""
_CLASS = "<class "
"""Text that shows a class, as str.format writes it."""
_ADVICE = (
    "parse the text with literal or arithmetic parsers, and never pass it to eval, exec, compile, pickle, "
    "str.format, a shell, or sympy in this process or in a reused worker; run programs in gem_core.sandbox"
)


@rule(relies_on=("any_text_is_taken", "instances_are_independent"))
def attacks_change_nothing(subject: Subject) -> None:
    """Text that tries to execute code changes no file, process, module, or grade, and is graded in time."""
    env = subject.fresh()
    seed = subject.seeds[0]
    read = find_readable_forms(env, seed, subject.max_turns)
    for recording in subject.recordings():  # loads lazy imports before the snapshot
        subject.play(env, recording.seed, random_action)
    panel = _Panel(subject, env, seed)
    before = panel.graded()
    host = Host(kind.__module__ for kind in type(env.unwrapped).__mro__)
    try:
        for slow in (False, True):
            for payload in payloads(host.folder, host.token):
                if payload.slow != slow:
                    continue
                for text, form in _texts(payload, read, panel.action, panel.answer).items():
                    panel.send(payload.name, form, text)
            if changes := host.changes():
                broken(f"a text was executed: {'; '.join(changes[:5])}", _ADVICE)
        after = panel.graded()
        if after != before and panel.repeatable:
            broken(
                f"the answers {clip(panel.probes)} earned {before} before the attacks and {after} after them",
                _ADVICE,
            )
    finally:
        host.restore()


class _Panel:
    """One item of an environment, to which texts are sent repeatedly."""

    def __init__(self, subject: Subject, env: Env, seed: int) -> None:
        self.env = env
        self.seed = seed
        self.patience = subject.patience
        reset(env, seed)
        self.repeatable = subject.spec is None or (subject.spec.stateful and subject.spec.deterministic)
        self.state = env.get_state() if self.repeatable else None
        self.action = random_action(env)
        oracle = env.oracle_action()
        self.answer = last_boxed(oracle or "") or ""
        self.probes = [*([] if oracle is None else [oracle]), self.action, "\\boxed{gem}", "\\boxed{1}"]
        self.ended = False

    def start(self) -> None:
        """Return to the start of the item, from a saved state if possible, because a reset may be slow."""
        if self.state is None:
            reset(self.env, self.seed)
        else:
            self.env.set_state(self.state)
        self.ended = False

    def graded(self) -> list[float]:
        """Return the rewards of the oracle's answer, a random answer, and two wrong answers."""
        rewards = []
        for text in self.probes:
            self.start()
            rewards.append(step(self.env, text).reward)
        self.ended = True
        return rewards

    def send(self, payload: str, form: str, text: str) -> None:
        """Send the text, and check that it was not formatted and that the step did not take too long."""
        if self.ended:
            self.start()
        start = time.perf_counter()
        result = step_result(self.env, text)
        if time.perf_counter() - start > self.patience:
            self.start()
            seconds = timed(lambda: step(self.env, text))
            if seconds > self.patience:
                broken(
                    f"the payload {payload!r} ({form}), {clip(text, 60)}, took {seconds:.1f} s; "
                    f"the limit is {self.patience:g} s",
                    "limit the time for grading to less than that",
                )
            self.start()
        else:
            _, _, terminated, truncated, _ = result
            self.ended = terminated or truncated
        if _CLASS in repr(result) and _CLASS not in text:
            broken(f"the payload {payload!r} ({form}) was formatted: {clip(result[0])}", _ADVICE)


def _texts(payload: Payload, read: list[str], action: str, answer: str) -> dict[str, str]:
    """Return the texts to send for a payload, each with the name of its form.

    Args:
        payload: Payload.
        read: Forms that the environment reads.
        action: Action of the environment.
        answer: Correct answer; empty if it is unknown.
    """
    if payload.slow:  # writing a megabyte in every form takes long
        return {FORMS[form] % payload.text: form for form in read if form not in _PROGRAMS}
    texts: dict[str, str] = {}
    for form, text in wrapped(payload.text, action=action, answer=answer):
        unread = form in FORMS and form not in read
        if unread and payload.name not in _FEW:
            continue
        if form in _PROGRAMS and not unread and not self_check()["namespace"].available:
            continue
        texts.setdefault(text, form)
    return texts


@rule(relies_on=("any_text_is_taken",))
def floor_holds(subject: Subject) -> None:
    """Players that solve nothing succeed no more often than the documented floor of the environment."""
    if subject.spec is None:
        skip("the environment has no registered id, which could declare a floor")
    if subject.spec.id in list_envs(subject.spec.id):
        registered = spec(subject.spec.id)
        if (subject.spec.kwargs, subject.spec.wrappers) != (registered.kwargs, registered.wrappers):
            skip("the floor only applies to the registered arguments and wrappers")
    floor = documented(subject.spec)
    limit = UNDOCUMENTED if floor is None else floor.success + RESOLUTION
    env = subject.fresh()
    wins: dict[tuple[str, str], int] = {}
    forms = list(FORMS)
    others = replays(env, max_turns=subject.max_turns)
    end = time.monotonic() + NULL_SECONDS
    seeds = 0
    for seed in range(subject.seeds[0], subject.seeds[0] + NULL_SEEDS):
        outcomes = list(play(env, seed, forms=forms, replays=others, max_turns=subject.max_turns))
        if not seeds:
            forms = readable_forms(outcomes) or ["bare"]
        for outcome in outcomes:
            player = (outcome.policy, outcome.form)
            wins[player] = wins.get(player, 0) + outcome.success
        seeds += 1
        if time.monotonic() > end:
            break
    policy, form = max(wins, key=lambda player: wins[player])
    if _at_least(wins[policy, form], seeds, limit) < _CHANCE:
        documentation = (
            "no floor is documented" if floor is None else f"the documented floor is {floor.success:g}"
        )
        how = (
            "repeats the oracle's actions of another seed"
            if policy in others
            else f"answers in the form {FORMS[form] % '...'}"
        )
        broken(
            f"the player {policy!r}, which ignores the replies and {how}, "
            f"succeeded in {wins[policy, form]} of {seeds} episodes; {documentation}",
            "fix the scorer; if guesses are often right, because there are few answers or one of them is "
            "common, register an id that declares the floor: register(id, class, floor=share of successes)",
        )


def _at_least(wins: int, episodes: int, chance: float) -> float:
    """Return the probability of `wins` or more successes."""
    if chance >= 1:
        return 1.0
    return sum(
        math.comb(episodes, n) * chance**n * (1 - chance) ** (episodes - n) for n in range(wins, episodes + 1)
    )
