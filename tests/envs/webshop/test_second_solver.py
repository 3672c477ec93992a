"""The second solver of purchases agrees with the reward, and rejects purchases that do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("bm25s", reason="needs the extra 'search'")

from gem_envs._webshop.env import WebShop
from gem_envs._webshop.generated import generated_catalog
from gem_envs._webshop.second_solver import fits

BUY = "\\boxed{click[buy now]}"


def at_the_purchase(env, seed):
    """Play the oracle up to the purchase, and return it."""
    env.reset(seed=seed)
    while (action := env.oracle_action()) != BUY:
        assert env.verify(action) is None
        env.step(action)
    return action


@pytest.mark.parametrize("split", ["train", "test"])
def test_purchases_of_the_oracle_are_right(split):
    env = WebShop(split=split, num_products=200)
    for seed in range(30):
        action = at_the_purchase(env, seed)
        assert env.verify(action) is True
        assert env.step(action)[1] == 1.0


def test_planted_goals_are_rejected():
    """Buy for a goal that differs from the instruction in one respect, which the reward does not see."""
    env = WebShop(num_products=200)
    for seed in range(30):
        action = at_the_purchase(env, seed)
        goal, product = env.goal, env.product
        other = next(one for one in env.catalog.products if one.kind != product.kind)
        words = goal.instruction
        wish = words.partition(", with ")[0]
        for planted in (
            words.replace(f" {product.kind},", f" {other.kind},"),
            words.replace(goal.attributes[0], "never seen before"),
            words.replace(f": {goal.options[0]}", ": another value"),
            f"{wish}, with {words.partition(', with ')[2].partition(', for less')[0].rstrip('.')}, "
            "for less than 0.50 dollars.",
        ):
            assert planted != words
            env.goals = [replace(goal, instruction=planted)] * len(env.goals)
            env._open = None
            assert env.verify(action) is False, planted
        env.goals = env.catalog.goals["train"]


def test_any_purchase_is_judged_like_the_reward():
    env = WebShop(num_products=200)
    verdicts = []
    for seed in range(150):
        env.reset(seed=seed)
        kind = env.catalog.product(env.goal.asin).kind
        same = [one for one in env.catalog.products if one.kind == kind]
        product = same[seed % len(same)]
        env.page, env.asin, env._open = "item", product.asin, None
        for name, values in product.options.items():
            env.chosen[name] = next((value for value in values if value in env.goal.options), values[0])
        verdicts.append(env.verify(BUY))
        assert verdicts[-1] is env.step(BUY)[4]["success"]
    assert verdicts.count(True) > 5


def test_no_price_is_a_limit():
    prices = [product.price for product in generated_catalog(1000, 0).products]
    assert len(prices) == 1000
    assert not any(price % 10 == 0 for price in prices)


def test_less_than_the_limit():
    arguments = "Find soft blue lamp, with size: big, for less than 40.00 dollars."
    features = ["Soft: made for use every day."]
    for price, right in (("$39.99", True), ("$40.00", False), ("$40.01", False)):
        assert fits(arguments, "Abc 1 Soft Blue Lamp", price, features, {"size": "big"}) is right
    assert not fits(arguments, "Abc 1 Soft Desk", "$3.00", features, {"size": "big"})
    assert not fits(arguments, "Abc 1 Soft Blue Lamp", "$3.00", features, {})
    with pytest.raises(ValueError, match="not an instruction"):
        fits("Buy it.", "A", "$1", [], {})
    with pytest.raises(ValueError, match="not a feature"):
        fits(arguments, "Abc 1 Soft Blue Lamp", "$3.00", ["Soft."], {})
