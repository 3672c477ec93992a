import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_bridges.openenv import _wire
from gem_bridges.openenv._sessions import read_message
from gem_core import render_observation

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
infos = st.fixed_dictionaries(
    {},
    optional={
        "prefix": st.text(),
        "suffix": st.text(),
        "success": st.booleans() | st.none(),
        "invalid": st.sampled_from(["format", "illegal", "length", None]),
        "metrics": json_values,
        "other": json_values,
    },
)
observations = st.text() | st.lists(st.builds(lambda text: {"type": "text", "text": text}, st.text()))
rewards = st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


def expected_fields(observation, info):
    shown = render_observation(observation, info)
    fields = {"text": shown} if isinstance(shown, str) else {"parts": shown}
    if not isinstance(shown, str):
        fields["text"] = "\n".join(part["text"] for part in shown)
    for key in ("success", "invalid"):
        if info.get(key) is not None:
            fields[key] = info[key]
    rest = {k: v for k, v in info.items() if k not in ("success", "invalid", "prefix", "suffix")}
    return {**fields, "info": rest} if rest else fields


@given(observations, infos)
def test_the_answer_to_a_reset_is_json_of_its_fields(observation, info):
    message = json.loads(_wire.first_observation(observation, info))
    data = {"observation": expected_fields(observation, info), "reward": None, "done": False}
    assert message == {"type": "observation", "data": data}


@given(observations, rewards, st.sampled_from([(False, False), (True, False), (False, True)]), infos)
def test_the_answer_to_a_step_is_json_of_its_fields(observation, reward, flags, info):
    message = json.loads(_wire.step_observation(observation, reward, *flags, info))
    fields = expected_fields(observation, info)
    if any(flags):
        fields["terminated"], fields["truncated"] = flags
    data = {"observation": fields, "reward": reward, "done": any(flags)}
    assert message == {"type": "observation", "data": data}
    assert type(message["data"]["reward"]) is type(reward)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_raise(bad):
    with pytest.raises(ValueError, match="not JSON compliant"):
        _wire.step_observation("text", bad, False, False, {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        _wire.first_observation("text", {"metrics": {"n": bad}})


@given(
    st.dictionaries(st.text(), json_values), st.sampled_from(["", " ", "\n\t"]), st.sampled_from([None, 2])
)
def test_messages_are_read_with_and_without_white_space(data, space, indent):
    text = json.dumps({"type": "step", "data": data}, indent=indent)
    assert read_message(f"{space}{text}{space}".encode()) == ("step", data)


def test_keys_of_an_info_dict_become_text():
    message = json.loads(_wire.first_observation("x", {"counts": {1: {2: 3}}}))
    assert message["data"]["observation"]["info"] == {"counts": {"1": {"2": 3}}}
