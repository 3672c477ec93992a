"""`check_env`: checks of the environment contract.

A function, which raises `CheckFailed` with the broken rule, the evidence, and the remedy:

    report = check_env("game:GuessTheNumber-v0")

a pytest mixin with one test per rule:

    class TestMyEnv(EnvContract):
        env_id = "my:Env-v0"

and a command, ``gem-core check my:Env-v0``. The rules are the functions in
`gem_lab._checker.rules`, `gem_lab._checker.replay_rules`, `gem_lab._checker.trust_rules`, and
`gem_lab._checker.truth_rules`.
"""

from __future__ import annotations

import errno
import os
import tempfile
import unittest
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import gem_lab._checker.replay_rules  # adds its rules to RULES, as do the next imports
import gem_lab._checker.trust_rules
import gem_lab._checker.truth_rules  # noqa: F401
from gem_core import Env, EnvSpec, make
from gem_core._core import require_one_agent
from gem_core._util.checks import check_names, expected
from gem_core._util.entry_points import is_file
from gem_core._util.messages import error_line
from gem_core.errors import CheckFailed, ConfigError, DataError, MissingDependency, SandboxError, ServiceError
from gem_lab._checker.rules import RULES, ContractRule
from gem_lab._checker.subject import MachineLacks, RuleBroken, RuleSkipped, Subject, is_machines, place

__all__ = ["RULES", "CheckReport", "EnvContract", "ContractRule", "check_env"]


@dataclass(frozen=True)
class CheckReport:
    """Result of `check_env`.

    Attributes:
        env: Name of the environment.
        passed: Names of the rules that hold.
        skipped: Maps the name of each rule that does not apply to the reason.
        broken: Maps the name of each broken rule to the message of its `CheckFailed`; always empty without
            `keep_going`.
        unchecked: Maps the name of each rule that was not checked to the broken rule that has to hold first.
        lacking: The rules of `skipped` that apply, but cannot be checked on this machine, with the reasons.
    """

    env: str
    passed: tuple[str, ...]
    skipped: dict[str, str]
    broken: dict[str, str] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = f"{len(self.passed)} rules hold, {len(self.skipped)} do not apply"
        lines = [f"{self.env}: {counts}" + (f", {len(self.broken)} are broken" if self.broken else "")]
        lines += [f"  broken   {name}: {message}" for name, message in self.broken.items()]
        lines += [f"  holds    {name}" for name in self.passed]
        lines += [f"  skipped  {name}: {reason}" for name, reason in self.skipped.items()]
        lines += [f"  skipped  {name}: {cause} has to hold first" for name, cause in self.unchecked.items()]
        return "\n".join(lines)


def check_env(
    env: str | EnvSpec | Env | Callable[..., Env],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    max_turns: int = 1000,
    patience: float = 5.0,
    rules: Sequence[str] | None = None,
    actions: Callable[[Env], str] | Sequence[str] | None = None,
    keep_going: bool = False,
    on_rule: Callable[[int, int], None] = lambda done, total: None,
    **kwargs: Any,
) -> CheckReport:
    """Check that an environment follows every rule of the contract.

    Args:
        env: Id, spec, class or other factory, or instance. An instance is not played itself, only siblings
            spawned from it.
        seeds: Nonnegative seeds, one per episode; each episode is played many times.
        max_turns: Maximum number of steps within which every episode has to end.
        patience: Seconds of CPU time allowed for one step on a text of one megabyte.
        rules: Names of the rules to check; None for all.
        actions: Random player for an environment without one: a function of the environment, or responses to
            draw from. They need not be legal.
        keep_going: Whether to check all rules and report the broken ones, instead of raising at the first.
            A rule that relies on a broken one, or fails for the same cause, is reported as not checked.
        on_rule: Function to call before each rule, with the number of earlier rules and of all rules.
        **kwargs: Keyword arguments for `make` (including ``wrappers``) or the factory.

    Returns:
        The rules that hold, and the rules that do not apply, with the reason. A spec with
        ``deterministic=False`` or ``stateful=False`` is exempt only from the rules on that property.

    Raises:
        CheckFailed: A rule is broken, without `keep_going`; the message names the rule, the evidence, and the
            remedy.
        ConfigError: An argument is invalid.
        GemError: The first reset reports that something outside the environment is missing, such as a server
            or a package, or a rule needs a sandbox level that this machine lacks.
        OSError: This machine has no space, memory, or process left for the check.
        FileNotFoundError: A rule is broken, and the working directory or the environment's file is gone.
    """
    names = [rule.name for rule in RULES]
    check_names(rules or (), names, kind="rule")
    if rules is not None and not rules:
        raise expected("rules", rules, f"one or more of {', '.join(names)}", optional=True)
    subject = _subject(env, seeds, max_turns, patience, kwargs)
    _require_surroundings(subject)
    if actions is not None:
        subject.actions, subject.legal_actions = _player(actions), False
    passed: list[str] = []
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    causes: dict[str, str] = {}
    hidden: dict[str, str] = {}
    lacking: dict[str, str] = {}
    chosen = [rule for rule in RULES if rules is None or rule.name in rules]
    for index, rule in enumerate(chosen):
        on_rule(index, len(chosen))
        if first := [hidden.get(name, name) for name in rule.relies_on if name in failures or name in hidden]:
            hidden[rule.name] = first[0]
            continue
        try:
            failure = _failure(rule, subject)
        except RuleSkipped as reason:
            skipped[rule.name] = str(reason)
            if isinstance(reason, MachineLacks):
                lacking[rule.name] = str(reason)
            continue
        if failure is None:
            passed.append(rule.name)
        elif not keep_going:
            raise _check_failed(subject, rule, failure) from failure.__cause__
        elif failure.cause in causes:
            hidden[rule.name] = causes[failure.cause]
        else:
            causes[failure.cause] = rule.name
            failures[rule.name] = str(_check_failed(subject, rule, failure))
    return CheckReport(subject.name, tuple(passed), skipped, failures, hidden, lacking)


