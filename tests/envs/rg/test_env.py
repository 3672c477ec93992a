from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem_core
from gem_core.errors import ConfigError, MissingDependency
from gem_envs import _rg
from gem_lab import check_env

reasoning_gym = pytest.importorskip("reasoning_gym", reason="needs the extra 'rg'")

from gem_envs._rg.env import _MADE_ELSEWHERE, EXAMPLE_SEED, _examples  # noqa: E402
from gem_envs._rg.labels import CORRECTED  # noqa: E402
from gem_envs._text import plain, undecorated  # noqa: E402
from gem_envs.text import last_boxed  # noqa: E402

FAST = [
    "chain_sum",
    "leg_counting",
    "letter_counting",
    "spell_backward",
    "graph_color",
    "propositional_logic",
]
FORMS = [" {} ", "\n{}\n", r"\text{{{}}}", "${}$", "**{}**", r"\textbf{{ {} }}", '"{}"', "`{}`", "Answer: {}"]
"""Decorations that cost nothing."""
DECORATIONS = [*FORMS, "{}.", "The answer is ({}", "({})", "[{}]", r"{}\quad", "1{}", "{}!"]
REDRAWN = "propositional_logic"
"""The dataset whose items are not the package's."""


def test_every_dataset_of_the_installed_package_has_an_id():
    assert {id.removeprefix("rg:") for id in gem_core.list_envs("rg:*")} == set(
        reasoning_gym.factory.DATASETS
    )
    assert _rg.discover() == sorted(reasoning_gym.factory.DATASETS)


def test_without_the_package_the_recorded_names_are_listed(monkeypatch):
    monkeypatch.setattr(_rg, "installed_version", lambda: None)
    assert len(_rg.names()) >= 104
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.delitem(sys.modules, "gem_envs._rg.env", raising=False)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[rg\]'"):
        gem_core.make("rg:chain_sum")


def test_names_come_from_the_installed_version(monkeypatch):
    monkeypatch.setattr(_rg, "installed_version", lambda: "999")
    monkeypatch.setitem(reasoning_gym.factory.DATASETS, "brand_new", (object, object))
    assert "brand_new" in _rg.names()


@pytest.mark.parametrize("name", ["chain_sum", "graph_color"])
def test_check_env(name):
    check_env(f"rg:{name}", seeds=(0, 1))


@pytest.mark.parametrize(
    "name", sorted(set(reasoning_gym.factory.DATASETS) - _MADE_ELSEWHERE - {"composite", REDRAWN} - CORRECTED)
)
def test_the_item_and_the_score_are_the_packages_own(name):
    env = gem_core.make(f"rg:{name}", size=20, seed=7)
    data = reasoning_gym.create_dataset(name, size=20, seed=7)
    observation, _ = env.reset(options={"index": 3})
    entry = data[3]
    assert observation.startswith(entry["question"])
    assert r"\boxed{answer}" in observation
    answer = env.oracle_action()
    if entry["answer"] is not None:
        assert answer == rf"\boxed{{{entry['answer']}}}"
    if answer is not None:
        assert env.step(answer)[1] == pytest.approx(data.score_answer(answer[7:-1], entry))


def test_every_prompt_shows_an_answer_to_another_question():
    names = [id for id in gem_core.list_envs("rg:*") if id != "rg:composite"]
    assert sorted(_examples()) == [id.removeprefix("rg:") for id in names]
    for name in sorted({*FAST} - {"graph_color", "propositional_logic"}):
        env = gem_core.make(f"rg:{name}", size=2)
        prompt, _ = env.reset(seed=0)
        assert last_boxed(prompt) == _examples()[name]
        assert env.step(rf"\boxed{{{_examples()[name]}}}")[4]["invalid"] is None
        items = gem_core.make(f"rg:{name}", size=8, seed=EXAMPLE_SEED).unwrapped.rows
        assert max(items.score(_examples()[name], items[index]) for index in range(8)) == 1.0


def test_the_example_in_a_prompt_is_optional():
    prompt, _ = gem_core.make("rg:gcd", example=False).reset(seed=0)
    assert prompt.endswith("\n\nGive the final answer as \\boxed{answer}.")
    with pytest.raises(ConfigError, match="example=1: expected True or False"):
        gem_core.make("rg:gcd", example=1)


def test_a_mix_shows_the_example_of_the_items_dataset():
    parts = [{"name": name, "weight": 1, "config": {}} for name in ("acre", "lcm")]
    env = gem_core.make("rg:composite", size=20, datasets=parts)
    shown = {last_boxed(env.reset(options={"index": index})[0]) for index in range(20)}
    assert shown == {_examples()["acre"], _examples()["lcm"]}


@pytest.mark.parametrize("name", sorted({*FAST} - {REDRAWN}))
def test_partial_scores_are_kept(name):
    env = gem_core.make(f"rg:{name}")
    data = reasoning_gym.create_dataset(name, size=500, seed=42)
    for index in range(20):
        for answer in ("", "x", "12", f"well {data[index]['answer']} it is"):
            env.reset(options={"index": index})
            assert env.step(rf"\boxed{{{answer}}}")[1] == pytest.approx(
                data.score_answer(answer, data[index])
            )


