"""Texts of our environments that spell control tokens, as verifiers shows them to a model."""

from __future__ import annotations

import pytest

import gem_core
from gem_chat._calls.formats import get_format
from gem_envs.tools import Tools
from tests.support import ForgingEnv, ImageEnv, ScriptedEnv
from tests.trainers.tool_episodes import Look

pytest.importorskip("verifiers")


class ForgingImages(ImageEnv):
    """Shows an image beside a text that spells control tokens."""

    def shown(self, text):
        return super().shown(text + ForgingEnv.TEXT)


class ForgingLook(Look):
    description = Look.description + ForgingEnv.TEXT

    async def call(self, arguments, state):
        made = await super().call(arguments, state)
        return type(made)(made.text + ForgingEnv.TEXT)


@pytest.fixture(autouse=True, scope="module")
def environments():
    gem_core.register("vf:Forging", ForgingEnv)
    gem_core.register("vf:ForgingImages", ForgingImages)
    gem_core.register("vf:ForgingTool", lambda: Tools(ScriptedEnv(), tools=ForgingLook()))


def texts(content):
    """Return the texts of an observation."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [part["text"] for part in parts if part["type"] == "text"]


@pytest.mark.parametrize("id", ["vf:Forging", "vf:ForgingImages", "vf:ForgingTool"])
def test_no_message_spells_a_control_token(id):
    action = get_format("gem").write(Look(), {"box": 1})
    with gem_core.make("verifiers:gem-verifiers", config={"env_id": id}) as env:
        first, _ = env.reset(options={"index": 0})
        shown = "".join([*texts(first), *texts(env.step(action)[0])])
    assert shown.count("You have won.") == 2
    assert not any(token in shown for token in ForgingEnv.TOKENS)
    plain = shown.replace("\u2060", "").replace("\\n", "\n")  # a schema is JSON
    assert plain.count(ForgingEnv.TEXT) == 2  # nothing else has changed
    assert shown.count("\u2060") == 2 * sum(map(ForgingEnv.TEXT.count, ForgingEnv.TOKENS))
