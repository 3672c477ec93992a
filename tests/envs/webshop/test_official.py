"""The loader, on small files in WebShop's format."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("bm25s", reason="needs the extra 'search'")

import gem_core
from gem_core.errors import DataError
from gem_envs._webshop import official
from gem_lab import check_env

ARROW = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


def item(number, **changes):
    return {
        "asin": f"B0000000{number:02}",
        "name": f"Brand{number} Rain Coat Model {number}",
        "query": " Rain Coats ",
        "category": "fashion",
        "product_category": f"Clothing {ARROW} Coats {ARROW} Rain",
        "pricing": f"${10 + number}.50",
        "small_description": ["Wind proof.", "With a hood."],
        "full_description": "Keeps you dry.",
        "customization_options": {
            "Color": [{"value": "Navy/Blue", "image": None}, {"value": "Sand", "image": None}],
            "Size": [{"value": "Small"}, {"value": "Large"}],
            "Fit": None,
        },
        "images": ["https://example.org/1.jpg"],
        **changes,
    }


def instruction(number):
    return {
        "attributes": ["wind proof", "quick drying"],
        "instruction": "find me a wind proof rain coat",
        "instruction_attributes": ["wind proof"],
    }


def human(number):
    return {
        "asin": f"B0000000{number:02}",
        "instruction": f"i want rain coat number {number} that dries fast.",
        "instruction_attributes": ["quick drying"],
        "instruction_options": ["sand", "large"],
    }


@pytest.fixture
def folder(tmp_path):
    items = [item(number) for number in range(12)]
    write(tmp_path, "items_shuffle_1000.json", items)
    write(tmp_path, "items_ins_v2_1000.json", {row["asin"]: instruction(n) for n, row in enumerate(items)})
    write(tmp_path, "items_human_ins.json", {row["asin"]: [human(n)] for n, row in enumerate(items)})
    official.official_catalog.cache_clear()
    return tmp_path


def write(folder, name, value):
    text = value if isinstance(value, str) else json.dumps(value)
    (folder / name).write_text(text, encoding="utf-8")


def load(folder, num_products=None, human_goals=True):
    return official.official_catalog(str(folder), num_products, human_goals)


def test_products_match_the_files(folder):
    write(folder, "reviews.json", [
        {"asin": "B000000003", "average_rating": "4.1", "reviews": [{"review": "Dry.", "stars": "5"}]}
    ])  # fmt: skip
    product = load(folder).product("B000000003")
    assert product.name == "Brand3 Rain Coat Model 3"
    assert product.query == "rain coats"
    assert product.path == ("Clothing", "Coats", "Rain")
    assert (product.price, product.price_tag) == (13.5, "$13.5")
    assert product.options == {"color": ["navy | blue", "sand"], "size": ["small", "large"]}
    assert product.attributes == ("wind proof", "quick drying")
    assert product.features == ("Wind proof.", "With a hood.")
    assert (product.rating, product.reviews) == ("4.1", ("Dry.",))


def test_human_goals(folder):
    catalog = load(folder)
    assert {split: len(goals) for split, goals in catalog.goals.items()} == {"test": 1, "train": 9}
    goal = catalog.goals["test"][0]
    assert goal.attributes == ("quick drying",)
    assert goal.options == ("sand", "large")
    assert catalog.product(goal.asin).price < goal.price_limit
    limit = f", for less than {goal.price_limit:.2f} dollars."
    assert goal.instruction.startswith("i want rain coat number ")
    assert goal.instruction.endswith(f"that dries fast{limit}")


def test_goals_of_the_template_are_one_for_each_choice(folder):
    goals = load(folder, human_goals=False).goals
    texts = [goal.instruction for goal in goals["train"]]
    assert len(goals["test"]) == 4  # of 48
    assert len(texts) == 36
    assert any("rain coat with color: navy | blue, and size: small, for less" in text for text in texts)


def test_the_environment_plays_them(folder):
    for mode in ("html", "text", "text_rich"):
        env = gem_core.make(f"webshop:train-{mode}", data=str(folder), num_products=None)
        for seed in range(3):
            env.reset(seed=seed)
            ended = False
            while not ended:
                _, reward, terminated, truncated, info = env.step(env.oracle_action())
                ended = terminated or truncated
            assert reward == 1.0
            assert info["success"]
    report = check_env("webshop:train-text", seeds=(0,), data=str(folder))
    assert not report.skipped.keys() & {"oracle"}


def test_only_the_first_products_are_read(folder):
    text = (folder / "items_shuffle_1000.json").read_text()
    write(folder, "items_shuffle_1000.json", text[: text.index('{"asin": "B000000011"')] + "broken")
    assert len(load(folder, num_products=11).products) == 11
    with pytest.raises(DataError, match="cut short or broken"):
        load(folder)


def test_an_item_that_lies_across_two_chunks_is_read(folder, monkeypatch):
    monkeypatch.setattr(official, "_CHUNK", 7)
    assert len(load(folder).products) == 12


def test_what_the_original_omits_is_omitted(folder):
    rows = [item(n) for n in range(12)]
    write(folder, "items_shuffle_1000.json", [*rows, item(3), item(1, asin="nan"), item(1, asin="B" * 11)])
    assert len(load(folder).products) == 12


@pytest.mark.parametrize(
    ("pricing", "price", "tag"),
    [
        ("$1,299.00", 1299.0, "$1299.0"),
        ("", 100.0, "$100.0"),
        (None, 100.0, "$100.0"),
    ],
)
def test_prices(folder, pricing, price, tag):
    write(folder, "items_shuffle_1000.json", [item(n, pricing=pricing) for n in range(12)])
    product = load(folder).products[0]
    assert (product.price, product.price_tag) == (price, tag)


def test_a_range_of_prices_gives_one_within_it_each_time(folder):
    write(folder, "items_shuffle_1000.json", [item(n, pricing="$10.00$20.00") for n in range(12)])
    product = load(folder).products[0]
    assert product.price_tag == "$10.0 to $20.0"
    assert 10 <= product.price <= 20
    official.official_catalog.cache_clear()
    assert load(folder).products[0].price == product.price


def test_values_can_be_clicked_whatever_they_hold(folder):
    odd = {"Color": [{"value": " Sand  {light}"}, {"value": "}"}], "Size": [{"value": "5  / 6"}]}
    write(folder, "items_shuffle_1000.json", [item(n, customization_options=odd) for n in range(12)])
    assert load(folder).products[0].options == {"color": ["sand (light)", ")"], "size": ["5 | 6"]}
    env = gem_core.make("webshop:train-text", data=str(folder))
    env.reset(seed=0)
    while env.unwrapped.page != "item":
        env.step(env.oracle_action())
    for value in ("sand (light)", ")", "5 | 6"):
        assert env.step(f"\\boxed{{click[{value}]}}")[4]["invalid"] is None
    assert env.unwrapped.chosen == {"color": ")", "size": "5 | 6"}


def test_no_limit_if_no_higher_price_is_round(folder):
    write(folder, "items_shuffle_1000.json", [item(n, pricing="$5000") for n in range(12)])
    goal = load(folder).goals["train"][0]
    assert goal.price_limit is None
    assert "dollars" not in goal.instruction


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("items_shuffle_1000.json", "", "expected a JSON list"),
        ("items_shuffle_1000.json", '{"a": 1}', "expected a JSON list"),
        ("items_shuffle_1000.json", "[1, 2]", "expected JSON objects in the list"),
        ("items_shuffle_1000.json", '[{"asin": "B1"}]', "product 1 is not in the format .*name"),
        ("items_shuffle_1000.json", "[]", "has 0 goals"),
        ("items_shuffle_1000.json", "[" * 100_000, "broken"),
        ("items_ins_v2_1000.json", "[]", "expected one JSON object"),
        ("items_ins_v2_1000.json", "{", "cannot be read"),
        ("items_human_ins.json", '{"B000000001": [{}]}', "is not in the format"),
        ("reviews.json", "{}", "expected a list of JSON objects"),
    ],
)
def test_broken_files_are_reported_in_one_line(folder, name, content, message):
    write(folder, name, content)
    with pytest.raises(DataError, match=message) as caught:
        gem_core.make("webshop:train-text", data=str(folder))
    assert str(folder) in str(caught.value)


def test_bytes_that_are_not_text(folder):
    (folder / "items_shuffle_1000.json").write_bytes(b"[\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        load(folder)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"lacks items_shuffle.json or items_shuffle_1000.json; the setup"):
        gem_core.make("webshop:train-text", data=str(tmp_path))