def test_the_programs_of_codeio_leave_the_callers_generators_alone():
    check_env("rg:codeio", rules=["global_random_is_left_alone"])


@pytest.mark.parametrize("name", ["gcd", "caesar_cipher", "word_ladder", "countdown", "rectangle_count"])
@pytest.mark.parametrize("form", FORMS)
def test_spaces_and_decoration_around_a_right_answer_cost_nothing(name, form):
    env = gem_core.make(f"rg:{name}", size=3)
    for index in range(3):
        env.reset(options={"index": index})
        right = env.oracle_action()[7:-1]
        assert env.step(rf"\boxed{{{form.format(right)}}}")[1] == 1.0
        env.reset(options={"index": index})
        assert env.step(rf"\boxed{{{form.format('1' + right)}}}")[1] < 1.0


@pytest.fixture(scope="module")
def items_by_name():
    names = ("countdown", "puzzle24", "spiral_matrix", "binary_matrix", "string_insertion", "n_queens", "gcd")
    return {name: gem_core.make(f"rg:{name}", size=3).unwrapped.rows for name in names}


@given(data=st.data())
def test_the_score_is_the_best_one_of_all_readings(items_by_name, data):
    items = items_by_name[data.draw(st.sampled_from(sorted(items_by_name)))]
    row, other = items[data.draw(st.integers(0, 2))], items[0]
    answer = data.draw(st.sampled_from([str(row["answer"]), str(other["answer"]), "[1, 2]", ""]))
    for form in data.draw(st.lists(st.sampled_from(DECORATIONS), max_size=4)):
        answer = form.format(answer)
    readings = [answer, answer.strip(), undecorated(answer), undecorated(answer, keep_period=True)]
    readings.append(plain(answer))
    assert items.score(answer, row) == max(items._scored(text, row) for text in readings)


def test_a_decorated_sentence_keeps_its_period():
    items = gem_core.make("rg:gcd").unwrapped.rows
    items._score = lambda answer, row: float(answer == "It ends.")
    assert items.score(r"\text{It ends.}", {}) == 1.0
    assert items.score(r"\text{It ends}", {}) == 0.0


def test_an_answer_that_is_a_drawing_keeps_its_blanks():
    env = gem_core.make("rg:rectangle_count")
    items = env.unwrapped.rows
    items._score = lambda answer, row: float(answer == "  drawn ")
    assert items.score("  drawn ", {}) == 1.0
    assert items.score("drawn", {}) == 0.0


def test_oracles_score_one():
    for name in [*FAST, "rubiks_cube"]:
        env = gem_core.make(f"rg:{name}")
        for seed in range(3):
            env.reset(seed=seed)
            assert env.step(env.oracle_action())[1] == 1.0


def test_items_without_an_end():
    env = gem_core.make("rg:chain_sum", size=None)
    indices = set()
    for seed in range(50):
        env.reset(seed=seed)
        indices.add(env.index)
        assert env.step(env.oracle_action())[1] == 1.0
    assert len(indices) == 50
    assert max(indices) > 10**6
    finite = gem_core.make("rg:chain_sum", size=1000)
    for index in (0, 499):
        assert env.reset(options={"index": index})[0] == finite.reset(options={"index": index})[0]
    check_env("rg:chain_sum", size=None, rules=["twins_are_equal", "states_survive_json"])


def test_a_pass_goes_through_the_items_in_order():
    env = gem_core.make("rg:chain_sum", size=5)
    seen = []
    for number in range(11):
        env.reset(seed=1 if not number else None)
        seen.append(env.index)
    start = seen[0]
    assert seen == [(start + n) % 5 for n in range(11)]


def test_composite_takes_a_config():
    parts = [
        {"name": "chain_sum", "weight": 1, "config": {"min_terms": 2, "max_terms": 2}},
        {"name": "gcd", "weight": 3, "config": {}},
    ]
    env = gem_core.make("rg:composite", datasets=parts)
    kinds = [bool("chain" in str(env.rows[i]["metadata"].get("source_dataset"))) for i in range(100)]
    assert 10 < sum(kinds) < 45
    check_env("rg:composite", datasets=parts, rules=["best_return", "specs_travel"])


@pytest.mark.parametrize(
    ("id", "kwargs"),
    [
        ("rg:chain_sum", {"config": {"no_such_setting": 1}}),
        ("rg:chain_sum", {"config": {"min_terms": 5, "max_terms": 2}}),
        ("rg:chain_sum", {"size": 0}),
        ("rg:chain_sum", {"seed": "a"}),
        ("rg:chain_sum", {"seed": None}),
        ("rg:chain_sum", {"datasets": []}),
        ("rg:composite", {"datasets": []}),
        ("rg:composite", {"datasets": [{"name": "no_such_set", "weight": 1, "config": {}}]}),
        ("rg:composite", {"datasets": [{"nam": "gcd"}]}),
    ],
)
def test_settings_that_the_package_rejects(id, kwargs):
    with pytest.raises(ConfigError):
        gem_core.make(id, **kwargs)


def test_long_answers_are_wrong_at_once():
    env = gem_core.make("rg:chain_sum")
    env.reset(seed=0)
    assert env.step(r"\boxed{" + "1" * 10_000_000 + "}")[1:3] == (0.0, True)
