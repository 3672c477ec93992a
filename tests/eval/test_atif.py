"""Episodes as trajectories in ATIF. Harbor's own models check them where Harbor is installed."""

from __future__ import annotations

import json

import pytest

from gem_core.errors import TraceError
from gem_core.images import image_part, text_part
from gem_lab.eval import from_atif, read_atif, to_atif
from gem_lab.eval._atif import write_atif
from tests.eval.traces import EVIL, episode, turn
from tests.support import PIXEL


def episodes():
    """Return episodes of every kind that a trace holds."""
    image = [image_part(PIXEL), text_part("How long is x?"), text_part("")]
    cut = {
        "reply": {"text": "cut", "prompt_tokens": 7, "response_tokens": 3, "reasoning": "hm"},
        "invalid": "length",
    }
    solved = {"success": True, "final_obs": "Right."}
    failure = {"error": "it broke", "trainable": False, "env_retries": 2}
    no_tokens = {"context_ids": [], "response_ids": [], "logprobs": None}
    return {
        "append": episode(
            turn(0.0, advantage=-0.5), turn(1.0, context_ids=[9], info=solved),
            metadata={"model": "m", "task": 3, "gamma": 0.9}, env_kwargs={"max_number": 5},
        ),
        "rebuild": episode(turn(), turn(context_ids=[8, 9], logprobs=None), context_mode="rebuild"),
        "messages": episode(
            turn(**no_tokens), turn(**no_tokens, action="", finish_reason="length", info=cut), seed=None,
            context_mode="messages", terminated=False, truncated=True, stop_reason="max_turns",
        ),
        "images": episode(turn(observation=image, info={"final_obs": image})),
        "failed": episode(turn(observation=EVIL, action=EVIL), **failure,
                          terminated=False, truncated=True, stop_reason="env_error"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", list(episodes()))
def test_an_episode_round_trips(kind, tmp_path):
    original = episodes()[kind]
    write_atif(tmp_path / "trajectory.json", to_atif(original, system_prompt="Play."))
    assert read_atif(tmp_path / "trajectory.json") == original


@pytest.mark.parametrize("kind", list(episodes()))
def test_the_fields_of_the_specification(kind):
    """What Harbor's validators require, from the text of the specification."""
    trajectory = json.loads(json.dumps(to_atif(episodes()[kind], agent="a", system_prompt="Play.")))
    assert trajectory["schema_version"] == "ATIF-v1.6"
    assert set(trajectory) <= {
        "schema_version",
        "session_id",
        "agent",
        "steps",
        "notes",
        "final_metrics",
        "extra",
    }
    assert {"name", "version"} <= set(trajectory["agent"]) <= {"name", "version", "model_name"}
    assert [step["step_id"] for step in trajectory["steps"]] == list(range(1, len(trajectory["steps"]) + 1))
    agent_only = {"reasoning_content", "metrics"}
    for step in trajectory["steps"]:
        assert {"step_id", "source", "message"} <= set(step)
        assert set(step) <= {"step_id", "source", "message", "observation", "extra", *agent_only}
        assert step["source"] in ("system", "user", "agent")
        assert step["source"] == "agent" or not agent_only & set(step)
        assert set(step.get("metrics", {})) <= {
            "prompt_tokens", "completion_tokens", "prompt_token_ids", "completion_token_ids", "logprobs",
        }  # fmt: skip
        for content in [
            step["message"],
            *(r["content"] for r in step.get("observation", {}).get("results", ())),
        ]:
            for part in content if isinstance(content, list) else ():
                assert set(part) == {"type", "text"} or (part["type"], set(part["source"])) == (
                    "image", {"media_type", "path"},
                )  # fmt: skip
    assert trajectory["final_metrics"]["total_steps"] == len(trajectory["steps"])


@pytest.mark.parametrize("kind", list(episodes()))
def test_harbor_itself_accepts_them(kind):
    harbor = pytest.importorskip("harbor.models.trajectories", reason="needs harbor, on Python 3.12 or newer")
    model = harbor.Trajectory.model_validate(to_atif(episodes()[kind], model="m", system_prompt="Play."))
    assert from_atif(model.to_json_dict(exclude_none=False)) == episodes()[kind]


def test_the_prompt_of_a_turn_includes_the_history():
    steps = to_atif(episodes()["append"])["steps"]
    assert steps[2]["metrics"]["prompt_token_ids"] == [1, 2, 3, 4, 5, 9]
    assert steps[1]["observation"] == {"results": [{"content": "Guess a number."}]}
    assert steps[2]["observation"] == {"results": [{"content": "Right."}]}


def foreign(**changes):
    """Return a trajectory of another agent, with a tool."""
    steps = [
        {"source": "system", "message": "You can add."},
        {"source": "user", "message": "Add 1 and 2."},
        {"source": "agent", "message": "", "reasoning_content": "hm", "is_copied_context": None,
         "tool_calls": [{"tool_call_id": "1", "function_name": "add", "arguments": {"x": 1, "y": 2}}],
         "observation": {"results": [{"source_call_id": "1", "content": "3"}]},
         "metrics": {"prompt_tokens": 7, "completion_tokens": 2}},
        {"source": "agent", "message": "It is 3.", "metrics": {"prompt_tokens": 12, "completion_tokens": 3}},
    ]  # fmt: skip
    return {
        "schema_version": "ATIF-v1.4", "session_id": "s",
        "agent": {"name": "adder", "version": "1", "model_name": "m"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)], **changes,
    }  # fmt: skip


def test_a_trajectory_of_another_agent():
    result = from_atif(foreign(), reward=1.0)
    assert [one.observation for one in result.turns] == ["You can add.\n\nAdd 1 and 2.", "3"]
    assert [one.action for one in result.turns] == [
        '{"name": "add", "arguments": {"x": 1, "y": 2}}',
        "It is 3.",
    ]
    assert result.turns[0].info["reply"] == {"prompt_tokens": 7, "response_tokens": 2, "reasoning": "hm"}
    assert (result.rewards, result.success, result.context_mode) == ([0.0, 1.0], True, "messages")
    assert result.metadata == {"agent": "adder", "model": "m", "session": "s"}
    assert from_atif(foreign()).rewards == [0.0, 0.0]


@pytest.mark.parametrize(
    ("second", "mode", "context"), [([1, 2, 3, 4, 5], "append", [4, 5]), ([7, 8], "rebuild", [7, 8])]
)
def test_tokens_of_another_agent(second, mode, context):
    trajectory = foreign()
    trajectory["steps"][2]["metrics"] = {
        "prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5],
    }  # fmt: skip
    trajectory["steps"][3]["metrics"] = {"prompt_token_ids": second, "completion_token_ids": [6]}
    result = from_atif(trajectory)
    assert result.context_mode == mode
    assert [one.context_ids for one in result.turns] == [[1, 2], context]
    assert [one.response_ids for one in result.turns] == [[3], [6]]
    assert [one.logprobs for one in result.turns] == [[-0.5], None]
    del trajectory["steps"][3]["metrics"]
    assert from_atif(trajectory).context_mode == "messages"


def test_steps_that_were_copied_from_an_earlier_trajectory_are_context():
    trajectory = foreign()
    trajectory["steps"][2]["is_copied_context"] = True
    assert [one.action for one in from_atif(trajectory).turns] == ["It is 3."]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "not a trajectory"),
        ({}, "schema_version"),
        (foreign(schema_version="ATIF-v2.0"), "expected ATIF-v1.x"),
        (foreign(steps=[]), "expected steps with the ids"),
        (foreign(steps=[{"step_id": 2, "source": "user", "message": "a"}]), "expected steps with the ids"),
        (foreign(steps=[{"step_id": 1, "source": "agent"}]), "'message'"),
        (foreign(extra={"gem_core": {"context_mode": "append"}}), "not a"),
    ],
)
def test_damaged_trajectories(data, message, tmp_path):
    (tmp_path / "trajectory.json").write_text(json.dumps(data))
    with pytest.raises(TraceError, match=message):
        read_atif(tmp_path / "trajectory.json")


def test_an_episode_without_a_turn():
    with pytest.raises(TraceError, match="no step"):
        to_atif(episode())
