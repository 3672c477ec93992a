"""Programs written for GEM, with the import changed."""

from __future__ import annotations

import importlib
import random
import sys
import time
from functools import partial

import pytest

import gem_bridges.compat as gem
from gem_bridges.compat.core import EnvWrapper
from gem_bridges.compat.envs.code_env import CodeEnv
from gem_bridges.compat.envs.math_env import MathEnv
from gem_bridges.compat.envs.registration import ENV_REGISTRY
from gem_bridges.compat.tools.base_tool import BaseTool
from gem_bridges.compat.tools.python_code_tool import PythonCodeTool
from gem_bridges.compat.tools.tool_env_wrapper import ToolEnvWrapper
from gem_bridges.compat.utils.constants import TERMINAL_STATE
from gem_bridges.compat.utils.debug import run_and_print_episode
from gem_bridges.compat.utils.parsing import (
    extract_code_from_model,
    extract_last_boxed_answer,
    extract_last_tagged_answer,
)
from gem_bridges.compat.wrappers.observation_wrapper import ObservationWrapper
from gem_bridges.compat.wrappers.wrapper_factory import WRAPPER_FACTORY, get_wrapper_fns
from gem_core import _registration, make_vec
from gem_core.errors import ConfigError

ROWS = [{"problem": f"{n} + 1 = ?", "answer": str(n + 1)} for n in range(20)]


class ReverseString(gem.Env):
    """The environment of GEM's example register_new_env.py, without its prose."""

    def __init__(self, str_len: int = 5):
        super().__init__()
        self.str_len = str_len

    def reset(self, seed=None):
        super().reset(seed)
        self.text = "".join(random.choices("abcdef", k=self.str_len))
        return f"Reverse {self.text}.", {}

    def step(self, action):
        answer = extract_last_boxed_answer(action)
        return TERMINAL_STATE, float(answer == self.text[::-1]), True, True, {}


class Foreign:
    """Has the methods of an environment but not the base class."""

    def reset(self, seed=None):
        return "", {}

    def step(self, action):
        return "", 0.0, True, False, {}


class BaseOfGemCore(_registration.Env):
    """Derived from gem_core.Env, with the older signature."""

    def reset(self, seed=None):
        self.begin_episode(seed)
        return f"Say {self.random.randrange(10)}.", {}

    def step(self, action):
        return "over", 1.0, True, False, {"success": True}


@pytest.fixture
def registry(own_registry):
    gem.register("test:Reverse", ReverseString)
    gem.register("test:Foreign", Foreign)
    gem.register("test:Old", BaseOfGemCore)


def test_make_takes_the_arguments_of_the_examples() -> None:
    ignored = {"use_mp": False, "verbose": True, "load_from_cache_file": False}
    env = gem.make(env_id="game:GuessTheNumber-v0", seed=time.time_ns(), max_turns=3, **ignored)
    assert (env.env_id, env.max_turns) == ("game:GuessTheNumber-v0", 3)
    assert gem.make("game:GuessTheNumber-v0-hard").max_turns == 7
    assert gem.make("game:GuessTheNumber-v0-random").max_turns is None
    first, again, other = (gem.make("game:Mastermind-v0", seed=s).spawn(same_state=True) for s in (1, 1, 2))
    codes = []
    for copy in (first, again, other):
        copy.reset()
        codes.append(copy.code)
    assert codes[0] == codes[1] != codes[2]


def test_unknown_arguments_are_still_errors() -> None:
    with pytest.raises(TypeError, match="no_such"):
        gem.make("game:GuessTheNumber-v0", no_such=1)


def test_a_pool_spawned_with_seeds() -> None:
    """GEM's adapter for the Tinker cookbook."""
    parent = gem.make("game:GuessTheNumber-v0", seed=5, max_turns=4)
    pool = [parent.spawn(seed=parent.seed + i + 1) for i in range(3)]
    assert [env.seed for env in pool] == [6, 7, 8]
    assert {env.max_turns for env in pool} == {4}
    pool[0].reset()
    twin = pool[0].spawn(same_state=True)
    assert twin.number == pool[0].number


def test_a_limit_terminates_as_well_as_truncates() -> None:
    env = gem.make("game:Mastermind-v0-easy", max_turns=1)
    env.reset(seed=0)
    wrong = r"\boxed{1 2}" if env.code != [1, 2] else r"\boxed{2 1}"
    *_, terminated, truncated, info = env.step(wrong)
    assert (terminated, truncated) == (True, True)
    assert info["metrics"]["success"] == 0.0
    assert env.step(wrong)[1:4] == (0.0, True, True)
    env.reset()
    assert env.step(wrong)[4]["metrics"]["success"] in (0.0, 1.0)


