"""The loader, on a small checkout in the same format, and on the real one in `GEM_CORE_TAU2_BENCH` if set."""

from __future__ import annotations

import json
import os
import sys

import pytest

pytest.importorskip("pydantic", reason="the tools of tau2-bench need pydantic")

import gem_core
from gem_core.errors import ConfigError, DataError
from gem_envs._service.tau2 import load_tau2
from tests.envs.service.test_tau_bench import call, unsolved

MODEL = """
from tau2.domains.retail.utils import RETAIL_DB_PATH
from pydantic import BaseModel
from tau2.environment.db import DB


class Order(BaseModel):
    status: str
    notes: list[str] = []


class RetailDB(DB):
    orders: dict[str, Order]
"""
TOOLS = """
from tau2.domains.retail.data_model import Order, RetailDB
from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool


class RetailTools(ToolKitBase):
    def __init__(self, db: RetailDB) -> None:
        super().__init__(db)

    def _order(self, order_id: str) -> Order:
        if order_id not in self.db.orders:
            raise ValueError("Order not found")
        return self.db.orders[order_id]

    @is_tool(ToolType.READ)
    def get_order(self, order_id: str) -> Order:
        \"\"\"Get an order.\"\"\"
        return self._order(order_id)

    @is_tool(ToolType.WRITE)
    def close_order(self, order_id: str, notes: list[str]) -> Order:
        \"\"\"
        Close an order.
        It cannot be opened again.

        Args:
            order_id: The order id, such as '#1'.
            notes: Texts for the order: any number,
                also none.

        Returns:
            The order.
        \"\"\"
        order = self._order(order_id)
        order.status, order.notes = "closed", notes
        return order

    @is_tool(ToolType.GENERIC)
    def transfer_to_human_agents(self, summary: str) -> str:
        \"\"\"Transfer.\"\"\"
        return "Transfer successful"
"""


def task(id, actions, say, **fields):
    instructions = {"reason_for_call": "Close #1.", "known_info": "You are Ann.", "unknown_info": None,
                    "task_instructions": "Be brief.", "domain": "retail"}  # fmt: skip
    actions = [{"action_id": "0", "name": name, "arguments": arguments} for name, arguments in actions]
    criteria = {"actions": actions, "communicate_info": say, "nl_assertions": None, "reward_basis": ["DB"]}
    scenario = {"persona": None, "instructions": instructions}
    return {
        "id": id,
        "user_scenario": scenario,
        "evaluation_criteria": criteria | fields.pop("criteria", {}),
        "initial_state": None,
        **fields,
    }


