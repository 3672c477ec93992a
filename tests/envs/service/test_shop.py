"""The shop: its tasks, their graders, and the conversation."""

from __future__ import annotations

import json
import re

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._service.domain import OperationRefused
from gem_envs._service.env import ASSISTANT, USER, Service
from gem_envs._service.shop import CHANGES, OPERATIONS, said_in_words
from gem_envs._service.shop_database import shop_database
from gem_envs._service.shop_tasks import shop
from gem_envs._service.user import END
from gem_lab import check_env
from gem_lab._checker import RULES

TASKS = shop().tasks
READS = {"find_customer_by_email", "find_customer_by_name", "get_customer", "get_order", "get_product"}
EVERYTHING_ELSE = ("change_profile", {"customer": "C040", "city": "Nowhere"})


def call(name, arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def serve(index, calls, last, confirm=True):
    """Return the assistant's reward for making `calls` and saying `last` before the user ends.

    With `confirm`, the user agrees before the first change.
    """
    env = Service(shop())
    env.reset(seed=0, options={"index": index})
    env.step({USER: TASKS[index].request})
    agreed = not confirm
    for name, arguments in calls:
        if name in CHANGES and not agreed:
            env.step({ASSISTANT: "I am going to do that. Shall I go ahead?"})
            env.step({USER: "Yes, please."})
            agreed = True
        if shop().operation(name).ends and last:  # the conversation has ended
            env.step({ASSISTANT: last})
            env.step({USER: "Thank you."})
        rewards = env.step({ASSISTANT: call(name, arguments)})[1]
        if not env.agents:
            return rewards[ASSISTANT]
    env.step({ASSISTANT: last})
    _, rewards, terminated, _, infos = env.step({USER: END})
    assert all(terminated.values())
    assert infos[USER]["success"] is (rewards[USER] == 1.0)
    assert rewards[ASSISTANT] == rewards[USER]
    return rewards[ASSISTANT]


def skeleton(text, task):
    """Return the instruction without names, numbers, and the customer's knowledge."""
    text = text.split("\nWhat you know")[0]
    database = shop_database()
    names = {product["name"] for product in database["products"].values()}
    names |= {
        str(value)
        for p in database["products"].values()
        for v in p["variants"].values()
        for value in v.values()
    }
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "_")
    text = re.sub(r"You are [^.]*\.", "", text)
    return re.sub(r"[\w@.+-]*\d[\w.-]*|\b[A-Z]\w+ [A-Z]\w+\b", "_", text)