def test_datasets_have_gems_attributes() -> None:
    env = gem.make("math:GSM8K", dataset=ROWS, symbolic=False, seed=3)
    env.reset(idx=4)
    assert env.answer == "5"
    twin = gem.make("math:GSM8K", dataset=env.dataset, symbolic=False, seed=4)
    assert len(twin.dataset) == len(ROWS)
    assert not hasattr(gem.make("game:GuessTheNumber-v0", dataset=None), "dataset")


def test_a_dataset_can_be_replaced() -> None:
    env = gem.make("qa:NaturalQuestions", dataset=ROWS)
    env.dataset = iter([{"problem": "Who?", "answer": "Sergei Fedorov"}])
    assert env.reset()[0].startswith("Who?")
    assert env.step("<answer> Sergei Fedorov </answer>")[1] == 1.0


def test_an_environment_written_for_gem(registry) -> None:
    env = gem.make("test:Reverse")
    observation, _ = env.reset(7)
    assert env.reset(7)[0] == observation
    assert env.step(f"\\boxed{{{env.text[::-1]}}}")[:2] == (TERMINAL_STATE, 1.0)


@pytest.mark.parametrize("backend", ["inline", "thread"])
@pytest.mark.parametrize("id", ["test:Reverse", "test:Old"])
def test_older_signatures_work_in_make_vec_and_rollouts(registry, id: str, backend: str) -> None:
    with make_vec(id, 2, backend=backend) as envs:  # type: ignore[arg-type]
        observations, infos = envs.reset(seed=0)
        assert all(observations)
        assert not any("error" in info for info in infos)


def test_a_class_that_is_not_an_environment_fails_with_one_line(registry) -> None:
    reason = r"^test:Foreign: Foreign is not an environment; .*\.Env.*$"
    with pytest.raises(ConfigError, match=reason):
        make_vec("test:Foreign", 2)


def test_calling_reset_of_the_base_class_says_what_to_do() -> None:
    class Calls(_registration.Env):
        def reset(self, seed=None, *, options=None):
            return super().reset(seed)

    with pytest.raises(NotImplementedError, match=r"call self.begin_episode\(seed\) instead, or derive"):
        Calls().reset(0)


@pytest.mark.parametrize("async_mode", [False, True])
def test_vector_environments(async_mode: bool, capsys) -> None:
    """GEM's tests/test_env/test_game.py."""
    envs = gem.make_vec(
        env_ids=["game:GuessTheNumber-v0-easy", "game:Sokoban-v0-easy", "game:Game2048-v0-easy"],
        wrappers=[WRAPPER_FACTORY["concat"], WRAPPER_FACTORY["episode_tracking"]],
        vec_kwargs=[{"seed": 9}, {}, {"use_mp": False}],
        max_turns=3,
        async_mode=async_mode,
    )
    with envs:
        policy = lambda _: [env.sample_random_action() for env in envs.envs]  # noqa: E731
        run_and_print_episode(envs, policy, ignore_done=True, max_steps=5)
        assert [env.turn_limit for env in envs.envs] == [3] * 3
    assert "--- step 5" in capsys.readouterr().out


def test_environments_in_other_processes_are_inaccessible() -> None:
    reason = "backend 'process' keeps its environments in other processes"
    with make_vec("game:GuessTheNumber-v0", 1, backend="process") as envs:  # noqa: SIM117  # for the reader
        with pytest.raises(ConfigError, match=reason):
            envs.envs  # noqa: B018


class Template:
    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"


def test_wrappers_by_name() -> None:
    names = "python_tool_no_int_reward,concat_chat,episode_tracking"
    env = gem.make("game:GuessTheNumber-v0-easy", max_turns=3)
    for wrapper in get_wrapper_fns(names, tokenizer=Template()):
        env = wrapper(env)
    observation, info = env.reset(0)
    assert observation.startswith("<user>")
    assert info["step_counter"] == 0
    *_, info = env.step(r"\boxed{3}")
    assert info["step_counter"] == 1
    assert get_wrapper_fns("") == []
    with pytest.raises(ConfigError, match="unknown wrapper 'nope'"):
        get_wrapper_fns("nope")


def test_observation_wrapper_by_flags() -> None:
    env = gem.make("game:GuessTheNumber-v0-easy")
    shown = partial(ObservationWrapper, include_chat_template=False)
    both = shown(env, max_history_length=2)
    both.reset(0)
    assert r"\boxed{3}" in both.step(r"\boxed{3}")[0]
    only = shown(env, include_action=False)
    only.reset(0)
    assert r"\boxed{3}" not in only.step(r"\boxed{3}")[0]
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        ObservationWrapper(env)
    with pytest.raises(ConfigError, match="cannot be combined"):
        ObservationWrapper(env, apply_chat_template_on_reset=True)