@pytest.fixture
def checkout(tmp_path):
    """Folder with the files of a checkout that the loader reads; its packages cannot be imported."""
    no_import = "raise ImportError('needs the clients of models')"
    close = ("close_order", {"order_id": "#1", "notes": ["bye"]})
    tasks = [task("0", [close], ["1,250"]), task("7", [("transfer_to_human_agents", {"summary": "x"})], [])]
    package, data = "src/tau2", "data/tau2/domains/retail"
    files = {
        **{
            f"{package}/{name}__init__.py": no_import
            for name in ("", "domains/", "domains/retail/", "utils/")
        },
        f"{package}/domains/retail/utils.py": "from tau2.utils.utils import DATA_DIR\n"
        "RETAIL_DB_PATH = DATA_DIR / 'tau2' / 'domains' / 'retail' / 'db.json'\n",
        f"{package}/domains/retail/data_model.py": MODEL,
        f"{package}/domains/retail/tools.py": TOOLS,
        f"{data}/policy.md": "# The policy\n",
        f"{data}/db.json": json.dumps({"orders": {"#1": {"status": "open"}}}),
        f"{data}/tasks.json": json.dumps(tasks),
        f"{data}/split_tasks.json": json.dumps({"train": ["7"], "test": ["0"], "base": ["0", "7"]}),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_tasks_tools_and_grades_of_a_checkout(checkout):
    env = gem_core.make("service:TauBenchRetail-v0", root=str(checkout))
    observation, _ = env.reset(seed=0)
    assert observation.startswith("# The policy")
    assert observation.endswith("Customer: Close #1.\nYou are Ann.\nBe brief.")
    assert "Order not found" in env.step(call("get_order", order_id="#2"))[0]
    assert '{"status": "open", "notes": []}' in env.step(call("get_order", order_id="#1"))[0]
    assert env.get_state() == json.loads(json.dumps(env.get_state()))
    env.step(call("close_order", order_id="#1", notes=["bye"]))
    assert env.step("It was 1250. Anything else?")[1:3] == (1.0, True)
    env.reset(seed=0)
    env.step(call("close_order", order_id="#1", notes=["hello"]))
    assert env.step("It was 1250. Anything else?")[1:3] == (0.0, True)
    assert not [name for name in sys.modules if name.startswith("tau2")]


CLOSE = ("close_order", {"order_id": "#1", "notes": ["bye"]})
JUDGED = {"nl_assertions": ["Agent says the price."]}


@pytest.mark.parametrize(
    ("criteria", "close", "say", "earned", "reported"),
    [
        # the basis that all retail tasks have
        ({"reward_basis": ["DB"]}, True, "Done.", 1.0, {"metrics": {"mentioned": 0.0}}),
        ({"reward_basis": ["DB"]}, True, "It was 1,250.", 1.0, {"metrics": {"mentioned": 1.0}}),
        ({"reward_basis": ["DB"]}, False, "It was 1250.", 0.0, {"metrics": {"mentioned": 1.0}}),
        ({"reward_basis": ["DB"], "communicate_info": []}, True, "Done.", 1.0, {}),
        ({"reward_basis": ["DB"], "communicate_info": None}, True, "Done.", 1.0, {}),
        ({"reward_basis": ["DB"], **JUDGED}, True, "Done.", 1.0, {"metrics": {"mentioned": 0.0}}),
        (
            {"reward_basis": ["DB", "NL_ASSERTION"], **JUDGED},
            True,
            "Done.",
            1.0,
            {"metrics": {"mentioned": 0.0}, "left_out": ["NL_ASSERTION"]},
        ),
        (
            {"reward_basis": ["DB", "NL_ASSERTION"], "nl_assertions": [], "communicate_info": []},
            True,
            "Done.",
            1.0,
            {},
        ),
        # bases of other tasks
        ({"reward_basis": ["DB", "COMMUNICATE"]}, True, "Done.", 0.0, {}),
        ({"reward_basis": ["DB", "COMMUNICATE"]}, True, "It was 1,250.", 1.0, {}),
        ({"reward_basis": ["COMMUNICATE"]}, False, "It was 1250.", 1.0, {}),
        ({"reward_basis": ["COMMUNICATE"]}, False, "Done.", 0.0, {}),
        ({"reward_basis": ["COMMUNICATE"], "actions": None}, False, "It was 1250.", 1.0, {}),
    ],
)
def test_the_reward_basis_decides(checkout, criteria, close, say, earned, reported):
    path = checkout / "data/tau2/domains/retail/tasks.json"
    path.write_text(json.dumps([task("0", [CLOSE], ["1,250"], criteria=criteria)]))
    env = gem_core.make("service:TauBenchRetail-v0", root=str(checkout))
    env.reset(seed=0)
    if close:
        env.step(call("close_order", order_id="#1", notes=["bye"]))
    _, reward, ended, _, info = env.step(f"{say} Anything else?")
    assert (reward, ended, info["success"]) == (earned, True, earned == 1)
    assert {name: info[name] for name in ("metrics", "left_out") if name in info} == reported


def test_a_task_without_a_basis_has_the_default_one(checkout):
    path = checkout / "data/tau2/domains/retail/tasks.json"
    row = task("0", [CLOSE], ["1250"])
    del row["evaluation_criteria"]["reward_basis"]
    path.write_text(json.dumps([row]))
    (loaded,) = load_tau2(str(checkout)).tasks
    assert (loaded.outputs, loaded.mentions, loaded.compares_database) == (["1250"], [], True)


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ({"reward_basis": ["DB", "ENV_ASSERTION"]}, "the reward_basis of task 0 has ENV_ASSERTION"),
        ({"reward_basis": ["ACTION", "DB"]}, "the reward_basis of task 0 has ACTION, which is not supported"),
        ({"reward_basis": ["NL_ASSERTION"]}, "is NL_ASSERTION: expected DB with actions or COMMUNICATE"),
        ({"reward_basis": []}, "is empty: expected DB"),
        ({"reward_basis": ["DB"], "actions": None}, "nothing else can be checked"),
        ({"reward_basis": ["COMMUNICATE"], "communicate_info": []}, "nothing else can be checked"),
        (
            {"actions": [{"name": "pay", "arguments": {}, "requestor": "user"}]},
            r"task 0 has actions of the user \(pay\)",
        ),
    ],
)
def test_criteria_that_cannot_be_checked_are_rejected(checkout, criteria, message):
    path = checkout / "data/tau2/domains/retail/tasks.json"
    path.write_text(json.dumps([task("0", [CLOSE], ["1250"], criteria=criteria)]))
    with pytest.raises(DataError, match=message):
        load_tau2(str(checkout))


def test_a_task_without_criteria_is_rejected(checkout):
    path = checkout / "data/tau2/domains/retail/tasks.json"
    path.write_text(json.dumps([{**task("0", [], []), "evaluation_criteria": None}]))
    with pytest.raises(DataError, match="nothing else can be checked"):
        load_tau2(str(checkout))


def test_arguments_are_described_as_in_the_docstring(checkout):
    close = load_tau2(str(checkout)).operation("close_order")
    assert close.description == "Close an order.\nIt cannot be opened again."
    schema = close.parameters
    assert schema["required"] == ["order_id", "notes"]
    assert schema["properties"]["order_id"]["description"] == "The order id, such as '#1'."
    assert schema["properties"]["notes"]["description"] == "Texts for the order: any number, also none."
    assert schema["properties"]["notes"]["items"] == {"type": "string"}


def test_splits(checkout):
    def names(split):
        return [task.name for task in load_tau2(str(checkout), split).tasks]

    assert [names(split) for split in ("train", "test", "base")] == [["7"], ["0"], ["0", "7"]]
    env = gem_core.make("service:TauBenchRetail-v0", root=str(checkout), split="train")
    env.reset(seed=0)
    assert env.step(env.oracle_action())[1:3] == (1.0, True)
    with pytest.raises(ConfigError, match=r"split=.dev.: expected base, train, or test"):
        gem_core.make("service:TauBenchRetail-v0", root=str(checkout), split="dev")


def test_tasks_that_cannot_be_graded_are_rejected(checkout):
    path = checkout / "data/tau2/domains/retail/tasks.json"
    path.write_text(json.dumps([task("0", [], [], initial_state={"initialization_actions": []})]))
    with pytest.raises(DataError, match="task 0 has an initial state, which is not supported"):
        load_tau2(str(checkout))


@pytest.mark.timeout(1800)  # the reference solutions of more than a hundred tasks
def test_the_real_one():
    root = os.environ.get("GEM_CORE_TAU2_BENCH")
    if not root:
        pytest.skip("GEM_CORE_TAU2_BENCH names no checkout of tau2-bench")
    domain = load_tau2(root, "base")
    assert (len(domain.tasks), len(domain.operations)) == (114, 16)
    assert unsolved(domain) == []
