"""Train with Oat: ``python -m gem_oat.train <Oat's flags> --env-id game:GuessTheNumber-v0-easy``.

Your own module can subclass `Actor`, `Learner`, and `Args` and call `run`.
"""

from __future__ import annotations

import sys
from typing import Any

from gem_core.errors import ConfigError
from gem_core.trainers import Plan
from gem_core.trainers._imports import replaced
from gem_core.trainers._plugin import errors_in_one_line
from gem_oat import _SUPPORTED


def run(args: Any, learner_cls: type[Any] | None = None, actor_cls: type[Any] | None = None) -> None:
    """Check the arguments and start Oat's program of actors and learners.

    Args:
        args: An `Args` before `prepare`.
        learner_cls: Subclass of `Learner`, or of `CriticLearner` with ``--critic-type ppo``, importable in
            every process. None uses the base class itself.
        actor_cls: Subclass of `Actor`, importable in every process. None uses `Actor`.

    Raises:
        GemError: An argument is not supported; nothing was started.
    """
    import launchpad
    from oat.interface import get_program

    from gem_oat._actor import Actor
    from gem_oat._checks import prepare
    from gem_oat._learner import CriticLearner, Learner

    args = prepare(args)
    learner_cls = learner_cls or (CriticLearner if args.critic_type == "ppo" else Learner)
    if issubclass(learner_cls, CriticLearner) != (args.critic_type == "ppo"):
        raise ConfigError(f"--critic-type={args.critic_type} does not fit the learner {learner_cls.__name__}")
    program, resources = get_program(args, learner_cls=learner_cls, actor_cls=actor_cls or Actor)
    launchpad.launch(
        program, launch_type=args.launch_type, local_resources=resources, terminal="current_terminal"
    )


def check(arguments: list[str]) -> Plan:
    """Check the flags of this command without starting a run, and return what the run would do.

    Raises:
        Exception: A run would reject them.
    """
    from gem_oat._checks import prepare
    from gem_oat._plan import plan_of

    args = parse(arguments)
    return plan_of(prepare(args))


def parse(arguments: list[str]) -> Any:
    """Return the `Args` of the command line, before `prepare`."""
    _SUPPORTED.require()
    from oat.args import get_default_args

    from gem_oat._args import Args

    with replaced(sys, "argv", [sys.argv[0], *arguments]):
        return get_default_args(Args)


def main() -> None:
    """Run the command line; a `GemError` is printed as one line, with exit code 2."""
    with errors_in_one_line(_SUPPORTED):
        run(parse(sys.argv[1:]))
