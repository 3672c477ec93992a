"""The loader, on a small checkout in the same format, and on the real one in `GEM_CORE_TAU_BENCH` if set."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import gem_core
from gem_core.errors import ConfigError, DataError
from gem_envs._service.env import ASSISTANT, USER, Service
from gem_envs._service.tau_bench import load_tau_bench

TOOL = """
import json

from tau_bench.envs.tool import Tool


def describe(name, description, parameter):
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


class CloseOrder(Tool):
    get_info = staticmethod(lambda: describe("close_order", "Closes an order.", "order_id"))

    @staticmethod
    def invoke(data, order_id):
        order = data["orders"].get(order_id)
        if order is None:
            return "Error: order not found"
        order.update(status="closed")
        return json.dumps(order)


class TransferToHumanAgents(Tool):
    get_info = staticmethod(lambda: describe("transfer_to_human_agents", "Hands over.", "summary"))
    invoke = staticmethod(lambda data, summary: f"A colleague has been told: {summary}")
"""
TOOLS = """
from .all import CloseOrder, TransferToHumanAgents

ALL_TOOLS = [CloseOrder, TransferToHumanAgents]
"""
TASKS = """
from tau_bench.types import Action, Task

TASKS_TEST = [
    Task(annotator="0", user_id="ann_1", instruction="You are Ann. Close #1 and say its price.",
         actions=[Action(name="close_order", kwargs={"order_id": "#1"})], outputs=["1,250"]),
    Task(annotator="0", user_id="bob_2", instruction="You are Bob.",
         actions=[Action(name="transfer_to_human_agents", kwargs={"summary": "wants a person"})], outputs=[]),
]
"""


@pytest.fixture
def checkout(tmp_path):
    """Folder with the files of a checkout that the loader reads; its packages cannot be imported."""
    files = {
        "__init__.py": "raise ImportError('needs the clients of models')",
        "envs/__init__.py": "raise ImportError('needs the clients of models')",
        "envs/tool.py": "class Tool:\n    pass\n",
        "envs/retail/__init__.py": "raise ImportError('needs the clients of models')",
        "envs/retail/wiki.md": "# The policy\n",
        "envs/retail/tasks_test.py": TASKS,
        "envs/retail/tools/__init__.py": TOOLS,
        "envs/retail/tools/all.py": TOOL,
        "envs/retail/data/orders.json": json.dumps({"#1": {"status": "open"}}),
        "envs/retail/data/products.json": "{}",
        "envs/retail/data/users.json": "{}",
    }
    for name, text in files.items():
        path = tmp_path / "tau_bench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(tmp_path)


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def unsolved(domain):
    """Return the names of the tasks that the reference actions do not solve."""
    names = []
    for index, task in enumerate(domain.tasks):
        env = Service(domain, task=index, max_turns=200)
        env.reset(seed=0)
        while env.agents:
            (agent,) = env.active_agents()
            rewards = env.step({agent: env.oracle_action(agent)})[1]
        if rewards != {ASSISTANT: 1.0, USER: 1.0}:
            names.append(task.name)
    return names


def test_tasks_tools_and_grades_of_a_checkout(checkout):
    env = gem_core.make("service:TauBenchRetail-v0", root=checkout, task=0)
    observation, _ = env.reset(seed=0)
    assert observation.startswith("# The policy")
    assert observation.endswith("Customer: You are Ann. Close #1 and say its price.")
    assert "order not found" in env.step(call("close_order", order_id="#2"))[0]
    env.step(call("close_order", order_id="#1"))
    _, reward, terminated, _, _ = env.step("It was 1250. Anything else?")
    assert (reward, terminated) == (1.0, True)
    env.reset(seed=0)
    assert env.step("It was 1,250. Anything else?")[1] == 0.0  # the order is still open
    env.reset(seed=0)
    env.step(call("close_order", order_id="#1"))
    assert env.step("Done. Anything else?")[1] == 0.0  # the price was not mentioned

    env = gem_core.make("service:TauBenchRetail-v0", root=checkout, task=1)
    env.reset(seed=0)
    assert env.step(env.oracle_action())[1:3] == (1.0, True)
    assert not [name for name in sys.modules if name.startswith("tau_bench")]


def test_a_folder_that_is_not_a_checkout_is_reported_in_one_line(checkout, tmp_path):
    with pytest.raises(DataError, match="pass the folder of a checkout as root"):
        gem_core.make("service:TauBenchRetail-v0", root=str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"split=.validation.: expected test, train, or dev"):
        gem_core.make("service:TauBenchRetail-v0", root=checkout, split="validation")
    with pytest.raises(DataError, match="cannot be read: ModuleNotFoundError"):
        gem_core.make("service:TauBenchRetail-v0", root=checkout, split="dev")
    with pytest.raises(DataError, match="as root"):
        gem_core.make("service:TauBenchRetail-v0")


@pytest.mark.timeout(1800)  # the reference solutions of more than a hundred tasks
def test_the_real_one():
    root = os.environ.get("GEM_CORE_TAU_BENCH")
    if not root:
        pytest.skip("GEM_CORE_TAU_BENCH names no checkout of tau-bench")
    domain = load_tau_bench(root)
    assert (len(domain.tasks), len(domain.operations)) == (115, 16)
    assert unsolved(domain) == []


def test_messages_among_the_reference_actions_are_not_required(checkout):
    path = Path(checkout, "tau_bench/envs/retail/tasks_test.py")
    message = 'Action(name="respond", kwargs={"content": "The price is 1250."})'
    text = TASKS.replace('actions=[Action(name="close_order', f'actions=[{message}, Action(name="close_order')
    assert message in text
    path.write_text(text)
    domain = load_tau_bench(str(checkout))
    assert [name for name, _ in domain.tasks[0].actions] == ["close_order"]
    assert unsolved(domain) == []
