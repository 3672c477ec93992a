"""Scripted and model-based users: `scripted_message` and `LlmUser`."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

from gem_core.envs.service.domain import Task
from gem_core.errors import ServiceError
from gem_core.tools.http import HttpClient

if TYPE_CHECKING:
    from gem_core.envs.multiagent.multi_agent_env import MultiAgentEnv

END = "[END]"
"""Message of the user when everything is settled."""

SMALL_TALK = ("Hello.", "Yes, please.", "I am not sure what you mean.", "Could you look again?")

_ASKED = {
    "email": ("email", "e-mail"),
    "name": ("name", "who are you", "identify"),
    "postcode": ("postcode", "zip", "postal"),
    "order": ("order number", "which order", "order id"),
    "item": ("which item", "which product", "which of"),
    "wish": ("which color", "which size", "which variant", "what would you like", "instead"),
    "payment": ("payment", "refund to", "which card"),
    "address": ("address",),
    "reason": ("reason", "why"),
}
_CONFIRM = ("confirm", "yes", "proceed", "go ahead", "shall i", "should i", "is that right", "correct")
_CLOSING = ("anything else", "goodbye", "have a nice day")


def scripted_message(task: Task, last: str | None) -> str:
    """Return the next message of the scripted user.

    Args:
        task: The task of the user.
        last: The assistant's last message; None before the first.

    Returns:
        The request at first; then the requested facts that the user knows; yes if the assistant asks for
        confirmation; the whole story again if it asks for nothing; and `END` if it asks whether there is
        anything else.
    """
    if last is None:
        return task.request
    heard = last.lower()
    if any(words in heard for words in _CLOSING):
        return END
    asked = [fact for key, fact in task.facts.items() if any(word in heard for word in _ASKED.get(key, ()))]
    if asked:
        return " ".join(asked)
    if any(word in heard for word in _CONFIRM):
        return "Yes, please."
    return " ".join([task.request, *task.facts.values()])


class LlmUser:
    """A model behind an OpenAI-compatible endpoint plays the user.

    Args:
        url: Base URL, such as ``http://127.0.0.1:8000/v1``. The key comes from ``OPENAI_API_KEY``, if set.
        model: Name of the model there.
        temperature: Sampling temperature.
        timeout: Request timeout in seconds.
    """

    blocking = True

    def __init__(self, url: str, model: str, *, temperature: float = 0.0, timeout: float = 60.0) -> None:
        key = os.environ.get("OPENAI_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = HttpClient(url, timeout=timeout, headers=headers)
        self._model = model
        self._temperature = temperature

    def __call__(self, env: MultiAgentEnv, agent: str, random: Random) -> str:
        """Return the user's next message.

        Raises:
            ServiceError: The endpoint does not respond, or not as expected.
        """
        service: Any = env
        messages = [{"role": "system", "content": service.brief(agent)}]
        messages += [
            {"role": "assistant" if who == agent else "user", "content": text or "(nothing)"}
            for who, text in service.messages
        ]
        if len(messages) == 1:
            messages.append({"role": "user", "content": "How can I help you?"})
        body = {"model": self._model, "messages": messages, "temperature": self._temperature}
        reply = self._client.post("/chat/completions", body)
        try:
            return str(reply["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise ServiceError(f"the user's endpoint sent no message: {reply!s:.200}") from error
