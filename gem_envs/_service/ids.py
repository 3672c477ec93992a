"""Factories behind the ids of this family."""

from __future__ import annotations

from gem_core import Env
from gem_core.errors import DataError
from gem_envs._one_agent import one_side
from gem_envs._service.domain import Domain
from gem_envs._service.env import ASSISTANT, Service
from gem_envs._service.shop_tasks import shop
from gem_envs._service.tau2 import is_tau2, load_tau2
from gem_envs._service.tau_bench import load_tau_bench
from gem_envs._service.user import LlmUser


def make_shop(
    user: str = "scripted",
    agent: str = ASSISTANT,
    task: int | None = None,
    max_turns: int = 40,
    user_model: str = "default",
) -> Env:
    """Build one side of the shop, or with ``user="self"`` both.

    Args:
        user: Player of the other side: "scripted", "random", the base URL of an OpenAI-compatible endpoint
            (see `LlmUser`), ``module:function``, or "self".
        agent: The side to play: "assistant" or "user". Against "user" the scripted assistant is the
            reference solution.
        task: Index of the only task; None draws one at each reset.
        max_turns: Limit on the messages and calls of both sides together.
        user_model: Name of the model at the endpoint.
    """
    return _make(shop(), user, agent, task, max_turns, user_model)


def make_tau_bench(
    root: str | None = None,
    split: str = "test",
    user: str = "scripted",
    agent: str = ASSISTANT,
    task: int | None = None,
    max_turns: int = 60,
    user_model: str = "default",
) -> Env:
    """Return the retail tasks of a checkout of tau2-bench or tau-bench.

    See `load_tau2`, `load_tau_bench`, and `make_shop`.

    Args:
        root: Folder of the checkout; required.
        split: "test" or "train"; also "base" (both) in tau2-bench, and "dev" in tau-bench.
        user: As in `make_shop`. The scripted user says its whole instruction at once.
        agent: As in `make_shop`.
        task: As in `make_shop`.
        max_turns: As in `make_shop`.
        user_model: As in `make_shop`.

    Raises:
        DataError: `root` is missing, or not a checkout.
    """
    if root is None:
        raise DataError("the tasks of tau-bench are not included; pass the folder of a checkout as root")
    domain = load_tau2(root, split) if is_tau2(root) else load_tau_bench(root, split)
    return _make(domain, user, agent, task, max_turns, user_model)


def _make(domain: Domain, user: str, agent: str, task: int | None, max_turns: int, model: str) -> Env:
    env = Service(domain, task=task, max_turns=max_turns)
    if user == "self":
        return env
    if user.startswith(("http://", "https://")):
        return one_side(env, LlmUser(user, model), agent)
    return one_side(env, "oracle" if user == "scripted" else user, agent)