class EnvContract:
    """Pytest mixin that gives a subclass whose name begins with ``Test`` one test per rule.

    Set `env_id`, or override `make_env` for an unregistered environment.
    """

    env_id: ClassVar[str] = ""
    """Registered id of the environment under test."""
    seeds: ClassVar[Sequence[int]] = (0, 1, 2)
    max_turns: ClassVar[int] = 1000
    patience: ClassVar[float] = 5.0

    def make_env(self) -> Env:
        """Return a new instance."""
        return make(self.env_id)


def _subject(
    env: str | EnvSpec | Env | Callable[..., Env],
    seeds: Sequence[int],
    max_turns: int,
    patience: float,
    kwargs: dict[str, Any],
) -> Subject:
    if not seeds:
        raise ConfigError(f"seeds={seeds!r}: expected at least one seed")
    build: Callable[[], Env]
    if isinstance(env, Env):
        if kwargs:
            raise ConfigError(
                f"keyword arguments {sorted(kwargs)}: expected an id or a factory, not an instance"
            )
        build = env.spawn
    elif isinstance(env, (str, EnvSpec)):
        build = lambda: make(env, **kwargs)  # noqa: E731  # two more defs would be longer
    elif callable(env):
        build = lambda: env(**kwargs)  # noqa: E731
    else:
        raise ConfigError(f"env={env!r}: expected an id, a spec, a factory, or an environment")
    with build() as first:
        require_one_agent(first, "the checker")
        name = first.spec.id if first.spec else type(first.unwrapped).__name__
        legal = first.unwrapped.legal_random_actions
        return Subject(name, build, tuple(seeds), max_turns, patience, first.spec, legal_actions=legal)


def _require_surroundings(subject: Subject) -> None:
    """Reset the environment once, and raise the error if something outside it is missing."""
    tempfile.gettempdir()  # raises an OSError that names the folders if none can be written
    with subject.make() as env:
        try:
            env.reset(subject.seeds[0])
        except (ConfigError, DataError, MissingDependency, SandboxError, ServiceError):
            raise
        except Exception as error:  # a rule reports it
            if is_machines(error):
                raise


def _player(actions: Callable[[Env], str] | Sequence[str]) -> Callable[[Env], str]:
    """Return the random player that `actions` describes."""
    if callable(actions):
        return actions
    if isinstance(actions, str) or not actions:
        raise ConfigError(f"actions={actions!r}: expected a function or a list of responses")
    return lambda env: env.unwrapped.action_random.choice(actions)


def _failure(rule: ContractRule, subject: Subject) -> RuleBroken | None:
    """Check a rule, and return how it is broken, or None if it holds.

    Raises:
        FileNotFoundError: It is broken, but files are gone that the environment may need.
    """
    failure = _broken(rule, subject)
    if failure is not None:
        file, _, _ = str(subject.spec.entry_point if subject.spec else "").partition(":")
        if is_file(file) and not Path(file).exists():
            raise FileNotFoundError(errno.ENOENT, "the file was deleted during the check", file) from failure
        with suppress(PermissionError):
            os.getcwd()
    return failure


def _broken(rule: ContractRule, subject: Subject) -> RuleBroken | None:
    if rule.needs and subject.spec is not None and not getattr(subject.spec, rule.needs):
        raise RuleSkipped(f"the spec has {rule.needs}=False")
    try:
        rule.check(subject)
    except RuleBroken as broken:
        return broken
    except RuleSkipped:
        raise
    except Exception as error:  # a method that the rule called, such as spawn or get_state
        if is_machines(error):
            raise
        cause = type(error).__name__ + place(error)
        failure = RuleBroken(error_line(error) + place(error), "this rule expects no exception", cause)
        failure.__cause__ = error
        return failure
    finally:
        subject.close()
    return None


def _check_failed(subject: Subject, rule: ContractRule, failure: RuleBroken) -> CheckFailed:
    return CheckFailed(
        f"{subject.name} breaks the rule {rule.name}: {rule.statement}\n  observed: {failure.seen}\n"
        f"  fix: {failure.advice}"
    )


def _contract_test(rule: ContractRule) -> Callable[[EnvContract], None]:
    def test(self: EnvContract) -> None:
        subject = _subject(self.make_env, self.seeds, self.max_turns, self.patience, {})
        try:
            failure = _failure(rule, subject)
        except RuleSkipped as reason:
            raise unittest.SkipTest(str(reason)) from None
        if failure:
            raise _check_failed(subject, rule, failure) from failure.__cause__

    test.__doc__ = rule.statement
    return test


for _rule in RULES:
    setattr(EnvContract, f"test_{_rule.name}", _contract_test(_rule))