def test_at_least_sixty_tasks_and_no_two_alike():
    assert len(TASKS) >= 60
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert len({skeleton(task.instruction, task) for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("index", range(len(TASKS)), ids=[task.name for task in TASKS])
def test_the_grader_of_a_task(index):
    task = TASKS[index]
    nothing = all(name in READS for name, _ in task.actions) and not task.outputs
    said = "Sorry, no." if nothing else " ".join(task.outputs)
    assert serve(index, task.actions, said) == 1.0
    writes = [entry for entry in task.actions if entry[0] not in READS]
    # Wrong final states: a different change, a missing change, a missing output.
    wrong = [[EVERYTHING_ELSE, *task.actions]]
    wrong += [[entry for entry in task.actions if entry is not missing] for missing in writes]
    for calls in wrong:
        assert serve(index, calls, said) == 0.0
    for missing in task.outputs:
        assert serve(index, task.actions, " ".join(o for o in task.outputs if o is not missing)) == 0.0
    database = shop_database()
    for name, arguments in task.actions:  # the reference solution is never rejected
        assert shop().operation(name).apply(database, arguments).ok
    changed = database != shop_database()
    assert changed == bool(writes)


@pytest.mark.parametrize("index", [*range(0, len(TASKS), 7), len(TASKS) - 1])
def test_oracles_reach_the_goal_together(index):
    env = gem_core.make("service:Shop-v0", task=index)
    total, ended = 0.0, False
    env.reset(seed=index)
    while not ended:
        _, reward, terminated, truncated, info = env.step(env.oracle_action())
        total += reward
        ended = terminated or truncated
    assert (total, info["success"]) == (1.0, True)


def test_every_declined_request_could_have_been_granted():
    """The tools reject a forbidden action if they can detect it; otherwise the result is graded as wrong."""
    declined = [
        n
        for n, task in enumerate(TASKS)
        if "+" not in task.name and len(task.actions) == 2 and not task.outputs
    ]
    assert len(declined) >= 11
    database = shop_database()
    for index in declined:
        customer = database["customers"][TASKS[index].actions[1][1]["customer"]]
        tempting = ("cancel_order", {"order": customer["orders"][0], "reason": "changed mind"})
        assert serve(index, [*TASKS[index].actions, tempting], "") == 0.0
        assert serve(index, [*TASKS[index].actions, ("hand_over", {"summary": "?"})], "") == 0.0


@pytest.mark.once
def test_declining_blindly_earns_nothing():
    declined = [n for n in range(len(TASKS)) if serve(n, TASKS[n].actions[:2], "Sorry, no.") == 1.0]
    assert len(declined) == 11
    by_email = [("find_customer_by_email", {"email": shop_database()["customers"]["C001"]["email"]})]
    for index in range(len(TASKS)):
        find, account = TASKS[index].actions[:2]
        for calls in ([], [find], [account], [*by_email, ("get_customer", {"customer": "C001"})]):
            other = account[1]["customer"] != "C001"
            assert serve(index, calls if other else calls[:1], "Is there anything else?") == 0.0
    numbers = " ".join(map(str, range(40)))
    assert all(serve(index, [], numbers) == 0.0 for index in range(len(TASKS)))
    for index in declined:
        customer = shop_database()["customers"][TASKS[index].actions[1][1]["customer"]]
        find = ("find_customer_by_email", {"email": f" {customer['email'].upper()}"})
        assert serve(index, [find, ("get_order", {"order": customer["orders"][0]})], "Sorry, no.") == 1.0


@pytest.mark.parametrize(
    "index", [n for n, t in enumerate(TASKS) if {name for name, _ in t.actions} & CHANGES]
)
def test_a_change_without_agreement_earns_nothing(index):
    said = " ".join(TASKS[index].outputs)
    assert serve(index, TASKS[index].actions, said, confirm=True) == 1.0
    assert serve(index, TASKS[index].actions, said, confirm=False) == 0.0


def test_asking_for_the_email_is_not_an_agreement():
    index = next(n for n, task in enumerate(TASKS) if task.name == "cancel")
    env = Service(shop())
    env.reset(seed=0, options={"index": index})
    task = TASKS[index]
    env.step({USER: task.request})
    env.step({ASSISTANT: "What is your email address?"})
    env.step({USER: task.facts["email"]})
    for name, arguments in task.actions:
        env.step({ASSISTANT: call(name, arguments)})
    env.step({ASSISTANT: "Done."})
    assert env.step({USER: END})[1][ASSISTANT] == 0.0


def test_closing_after_a_lookup_earns_nothing():
    for index, task in enumerate(TASKS):
        assert serve(index, task.actions[:2], "Is there anything else?") == 0.0


@pytest.mark.parametrize(
    ("said", "output", "there"),
    [
        ("There are 7.", "7", True),
        ("**7**, in all", "7", True),
        ("The difference is -41 (or 41.00)", "41", True),
        ("It was 1,077 in all", "1077", True),
        ("The number is tr938262", "TR938262", True),
        ("To Denholm's", "Denholm", True),
        ("You can buy it in 3 variants today, as of 17 May", "7", False),
        ("7.50 or 3,7 or 7-day or W7 or 1,007 or 70", "7", False),
        ("To Denholmshire", "Denholm", False),
        (" ".join(map(str, range(2000))), "7", False),
        (" ".join(map(str, range(2000))) + " TR1", "TR1", True),
        (" ".join(map(str, range(30))), "7", True),
    ],
)
def test_a_required_output_must_be_a_separate_word(said, output, there):
    assert said_in_words(said, [output]) is there


REFUSALS = [
    ("find_customer_by_email", {"email": "nobody@post.example"}, "no customer has this email"),
    ("find_customer_by_name", {"first_name": "A", "last_name": "B", "postcode": "1"}, "name and postcode"),
    ("get_customer", {"customer": "C999"}, "no customer 'C999'"),
    ("get_order", {"order": "W1"}, "no order 'W1'"),
    ("get_product", {"product": "P99"}, "no product 'P99'"),
    ("cancel_order", {"order": "W10011", "reason": "changed mind"}, "is sent, not waiting"),
    ("change_order_payment", {"order": "W10010", "payment": "card-0"}, "no payment of this account"),
    ("return_items", {"order": "W10013", "variants": ["a"], "payment": "x"}, "70 days ago"),
    ("return_items", {"order": "W10010", "variants": ["a"], "payment": "x"}, "is waiting, not delivered"),
    ("return_items", {"order": "W10012", "variants": ["a"], "payment": "x"}, "a gift card of the account"),
    ("change_item", {"order": "W10010", "variant": "zz", "new_variant": "a"}, "holds no item 'zz'"),
    ("change_profile", {"customer": "C001"}, "nothing to change"),
]


@pytest.mark.parametrize(("name", "arguments", "reason"), REFUSALS)
def test_rejections_change_nothing(name, arguments, reason):
    database = shop_database()
    result = shop().operation(name).apply(database, arguments)
    assert not result.ok
    assert reason in result.text
    assert database == shop_database()


def test_more_rejections_that_change_nothing():
    database = shop_database()
    customer, order = database["customers"]["C001"], database["orders"]["W10012"]
    gift = next(key for key in customer["payments"] if key.startswith("gift"))
    variants = [item["variant"] for item in order["items"]]
    operation = shop().operation
    assert (
        "hold enough"
        in operation("change_order_payment").apply(database, {"order": "W10010", "payment": gift}).text
    )
    back = {"order": "W10012", "variants": variants[:1], "payment": gift}
    assert operation("return_items").apply(database, back).ok
    assert not operation("return_items").apply(database, back).ok  # only possible once
    assert not operation("return_items").apply(database, {**back, "variants": []}).ok
    same = {"order": "W10012", "variant": variants[1], "new_variant": variants[1]}
    assert "same variant" in operation("exchange_item").apply(database, same).text


# -- the conversation -------------------------------------------------------------------------


def test_a_conversation():
    env = Service(shop(), task=0)
    observations, _ = env.reset(seed=0)
    assert env.active_agents() == [USER]
    assert TASKS[0].instruction in observations[USER]
    assert TASKS[0].instruction not in observations[ASSISTANT]
    assert "change_order_payment" in observations[ASSISTANT]
    observations = env.step({USER: "Hello, cancel my order."})[0]
    assert observations[ASSISTANT].endswith("Customer: Hello, cancel my order.")
    observations, rewards, *_, infos = env.step({ASSISTANT: call("get_customer", {"customer": "C001"})})
    assert env.active_agents() == [ASSISTANT]
    assert '"email"' in observations[ASSISTANT]
    assert infos[ASSISTANT] == {"invalid": None, "use_tool": True}
    assert rewards == {ASSISTANT: 0.0, USER: 0.0}
    infos = env.step({ASSISTANT: call("get_customer", {"customer": "C999"})})[4]
    assert "no customer" in infos[ASSISTANT]["tool_error"]
    for broken in ("<tool_call>{", call("no_such_tool", {}), call("get_order", {"order": 3})):
        observations, *_, infos = env.step({ASSISTANT: broken})
        assert infos[ASSISTANT]["invalid"] == "format"
        assert "Error:" in observations[ASSISTANT]
    assert env.database == shop_database()
    observations = env.step({ASSISTANT: "Which order?"})[0]
    assert observations[USER].endswith("Assistant: Which order?")
    assert env.step({USER: ""})[4][USER]["invalid"] == "format"


def test_an_assistant_that_never_yields_runs_into_the_limit():
    env = gem_core.make("service:Shop-v0", max_turns=6)
    env.reset(seed=0)
    results = [env.step(call("list_products", {})) for _ in range(5)]
    assert [result[3] for result in results] == [False] * 4 + [True]
    assert results[-1][1] == 0.0
    assert results[-1][4]["success"] is False


def test_the_side_of_the_user_and_a_user_who_leaves_too_soon():
    env = gem_core.make("service:Shop-v0", agent="user", task=0)
    observation, info = env.reset(seed=0)
    assert "You are a customer" in observation
    assert info["agent"] == "user"
    assert env.step(f"Never mind. {END}")[1] == 0.0


def test_the_index_of_a_task_and_bad_arguments():
    env = gem_core.make("service:Shop-v0")
    env.reset(seed=0, options={"index": 5})
    assert env.env.task is TASKS[5]
    assert len({env.reset(seed=seed)[0] for seed in range(12)}) > 6
    with pytest.raises(ConfigError, match="expected an index from 0 to"):
        env.reset(options={"index": 1000})
    with pytest.raises(ConfigError, match="task=-1: expected a whole number"):
        gem_core.make("service:Shop-v0", task=-1)
    with pytest.raises(ConfigError, match="player='nobody': expected"):
        gem_core.make("service:Shop-v0", user="nobody")


@pytest.mark.once
def test_the_contract():
    rules = [r.name for r in RULES if r.name not in ("processes_change_nothing", "long_text_is_taken")]
    for agent in (ASSISTANT, USER):
        report = check_env("service:Shop-v0", seeds=(0,), rules=rules, agent=agent)
        # The floor is for the default agent.
        assert set(report.skipped) == {"best_return", "floor_holds", "labels_are_right"}


def test_the_database_is_a_new_one_each_time():
    first = shop_database()
    first["customers"].clear()
    assert len(shop_database()["customers"]) == 40
    with pytest.raises(OperationRefused):
        OPERATIONS[0]._act(first, email="a")
