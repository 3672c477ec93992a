"""What the ids of this family make."""

from __future__ import annotations

from gem_core.core import Env
from gem_core.envs.multiagent.one_agent import one_side
from gem_core.envs.service.env import ASSISTANT, Service
from gem_core.envs.service.shop_tasks import shop
from gem_core.envs.service.user import LlmUser


def make_shop(
    user: str = "scripted", agent: str = ASSISTANT, task: int | None = None, max_turns: int = 40
) -> Env:
    """One side of the shop, or with ``user="self"`` both.

    Args:
        user: Who plays the other side: "scripted", "random", "self", or ``module:function``.
        agent: The side to play: "assistant" or "user". Against "user" the scripted assistant is the
            reference solution.
        task: Number of the only task; None draws one at each reset.
        max_turns: Messages and calls of both together.
    """
    env = Service(shop(), task=task, max_turns=max_turns)
    if user == "self":
        return env
    return one_side(env, "oracle" if user == "scripted" else user, agent)


def make_shop_llm(
    url: str = "http://127.0.0.1:8000/v1",
    model: str = "default",
    task: int | None = None,
    max_turns: int = 40,
) -> Env:
    """The assistant's side of the shop, with a model as the user; see `LlmUser`."""
    return one_side(Service(shop(), task=task, max_turns=max_turns), LlmUser(url, model), ASSISTANT)
