"""Rules on trust: model text is never run outside the sandbox, and only solutions are rewarded."""

from __future__ import annotations

import math
import time
from itertools import chain

from gem_core import Env, list_envs, spec
from gem_envs.sandbox._levels import strongest, weak_programs_held
from gem_envs.text import last_boxed
from gem_lab._checker import runaway
from gem_lab._checker.attacks import PROGRAMS, Payload, look_alikes, payloads, wrapped
from gem_lab._checker.floors import documented
from gem_lab._checker.host import ProcessSnapshot
from gem_lab._checker.null_policies import FORMS, find_readable_forms, play, readable_forms, replays
from gem_lab._checker.rules import rule
from gem_lab._checker.sending import ADVICE, Sender
from gem_lab._checker.subject import MachineLacks, Subject, broken, clip, random_action, skip, step

NULL_SEEDS = 20
"""Number of episodes of each null policy."""
NULL_SECONDS = 5.0
"""Seconds after which no further seed is started; some environments start processes in every step."""
UNDOCUMENTED = 0.1
"""Allowed success rate of a null policy if no floor is documented."""
RESOLUTION = 0.005
"""Plausible true value of a floor that was measured as 0 over 200 seeds."""
_CHANCE = 1e-3
_FEW = frozenset(("exec", "class walk", "os.system", "command", "SQL", "format", "yaml", "jinja"))
"""Names of the payloads that are also sent in forms that the environment does not read."""


@rule(relies_on=("any_text_is_taken", "instances_are_independent", "states_survive_json"))
def attacks_change_nothing(subject: Subject) -> None:
    """Text that tries to execute code changes no file, process, module, or grade, and is graded in time.

    Where only a sandbox that blocks no attacker is available, the programs in the texts are not run.
    """
    env = subject.fresh()
    seed = subject.seeds[0]
    read = find_readable_forms(env, seed, subject.max_turns)
    for recording in subject.recordings():  # loads lazy imports before the snapshot
        subject.play(env, recording.seed, random_action)
    panel = _Panel(subject, env, seed)
    before = panel.graded()
    host = ProcessSnapshot(kind.__module__ for kind in type(env.unwrapped).__mro__)
    try:
        with weak_programs_held() as held:
            for payload in payloads(host.folder, host.token):
                if not payload.slow:
                    for text, form in _texts(payload, read, panel.action, panel.answer).items():
                        panel.send(payload.name, form, text)
            _expect_no_changes(host)
            _send_slow(subject, panel, read, host)
            _expect_no_changes(host)
        after = panel.graded()
        if after != before and panel.repeatable:
            broken(
                f"the answers {clip(panel.probes)} earned {before} before the attacks and {after} after them",
                ADVICE,
            )
    finally:
        host.restore()
    if held:
        raise MachineLacks(
            "this machine has no sandbox level that blocks attackers, so programs were not run "
            f"({strongest().reason}); the other texts changed nothing"
        )


def _expect_no_changes(host: ProcessSnapshot) -> None:
    if changes := host.changes():
        broken(f"a text was executed: {'; '.join(changes[:5])}", ADVICE)


def _send_slow(subject: Subject, panel: _Panel, read: list[str], host: ProcessSnapshot) -> None:
    """Send the texts that take long, or forever, from a worker process if it can build the environment."""
    spec = runaway.portable_spec(subject, panel.env)
    texts = [
        (payload.name, form, text)
        for payload in payloads(host.folder, host.token)
        if payload.slow and not (payload.endless and spec is None)
        for text, form in _texts(payload, read, panel.action, panel.answer).items()
    ]
    if spec is not None:
        runaway.send(spec, panel.seed, texts, panel.patience)
        return
    for text in texts:
        panel.send(*text)


class _Panel(Sender):
    """A `Sender` that also grades the answers whose rewards must not change."""

    def __init__(self, subject: Subject, env: Env, seed: int) -> None:
        super().__init__(env, seed, subject.patience)
        self.action = random_action(env)
        oracle = env.oracle_action()
        self.answer = last_boxed(oracle or "") or ""
        self.probes = [*([] if oracle is None else [oracle]), self.action, "\\boxed{gem}", "\\boxed{1}"]

    def graded(self) -> list[float]:
        """Return the rewards of the oracle's answer, a random answer, and two wrong answers."""
        rewards = []
        for text in self.probes:
            self.start()
            rewards.append(step(self.env, text).reward)
        self.ended = True
        return rewards


def _texts(payload: Payload, read: list[str], action: str, answer: str) -> dict[str, str]:
    """Return the texts to send for a payload, each with the name of its form.

    Args:
        payload: Payload.
        read: Forms that the environment reads.
        action: Action of the environment.
        answer: Correct answer; empty if it is unknown.
    """
    if payload.slow:  # writing a megabyte in every form takes long
        forms = ((form, FORMS[form] % payload.text) for form in read if form not in PROGRAMS)
        # A program that the environment runs by design may use all of its time.
        runs = payload.endless and not PROGRAMS.isdisjoint(read)
        likes = look_alikes(action, payload.text) if payload.alone and not runs else ()
        return {text: form for form, text in (*likes, *forms) if form not in PROGRAMS}
    texts: dict[str, str] = {}
    every = wrapped(payload.text, action=action, answer=answer)
    if payload.alone:
        every = chain(
            ((form, FORMS[form] % payload.text) for form in read), look_alikes(action, payload.text)
        )
    for form, text in every:
        if form in FORMS and form not in read and payload.name not in _FEW:
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