def test_python_tool() -> None:
    """GEM's tests/test_tool/test_python_code_tool.py."""
    env = ToolEnvWrapper(
        gem.make("game:GuessTheNumber-v0", max_turns=3),
        tools=[PythonCodeTool(timeout=5, keep_error_last_line=True)],
        tool_reward=0.1,
        tool_success_reward=0.2,
        max_tool_uses=2,
    )
    observation, info = env.reset(seed=0)
    assert "python" in observation
    assert info["use_tool"] is False
    observation, reward, *_, info = env.step("<python>print('Hello')</python> ...")
    assert observation == "Code execution result: Hello\n"
    assert reward == pytest.approx(0.3)
    assert info["parsed_action"] == "<python>print('Hello')</python>"
    observation, reward, *_, info = env.step("<python>prnit(1)</python>")
    assert "NameError" in observation
    assert "Give your final answer" in observation
    assert (reward, info["tool_use_counter"], info["tool_success_counter"]) == (0.1, 2, 1)
    *_, info = env.step("<python>print(1)</python>")
    assert info["use_tool"] is False


class Shout(BaseTool):
    tool_type = "shout"

    def instruction_string(self) -> str:
        return "Write SHOUT."

    def execute_action(self, action: str):
        return "SHOUT" in action, "!" in action, "HEY", action


def test_a_custom_tool_and_the_reward_of_an_error() -> None:
    env = ToolEnvWrapper(gem.make("game:GuessTheNumber-v0"), tools=[Shout()], tool_execute_error_reward=-0.5)
    env.reset(seed=0)
    assert env.step("SHOUT")[:2] == ("HEY", 0.0)
    assert env.step("SHOUT!")[:2] == ("HEY", -0.5)
    with pytest.raises(ConfigError, match="expected a negative number"):
        ToolEnvWrapper(env, tools=[Shout()], tool_reward=1.0, tool_execute_error_reward=-0.5)


def test_parsers() -> None:
    assert extract_last_boxed_answer(r"\boxed{1} \boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert extract_code_from_model("```python\nx = 1\n```") == "x = 1"
    assert extract_last_tagged_answer("<answer> a </answer>") == "a"
    assert extract_last_tagged_answer("") is extract_code_from_model("") is None


def test_the_registry_is_a_mapping() -> None:
    assert "game:GuessTheNumber-v0-easy" in ENV_REGISTRY
    assert "game:Nothing" not in ENV_REGISTRY
    assert ENV_REGISTRY["game:GuessTheNumber-v0-easy"].kwargs["max_turns"] == 4
    assert list(ENV_REGISTRY)[:1] == _registration.list_envs()[:1]


def test_the_shim_lets_other_programs_import_gem(tmp_path, monkeypatch) -> None:
    """The two lines of docs/environments/gem.md."""
    (tmp_path / "gem.py").write_text(
        "from gem_bridges.compat import *\nfrom gem_bridges.compat import __path__\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "gem"]:
        monkeypatch.delitem(sys.modules, name)
    shim = importlib.import_module("gem")
    assert shim.__file__ == str(tmp_path / "gem.py")
    assert shim.make is gem.make
    for name in ("core", "envs.registration", "envs.math_env", "utils.constants", "tools.tool_env_wrapper"):
        importlib.import_module(f"gem.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "gem"]:
        monkeypatch.delitem(sys.modules, name)


def test_wrappers_written_for_gem() -> None:
    class Loud(EnvWrapper):
        def reset(self, seed=None):
            observation, info = self.env.reset(seed)
            return observation.upper(), info

    assert Loud(gem.make("game:GuessTheNumber-v0")).reset(0)[0].startswith("FIND")


class HubRows:
    """Has what environments read from a `datasets.Dataset`, which is not a list."""

    def __iter__(self):
        return iter([{"problem": "Double it.", "tests": {"inputs": ["1"], "outputs": ["2"]}}])


def test_environments_of_a_dataset_take_the_arguments_of_gems_constructors(own_registry) -> None:
    env = CodeEnv(
        dataset=HubRows(), dataset_name="one_example", max_tests=3, verbose=True, max_workers=2, seed=1
    )
    env.reset()
    assert env.tests == {"inputs": ["1"], "outputs": ["2"]}
    assert env.step("```python\nprint(2 * int(input()))\n```")[1] == 1.0
    with pytest.raises(TypeError, match="difficulty"):
        MathEnv(dataset=ROWS, symbolic=False, difficulty=3)
    firsts = [MathEnv(dataset=ROWS, symbolic=False, seed=seed).reset()[0] for seed in (1, 1, 2, 3, 4)]
    assert firsts[0] == firsts[1]
    assert len(set(firsts)) > 1
    env = MathEnv(dataset=ROWS, symbolic=False, seed=1)
    env.reset()
    assert env.step(f"\\boxed{{{env.answer}}}")[1] == 1.0
    gem.register("test:Own", "gem_bridges.compat.envs.qa_env:QaEnv", question_key="problem")
    assert gem.make("test:Own", dataset=ROWS, verbose=True).reset()[0]
    assert gem.make("code:Taco8k", dataset=HubRows(), max_turns=3).reset()[0].startswith("Double it.")
