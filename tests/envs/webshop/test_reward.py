from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("bm25s", reason="needs the extra 'search'")

from gem_envs._webshop.catalog import Goal, Product
from gem_envs._webshop.generated import generated_catalog
from gem_envs._webshop.reward import has_attribute, same_option, score, type_score

SHOE = Product(
    asin="A",
    name="Velora 12 Rubber Sole Running Shoes",
    query="running shoes",
    path=("Shoes", "Sports", "Running"),
    price=49.5,
    price_tag="$49.50",
    options={"color": ["navy blue", "sand"], "size": ["8", "8.5"]},
    attributes=("rubber sole", "arch support"),
    description="Light shoes.",
    features=("With a wide toe box.",),
)
GOAL = Goal("A", "", ("rubber sole", "wide toe"), ("sand", "8.5"), 60.0)
RIGHT = {"color": "sand", "size": "8.5"}


def test_the_right_purchase_scores_1():
    found = score(SHOE, RIGHT, GOAL, SHOE)
    assert found == (1.0, 1.0, 2, 2, True)


@pytest.mark.parametrize(
    ("bought", "chosen", "parts"),
    [
        (SHOE, {"color": "sand", "size": "8"}, 4),
        (SHOE, {"color": "navy blue", "size": "8"}, 3),
        (SHOE, {}, 3),
        (replace(SHOE, price=60.01), RIGHT, 4),
        (replace(SHOE, price=60.0), RIGHT, 5),
        (replace(SHOE, attributes=(), name="Velora Running Shoes"), RIGHT, 4),  # the wide toe is in the text
    ],
)
def test_each_miss_costs_its_part(bought, chosen, parts):
    assert score(bought, chosen, GOAL, SHOE).total == pytest.approx(parts / 5)


def test_an_option_counts_once_and_only_if_it_is_requested():
    both = replace(SHOE, name="Sand Sand Running Shoes")
    only_color = replace(GOAL, options=("sand",))
    chosen = {"color": "sand", "trim": "sand", "size": "8.5"}
    assert score(both, chosen, only_color, SHOE).options == 1
    assert score(both, chosen, replace(GOAL, options=()), SHOE).options == 0


def test_without_a_limit_every_price_fits():
    assert score(replace(SHOE, price=10_000.0), RIGHT, replace(GOAL, price_limit=None), SHOE).price


def test_attributes_are_found_in_the_list_or_in_the_text():
    assert has_attribute(SHOE, "rubber soles")
    assert has_attribute(SHOE, "wide toe")
    assert has_attribute(SHOE, "Light shoes")
    assert not has_attribute(SHOE, "steel toe")


def test_sizes_match_exactly_and_other_options_nearly():
    assert same_option("size", "8.5", "8.5")
    assert not same_option("Size", "8.5", "8")
    assert same_option("color", "navy blue", "blue navy")
    assert not same_option("color", "navy blue", "sky blue")


@pytest.mark.parametrize(
    ("name", "query", "path", "expected"),
    [
        ("Another Pair of Running Shoes", "x", ("y",), 1.0),  # title
        ("Velora Tent", "x", ("y",), 0.5),  # one word of five
        ("Velora Tent", "running shoes", ("y",), 1.0),  # query
        ("Velora Tent", "x", ("Running", "Shoes"), 1.0),  # department, in any order
        ("Frying Pan", "running shoes", ("Shoes", "Sports", "Running"), 0.0),  # no word of the title
    ],
)
def test_type(name, query, path, expected):
    assert type_score(replace(SHOE, name=name, query=query, path=path), SHOE) == expected


def test_a_tenth_of_the_title_is_next_to_nothing():
    long = replace(SHOE, name=" ".join(f"{a}{b}" for a in "abcd" for b in "efg") + " Shoes")
    assert type_score(replace(SHOE, name="Shoes"), long) == 0.1


# -- the generated catalog names kinds and attributes -----------------------------------------------


def best_purchase(product, goal, target):
    """Return the score of a product with the best choice of its options."""
    chosen = {
        name: value for name, values in product.options.items() for value in values if value in goal.options
    }
    return score(product, chosen, goal, target)


@pytest.fixture(scope="module")
def shop():
    return generated_catalog(1000, 0)


def test_only_the_right_kind_with_every_attribute_wins(shop):
    wins = near = 0
    for goal in shop.goals["test"][:300:4]:
        target = shop.product(goal.asin)
        assert best_purchase(target, goal, target).total == 1
        for product in shop.products:
            found = best_purchase(product, goal, target)
            right = product.kind == target.kind and set(goal.attributes) <= set(product.attributes)
            assert found.total < 1 or right
            wins += found.total == 1
            near += not right and found.attributes == len(goal.attributes)
    assert wins > 75
    assert near > 10  # products of another kind that have all attributes


@pytest.mark.parametrize(
    ("bought", "wanted", "expected"),
    [
        ("green tea", "green tea", 1.0),
        ("dried fruit", "green tea", 0.0),  # both slow dried
        ("tablet case", "desk speaker", 0.0),  # another shelf of electronics
        ("pleated skirt", "hooded sweater", 0.0),
        ("tea kettle", "green tea", 0.5),  # a word in common
        ("desk lamp", "floor lamp", 0.5),
        ("desk chair", "desk lamp", 0.5),
        ("mixed nuts", "dried fruit", 0.5),  # the same shelf
        ("wireless headphones", "desk speaker", 0.5),
        ("lunch box", "spice rack", 0.5),
        ("frying pan", "running shoes", 0.0),
    ],
)
def test_type_by_kind(shop, bought, wanted, expected):
    kinds = {product.kind: product for product in shop.products}
    assert type_score(kinds[bought], kinds[wanted]) == expected
    same_title = replace(kinds[bought], name=kinds[wanted].name)
    assert type_score(same_title, kinds[wanted]) == expected


def test_similar_attributes_of_known_products_differ():
    bag = replace(SHOE, kind="sleeping bag", attributes=("frost proof",), features=("Not rust proof.",))
    assert has_attribute(bag, "frost proof")
    assert not has_attribute(bag, "rust proof")
    assert has_attribute(replace(bag, kind=None), "rust proof")
