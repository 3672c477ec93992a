"""Every prompt shows an action that its environment can read, because models copy what they see."""

from __future__ import annotations

import pytest

import gem_core
from gem_core import render_observation
from gem_core.errors import DataError, MissingDependency
from gem_lab._checker.null_policies import visible_text


def one_id_per_class() -> list[str]:
    ids: dict[tuple[str, str], str] = {}
    for id in gem_core.list_envs():
        spec = gem_core.spec(id)
        if str(spec.entry_point).startswith("gem_envs.") and "dataset_name" not in spec.kwargs:
            ids.setdefault((str(spec.entry_point), id.partition(":")[0]), id)
    assert len(ids) > 20  # or else nothing is tested
    return list(ids.values())


@pytest.mark.parametrize("id", one_id_per_class())
def test_a_prompt_shows_an_action_that_is_read(id: str) -> None:
    try:
        env = gem_core.make(id)
    except (DataError, MissingDependency) as error:
        pytest.skip(str(error))
    with env:
        prompt = visible_text(render_observation(*env.reset(seed=0)))
        calls = prompt.split("To call it, write:\n")[1:]
        assert not calls or any("..." not in call.partition("\n{")[0] for call in calls)
        assert env.step(prompt)[4].get("invalid") != "format"


def test_a_search_question_says_that_a_tool_is_needed() -> None:
    prompt, _ = gem_core.make("qa:MultiHop-v0-search").reset(seed=0)
    assert "search it with a tool" in prompt
