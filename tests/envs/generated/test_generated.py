"""Properties of every generated dataset."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import gem_core
from gem_core import spec
from gem_core.errors import ConfigError
from gem_envs._generated.arithmetic import ArithmeticRows
from gem_envs._generated.file_arithmetic import FileArithmeticRows
from gem_envs._generated.multihop import _SIZES, MultiHopRows, World, world
from gem_envs._generated.programs import ProgramRows
from gem_envs._generated.proofs import ProofRows, _Rule, derive
from gem_envs._generated.word_problems import _NAMES, _THINGS, WordProblemRows
from gem_envs.graders._program_tests import read_tests
from gem_envs.graders._programs import run_tests
from gem_envs.graders.math import grade
from gem_envs.graders.qa import exact_match
from gem_lab import check_env

IDS = [id for id in gem_core.list_envs() if "generated" in str(spec(id).entry_point)]
ROWS = [
    ArithmeticRows("+-*", 3, 99, "train", 1000, 0),
    ArithmeticRows("+", 2, 9, "train", 1000, 0),
    WordProblemRows("train", 1000, 0),
    *(ProofRows(depth, "train", 1000, 0) for depth in range(6)),
    *(MultiHopRows(hops, "train", 1000, 0) for hops in (1, 2, 4)),
    ProgramRows(False, 4, "train", 1000, 0),
    FileArithmeticRows(8, 10, "train", 1000, 0),
]


def test_every_family_has_one():
    assert {id.partition(":")[0] for id in IDS} == {"math", "logic", "qa", "code"}
    assert all(spec(id).extra is None for id in IDS)  # they only need numpy


@pytest.mark.once
@pytest.mark.parametrize("id", [id for id in IDS if not id.startswith("code")])
def test_check_env(id):
    whole = ("math:Arithmetic-v0", "logic:Proofs-v0", "qa:MultiHop-v0-retry")
    rules = None if id in whole else ["best_return", "twins_are_equal", "random_actions_are_legal"]
    check_env(id, rules=rules)


@pytest.mark.parametrize("id", ["code:SmallTasks-v0-easy", "code:SmallTasks-v0-retry"])
def test_check_env_of_programs(id):
    """Skip the rules that send hundreds of texts, because each code block starts one to four processes."""
    rules = (
        "best_return twins_are_equal states_survive_json forks_are_equal_and_independent junk_earns_nothing"
    )
    check_env(id, rules=rules.split(), seeds=(0,))


@pytest.mark.once
@pytest.mark.parametrize("id", IDS)
def test_splits_share_no_question(id):
    train, test = (
        {
            str(gem_core.make(id, split=split).rows[n][gem_core.make(id).unwrapped.rows.key])
            for n in range(150)
        }
        for split in ("train", "test")
    )
    assert not train & test


@pytest.mark.once
@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: f"{type(rows).__name__}")
def test_skeletons_occur_no_more_often_than_the_templates_allow(rows):
    if isinstance(rows, ProofRows):
        hide = r"\b(?:Arlo|Bena|Cyrus|Dora|Elmo|Fenja|Gitte|Hugo|Ilva|Janko|Kaja|Ludo)\b"
    elif isinstance(rows, MultiHopRows):
        hide = "|".join(sorted(map(re.escape, rows.world.kinds), key=len, reverse=True))
    else:
        hide = rf"-?\d+|\b(?:{'|'.join(_NAMES)})\b|\b(?:{'|'.join(_THINGS)})\b"
    size = 1000
    skeletons = Counter(re.sub(hide, "#", rows[n][rows.key]) for n in range(size))
    fair = size / rows.templates
    assert max(skeletons.values()) <= 3 * fair + 20
    assert len(skeletons) >= 0.6 * min(rows.templates, size / 4)


def test_arithmetic_is_right():
    for n in range(300):
        item = ROWS[0][n]
        line = re.sub("plus", "+", re.sub("minus", "-", re.sub("times", "*", item["problem"])))
        (found,) = re.findall(r"\d+(?: [-+*] \d+)+", line)
        assert eval(found) == int(item["answer"])
        assert not grade(str(int(item["answer"]) + 1), item["answer"], symbolic=False)


@pytest.mark.parametrize("id", [id for id in IDS if "Arithmetic" in id or "WordProblems" in id])
def test_the_question_itself_is_not_an_answer(id):
    with gem_core.make(id) as env:
        env = env.unwrapped
        for seed in range(200):
            question = env.reset(seed=seed)[0]
            numbers = re.findall(r"\d+", question.split("\\boxed")[0])
            words = re.sub("plus", "+", re.sub("minus", "-", re.sub("times", "*", question)))
            lines = [" + ".join(numbers), *re.findall(r"\d+(?: [-+*] \d+)+", words)]
            for line in [*lines, *(f"x = {line}" for line in lines), f"0 + {env.row['answer']}"]:
                assert env.grade(line, env.row).score == 0, (line, question)


def test_what_a_number_may_look_like():
    env = gem_core.make("math:WordProblems-v0").unwrapped
    for answer in (
        "1234", "+1234", "1,234", "1{,}234", r"1\,234", "1234.0", "$1234$", r"1234 \text{ km}", "1234 cards",
        "x = 1234", "(1234)",
    ):  # fmt: skip
        assert env.grade(answer, {"answer": "1234"}).score == 1, answer
    assert env.grade("- 5", {"answer": "-5"}).score == 1
    for answer in (
        r"1200 + 34", r"\frac{2468}{2}", "2468/2", "617 * 2", "2^3 + 1226", r"\sqrt{1522756}",
        "1234 = 1200 + 34", "x = 617 * 2", "(617 * 2) cards", "617 * 2, 1234", "1234, 1234", "1235", "--", "",
        "1234 + 0x",
    ):  # fmt: skip
        assert env.grade(answer, {"answer": "1234"}).score == 0, answer


def test_word_problems_are_whole_and_never_negative():
    for n in range(3000):
        item = ROWS[2][n]
        assert int(item["answer"]) >= 0, item
        assert "{" not in item["problem"]
        if match := re.match(
            r"A garden has (\d+) beds with (\d+) plants each. (\d+) plants", item["problem"]
        ):
            assert int(match[3]) <= int(match[1]) * int(match[2])


def test_some_word_problems_by_hand():
    known = {
        r"(\w+) has (\d+) \w+ and finds (\d+) more\.": lambda a, b: a + b,
        r"(\w+) had (\d+) \w+ and gave (\d+) of them": lambda a, b: a - b,
        r"(A train) travels (\d+) km in one hour\. How many km does it travel in (\d+) hours": lambda a, b: (
            a * b
        ),
        r"(A rectangle) is (\d+) cm long and (\d+) cm wide\. What is its area": lambda a, b: a * b,
    }
    seen = Counter()
    for n in range(600):
        item = ROWS[2][n]
        for pattern, answer in known.items():
            if match := re.match(pattern, item["problem"]):
                seen[pattern] += 1
                assert answer(int(match[2]), int(match[3])) == int(item["answer"])
    assert len(seen) == len(known)


# -- proofs -----------------------------------------------------------------------------------


def test_derivations_are_shortest():
    rules = [
        _Rule(("a",), "b"),
        _Rule(("b",), "c"),
        _Rule(("a", "c"), "d"),
        _Rule(("a",), "c"),
        _Rule(("x",), "y"),
    ]
    assert derive([("Ann", "a"), ("Bob", "b")], rules) == {
        ("Ann", "a"): 0, ("Bob", "b"): 0, ("Ann", "b"): 1, ("Ann", "c"): 1, ("Bob", "c"): 1, ("Ann", "d"): 2
    }  # fmt: skip


def read_theory(question):
    """Parse facts, rules, and the statement from the text, independently of the generator."""
    text, asked = question.split("\n")
    facts, rules = [], []
    for sentence in text.rstrip(".").split(". "):
        words = [w.strip(".,").lower() for w in sentence.split()]
        if len(words) == 3 and words[1] == "is" and words[0] not in ("everyone", "whoever"):
            facts.append((words[0], words[2]))
            continue
        filler = set(
            (  # noqa: SIM905
                "if someone is then they are all people whoever also everyone who always being makes one and "
                "both as well"
            ).split()
        )
        *conditions, conclusion = [w for w in words if w not in filler]
        rules.append(_Rule(tuple(conditions), conclusion))
    who, what = re.search(r"(\w+) is ((?:not )?\w+)\.", asked).groups()
    return facts, rules, who.lower(), what


@pytest.mark.parametrize("distractors", [True, False])
@pytest.mark.parametrize("depth", range(6))
def test_proofs_have_the_stated_depth_and_truth(depth, distractors):
    rows = ProofRows(depth, "train", 1000, 0, distractors)
    truths = Counter()
    for n in range(200):
        facts, rules, who, what = read_theory(rows[n]["question"])
        steps = derive(facts, rules)
        denied = what.startswith("not ")
        known = (who, what.removeprefix("not ")) in steps
        assert rows[n]["answer"] == str(known != denied)
        truths[rows[n]["answer"]] += 1
        reach = max((s for (p, _), s in steps.items() if p == who), default=-1)
        if not distractors:
            assert len(rules) == depth
            assert {p for p, _ in facts} == {who}
        assert (steps[who, what.removeprefix("not ")] if known else reach) == depth
    assert min(truths.values()) > 60


@pytest.mark.parametrize("depth", range(6))
def test_no_surface_feature_of_a_proof_reveals_the_answer(depth):
    """Neither a negated statement nor a rule that ends in its trait reveals the answer."""
    rows = ProofRows(depth, "train", 1000, 0)
    right = Counter()
    for n in range(400):
        _, rules, _, what = read_theory(rows[n]["question"])
        true, denied = rows[n]["answer"] == "True", what.startswith("not ")
        concluded = what.removeprefix("not ") in {rule.conclusion for rule in rules}
        right["said"] += true != denied
        right["concluded"] += true == (concluded != denied)
    assert 0.42 <= right["said"] / 400 <= 0.58
    assert depth == 0 or 0.42 <= right["concluded"] / 400 <= 0.58


@pytest.mark.once
@pytest.mark.parametrize("depth", range(1, 6))
def test_no_shortcut_decides_a_proof(depth):
    """No feature of the sentences tells whether the statement follows."""
    rows = ProofRows(depth, "train", 1000, 0)
    counts: Counter = Counter()
    for n in range(1000):
        facts, rules, who, what = read_theory(rows[n]["question"])
        denied, trait = what.startswith("not "), what.removeprefix("not ")
        follows = (rows[n]["answer"] == "True") != denied
        ends = [rule for rule in rules if rule.conclusion == trait]
        used = sum(trait in rule.conditions for rule in rules)
        features = {
            "one condition": any(len(rule.conditions) == 1 for rule in ends),
            "rules": len(ends), "conditions": used, "facts of the person": sum(f[0] == who for f in facts),
            "stated of somebody": any(f[1] == trait for f in facts), "sentences": len(facts) + len(rules),
        }  # fmt: skip
        counts.update((name, value, follows) for name, value in features.items())
    for name in {name for name, _, _ in counts}:
        values = {value for other, value, _ in counts if other == name}
        right = sum(max(counts[name, value, True], counts[name, value, False]) for value in values)
        assert right / 1000 < 0.57, name


# -- questions --------------------------------------------------------------------------------


def test_questions_can_be_answered_from_the_documents_alone():
    rows = MultiHopRows(2, "train", 1000, 0)
    pages = {page["title"]: page["text"] for page in World(0).documents()}
    for n in range(200):
        item = rows[n]
        here = item["titles"][0]
        assert here in item["question"]
        for step in [*item["titles"][1:], item["answer"]]:
            assert step in pages[here]
            assert step not in item["question"]
            here = step
        assert not exact_match(item["titles"][0], [item["answer"]])


def test_the_required_pages_are_shown():
    env = gem_core.make("qa:MultiHop-v0")
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        pages = observation.split("\n\n")[0].split("\n")
        assert len(pages) == 8
        for title in env.row["titles"]:
            assert any(page.startswith(f"{title} is ") for page in pages)
    closed, _ = gem_core.make("qa:MultiHop-v0-search").reset(seed=0)
    assert "\n\n" in closed
    assert " is a" not in closed


@pytest.mark.parametrize(("id", "most"), [("", 0.2), ("-hard", 0.15), ("-easy", 0.3)])
def test_the_outermost_relation_alone_does_not_find_the_page(id, most):
    """Guessing a page of the right kind and applying the last relation is right about once per such page."""
    env = gem_core.make(f"qa:MultiHop-v0{id}")
    share = 0.0
    for n in range(300):
        row = env.rows[n]
        kinds = [env.world.kinds[title] for title in env.shown(row)]
        share += 1 / kinds.count(env.world.kinds[row["titles"][-1]])
    assert share / 300 <= most


def test_pages_that_a_required_page_mentions_instead_are_shown():
    """A person is born in one city and lives in another: both have a page."""
    env = gem_core.make("qa:MultiHop-v0")
    lured = 0
    for n in range(300):
        row = env.rows[n]
        first, second = row["titles"]
        kind = env.world.kinds[second]
        for title in env.world.objects(first):
            if env.world.kinds[title] == kind and title != second:
                lured += 1
                assert title in env.shown(row)
    assert lured > 30


def test_a_world_can_be_written_for_a_search_index(tmp_path):
    world(0).write(tmp_path / "corpus.jsonl")
    assert len((tmp_path / "corpus.jsonl").read_text().splitlines()) == sum(_SIZES.values())
    assert World(0).documents() == world(0).documents() != World(1).documents()


# -- programs ---------------------------------------------------------------------------------


def test_solutions_pass_in_the_sandbox_and_their_neighbors_do_not():
    rows = ProgramRows(False, 4, "train", 1000, 0)
    seen = set()
    for n in range(999):
        item = rows[n]
        skeleton = re.sub(r"\d+", "#", item["problem"])
        if skeleton in seen:
            continue
        seen.add(skeleton)
        tests = read_tests(item["tests"])
        count = len(tests.tests)
        assert count >= 4
        assert run_tests(item["solution"], tests)[:2] == (count, count), item
        assert run_tests("print(0)", tests).passed < count, item
    assert len(seen) == rows.templates


def test_the_form_of_the_output_is_stated():
    rows = ProgramRows(False, 4, "train", 1000, 0)
    for n in range(500):
        item = rows[n]
        assert ("'none'" in item["solution"]) == ("print none if there is none" in item["problem"]), item
        if re.search(r"print\((w|b\[0\]), ", item["solution"]):
            assert "a blank, and" in item["problem"], item


@pytest.mark.parametrize(
    ("id", "kwargs"),
    [
        ("math:FileArithmetic-v0", {"numbers": 1}),
        ("math:FileArithmetic-v0", {"modulus": 1}),
        ("math:Arithmetic-v0", {"operations": "/"}),
        ("math:Arithmetic-v0", {"operations": ""}),
        ("math:Arithmetic-v0", {"terms": 1}),
        ("math:Arithmetic-v0", {"max_number": 3}),
        ("math:WordProblems-v0", {"split": "dev"}),
        ("logic:Proofs-v0", {"depth": 6}),
        ("qa:MultiHop-v0", {"hops": 0}),
        ("qa:MultiHop-v0", {"hops": 3, "documents": 2}),
        ("code:SmallTasks-v0", {"num_tests": 0}),
        ("code:SmallTasks-v0", {"easy": 1}),
        ("code:SmallTasks-v0", {"timeout": -1}),
    ],
)
def test_impossible_settings_are_rejected(id, kwargs):
    with pytest.raises(ConfigError) as error:
        gem_core.make(id, **kwargs)
    assert "\n" not in str(error.value)


def test_the_numbers_of_a_file_are_for_tools_alone():
    with gem_core.make("math:FileArithmetic-v0-python", modulus=7) as env:
        for seed in range(5):
            observation, _ = env.reset(seed=seed)
            numbers = env.unwrapped.tool_files["numbers.txt"].split()
            assert len(numbers) == 8
            assert not any(number in observation for number in numbers)
            asked = re.search(r"(sum|largest|smallest)", observation)[1]
            value = {"sum": sum, "largest": max, "smallest": min}[asked](map(int, numbers)) % 7
            assert env.step(env.oracle_action())[0] == f"Result of python:\n{value}"
            assert env.step(f"\\boxed{{{value}}}")[1:3] == (1.0, True)
        env.reset(seed=0)
        actions = {env.sample_random_action() for _ in range(60)}
        assert any(action.startswith("<python>print(max(") for action in actions)
        assert "\\boxed{6}" in actions
