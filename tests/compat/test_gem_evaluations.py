"""The loops of the evaluation functions in GEM's own tests, with a stand-in for the model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import gem_bridges.compat as gem
from gem_bridges.compat.envs.math_env import MathEnv
from gem_bridges.compat.tools.base_tool import BaseTool
from gem_bridges.compat.tools.python_code_tool import PythonCodeTool
from gem_bridges.compat.tools.tool_env_wrapper import ToolEnvWrapper
from gem_bridges.compat.wrappers.wrapper_factory import WRAPPER_FACTORY
from tests.compat.stand_in_vllm import StandInLLM

SIZE = 9


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the current folder contain datasets under the names that they have on the Hub."""
    monkeypatch.chdir(tmp_path)
    sums = [{"problem": f"{n} + {n} = ?", "answer": str(2 * n)} for n in range(SIZE)]
    programs = [
        {"problem": f"Print {n}.", "tests": {"inputs": [""], "outputs": [f"{n}\n"]}} for n in range(SIZE)
    ]
    words = [{"question": f"Word {n}?", "answer": [f"word{n}"]} for n in range(SIZE)]
    for file, rows in (
        ("axon-rl/math-eval/math.jsonl", sums),
        ("axon-rl/math-eval/amc.jsonl", sums),
        ("axon-rl/CodeContest/test.jsonl", programs),
        ("google-research-datasets/nq_open/validation.jsonl", words),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("".join(json.dumps(row) + "\n" for row in rows))


def number(prompt: str) -> int:
    match = re.search(r"\d+", prompt)
    assert match is not None
    return int(match[0])


def solve(prompt: str) -> str:
    """Answer two of three sums correctly."""
    return rf"\boxed{{{2 * number(prompt) + (number(prompt) % 3 == 0)}}}"


def accuracy_of_answers(
    env: Any, llm: StandInLLM, prompts: list[str], name: str, answers: list[Any]
) -> float:
    """Grade one response per prompt with answers that are set, without a reset, as GEM's functions do."""
    rewards = []
    for output, answer in zip(llm.generate(prompts), answers, strict=True):
        setattr(env, name, answer)
        assert getattr(env, name) == answer
        _, reward, terminated, _, _ = env.step(output.outputs[0].text)
        assert terminated
        rewards.append(reward == 1)
    return sum(rewards) / len(rewards)


@pytest.mark.usefixtures("hub")
def test_mathematics() -> None:
    pytest.importorskip("math_verify")
    env = gem.make("eval:MATH500", verbose=True)
    problems, answers = gem.make("eval:AMC").dataset["problem"], env.dataset["answer"]
    assert accuracy_of_answers(env, StandInLLM(solve), problems, "answer", answers) == 2 / 3


@pytest.mark.usefixtures("hub")
def test_programs() -> None:
    env = gem.make("eval:CodeContest", verbose=True)
    dataset = env.dataset[:6]
    llm = StandInLLM(lambda p: f"```python\nprint({number(p) or 7})\n```")
    assert accuracy_of_answers(env, llm, dataset["problem"], "tests", dataset["tests"]) == 5 / 6


@pytest.mark.usefixtures("hub")
def test_questions() -> None:
    env = gem.make("eval:QaOpen", verbose=True, load_from_cache_file=False)
    dataset = env.dataset.select(range(min(6, len(env.dataset))))
    llm = StandInLLM(lambda p: f"<answer>word{number(p) or 7}</answer>")
    assert accuracy_of_answers(env, llm, dataset["question"], "answer", dataset["answer"]) == 5 / 6


def accuracy_of_episodes(base_env: Any, tool: BaseTool, llm: StandInLLM, size: int) -> tuple[float, set[str]]:
    """Play each item of the dataset once with a tool; return the accuracy and the answers of all items."""
    env: Any = ToolEnvWrapper(base_env, tools=[tool], max_tool_uses=5, tool_reward=0.0)
    env = WRAPPER_FACTORY["concat_chat"](env, tokenizer=llm.get_tokenizer())
    right, played, answers = 0, 0, set()
    while True:
        observation, _ = env.reset()
        done = False
        assert env.env.env.answer == env.unwrapped.answer
        if env.env.env.epoch > 0:
            break
        answers.add(str(env.unwrapped.answer))
        while not done:
            action = llm.generate([observation])[0].outputs[0].text
            observation, reward, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
        right += reward == 1
        played += 1
        assert played <= size
    assert played == size
    return right / size, answers


def calculate(prompt: str) -> str:
    """Run a program first, then answer."""
    return solve(prompt) if "result" in prompt else f"```python\nprint(2 * {number(prompt)})\n```"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("by_id", [True, False])
def test_the_python_tool(by_id: bool) -> None:
    pytest.importorskip("math_verify")
    env: Any = gem.make("eval:MATH500") if by_id else MathEnv("axon-rl/math-eval", "amc")
    env.dataset = env.dataset.shuffle().select(range(6))
    chosen = env.dataset["answer"]
    accuracy, answers = accuracy_of_episodes(env, PythonCodeTool(timeout=5), StandInLLM(calculate), 6)
    assert answers == set(chosen)
    assert accuracy == sum(int(answer) // 2 % 3 != 0 for answer in chosen) / 6


class StandInSearch(BaseTool):
    """Finds the word that a query asks for, as a search tool does."""

    def instruction_string(self) -> str:
        return "Write <search>your query</search>."

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        query = re.search(r"<search>(.*?)</search>", action)
        return (True, False, f"Found: {query[1]}", action) if query else (False, True, "", action)


@pytest.mark.usefixtures("hub")
def test_a_search_tool() -> None:
    def search(prompt: str) -> str:
        n = number(prompt)
        return f"<answer>word{n or 7}</answer>" if "Found" in prompt else f"<search>word {n}</search>"

    env = gem.make("eval:QaOpen", seed=42)
    env.dataset = env.dataset.select(range(6))
    assert env.dataset[0]["question"] == "Word 0?"
    accuracy, _ = accuracy_of_episodes(env, StandInSearch(), StandInLLM(search), 6)
    assert accuracy == 5 / 6


def test_a_dataset_selects_rows_columns_and_items() -> None:
    rows = [{"problem": f"{n}", "answer": str(n)} for n in range(5)]
    dataset = gem.make("math:GSM8K", dataset=rows, symbolic=False).dataset
    assert (len(dataset), dataset[-1], list(dataset)) == (5, rows[-1], rows)
    assert dataset["answer"] == ["0", "1", "2", "3", "4"]
    assert dataset[1:3] == {"problem": ["1", "2"], "answer": ["1", "2"]}
    assert dataset.select([4, 0]).select([1])[0] == rows[0]
    mixed = dataset.shuffle(seed=1)
    assert list(mixed) == list(dataset.shuffle(seed=1)) != rows
    assert sorted(mixed["answer"]) == dataset["answer"]
