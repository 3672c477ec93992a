"""Scripted and model-based users: `scripted_message` and `LlmUser`."""

from __future__ import annotations

import os
import re
from random import Random
from typing import TYPE_CHECKING, Any

from gem_core.errors import ServiceError
from gem_envs._service.domain import ServiceTask
from gem_envs.tools._http import HttpClient

if TYPE_CHECKING:
    from gem_core.multiagent import MultiAgentEnv

END = "[END]"
"""Message of the user when everything is settled."""

SMALL_TALK = ("Hello.", "Yes, please.", "I am not sure what you mean.", "Could you look again?")

_CLOSING_QUESTION = re.compile(r"[^.!?]*\banything else\b[^.!?]*\?")
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
_CLOSING = ("anything else", "goodbye", "bye", "take care")
_WISHES = re.compile(
    r"have an? (\w+ )?(nice|great|good|lovely|wonderful|pleasant|excellent) (\w+ )?(day|evening|time|one)"
)
_ASKS = re.compile(
    r"\b(shall|should) i\b[^.!?]*\?|\bwould you like me to\b[^.!?]*\?"
    r"|\bdo you (confirm|agree|want me to)\b|\bplease confirm\b|\bis (that|this) (right|correct|ok|okay)\b"
    r"|\b(go ahead|proceed)\b[^.!?]*\?"
)
"""A question whether to do something, which is answered first if the same message also says goodbye."""


def scripted_message(task: ServiceTask, last: str | None) -> str:
    """Return the next message of the scripted user.

    Args:
        task: The task of the user.
        last: The assistant's last message; None before the first.

    Returns:
        First the request; then yes if the assistant asks for confirmation, and the requested facts that the
        user knows; the whole story again if the assistant asks for nothing; and `END` if it only asks whether
        there is anything else, or says goodbye.
    """
    if last is None:
        return task.request
    message = last.lower()
    if any(words in message for words in _CLOSING) or _WISHES.search(message):
        asks = _ASKS.search(_CLOSING_QUESTION.sub("", message))
        return "Yes, please." if asks else END
    answers = [
        fact for key, fact in task.facts.items() if any(word in message for word in _ASKED.get(key, ()))
    ]
    if _ASKS.search(message):
        return " ".join(["Yes, please.", *answers])
    if answers:
        return " ".join(answers)
    if any(word in message for word in _CONFIRM):
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
