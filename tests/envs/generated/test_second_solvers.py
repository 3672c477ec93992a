"""The second solvers agree with the labels, and reject changed ones."""

import json
import re

import pytest

import gem_core
from gem_core.errors import ResetNeeded
from gem_envs._generated.second_solvers.documents import named
from gem_envs._generated.second_solvers.programs import required_output
from gem_envs._generated.second_solvers.stories import story_answer
from gem_envs._generated.second_solvers.sums import remainder

NUMBERS = ["math:Arithmetic-v0", "math:Arithmetic-v0-easy", "math:Arithmetic-v0-hard", "math:WordProblems-v0",
           "math:FileArithmetic-v0"]  # fmt: skip


def plant(env, **label):
    """Give the running episode another label."""
    env.row = {**env.row, **label}


@pytest.mark.parametrize("id", NUMBERS)
def test_numbers(id):
    env = gem_core.make(id).unwrapped
    for seed in range(100):
        env.reset(seed=seed)
        assert env.verify(env.oracle_action()) is True
        plant(env, answer=str(int(env.row["answer"]) + 1))
        assert env.verify(env.oracle_action()) is False
        assert env.verify("\\boxed{-99999999999}") is False
        assert env.verify("no box") is None
        assert env.verify("\\boxed{1 + 1}") is None


@pytest.mark.parametrize("depth", range(6))
def test_proofs(depth):
    env = gem_core.make(f"logic:Proofs-v0-d{depth}").unwrapped
    for seed in range(50):
        env.reset(seed=seed)
        right = env.oracle_action()
        assert env.verify(right) is True
        assert env.verify("\\boxed{False}" if "True" in right else "\\boxed{True}") is False
        assert env.verify("\\boxed{maybe}") is None


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-search"])
def test_documents(variant):
    env = gem_core.make(f"qa:MultiHop-v0{variant}").unwrapped
    for seed in range(30):
        env.reset(seed=seed)
        right = env.oracle_action()
        assert env.verify(right) is True
        assert env.verify(right.lower()) is True
        plant(env, answer=env.row["titles"][-1])
        assert env.verify(env.oracle_action()) is False
        assert env.verify("no answer") is None


def test_programs():
    """Compare the outputs of all kinds of tasks, and run some programs."""
    env = gem_core.make("code:SmallTasks-v0").unwrapped
    kinds = set()
    for index in range(150):
        row = env.rows[index]
        tests = json.loads(row["tests"])
        assert len(tests["inputs"]) == len(tests["outputs"]) >= 4
        for stdin, stdout in zip(tests["inputs"], tests["outputs"], strict=True):
            assert required_output(row["problem"], stdin) == stdout.removesuffix("\n"), row["problem"]
        kinds.add(re.sub(r"\d+", "#", row["problem"]))
    assert len(kinds) == env.rows.templates == 30
    for seed in range(4):
        env.reset(seed=seed)
        assert env.verify(env.oracle_action()) is True
        solution = env.row["solution"]
        outputs = ["planted\n"] * len(json.loads(env.row["tests"])["outputs"])
        tests = {"inputs": json.loads(env.row["tests"])["inputs"], "outputs": outputs}
        plant(env, tests=json.dumps(tests), solution="print('planted')")
        assert env.verify(env.oracle_action()) is False
        assert env.step(env.oracle_action())[1] == 1.0  # the grader believes the label
        env.reset(seed=seed)
        assert env.verify(f"```python\n{solution}\n```") is True
        assert env.verify("no code") is None


def test_an_episode_is_needed():
    for id in (*NUMBERS, "qa:MultiHop-v0", "code:SmallTasks-v0"):
        with pytest.raises(ResetNeeded):
            gem_core.make(id).verify("\\boxed{1}")


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        ("Ada had 7 plums and gave 9 of them to Otto. How many plums are left?", None),
        ("Ada had 7 plums and gave 3 of them to Ada. How many plums are left?", None),
        ("Ada had 7 plums and gave 3 of them to Otto. How many plums are left?", 4),
        ("5 friends share 12 beads equally. How many does each of them get?", None),
        ("5 friends share 15 beads equally. How many does each of them get?", 3),
        ("Ada has 4 cards, and Otto has 5 fewer. How many do they have together?", None),
        ("Ada packs 17 beads into boxes of 5. How many boxes are full?", 3),
        ("A garden has 2 beds with 3 plants each. 7 plants are sold. How many plants are left?", None),
    ],
)
def test_stories(problem, answer):
    assert story_answer(problem) == answer


@pytest.mark.parametrize(
    "problem",
    [
        "Ada had 7 plums and gave 3 of them to Otto. How many beads are left?",
        "Ada has 7 plums and finds 3 more. How many plums does Otto have now?",
        "Ada has 7 plums.",
        "",
    ],
)
def test_unknown_stories(problem):
    with pytest.raises(ValueError, match="not a known story"):
        story_answer(problem)


def test_a_file_that_is_not_as_described():
    problem = "The file numbers.txt has 3 numbers.\nDivide the largest number by 10. What remains?"
    assert remainder(problem, {"numbers.txt": "17\n45\n23\n"}) == 5
    assert remainder(problem, {"numbers.txt": "17\n45\n"}) is None
    assert remainder(problem, {}) is None


def test_names():
    pages = [
        "Ana Bon is a person. Ana Bon lives in Zaburg.",
        "Zaburg is a city. The mayor of Zaburg is Ivo Men.",
    ]
    question = "What is the mayor of the city where Ana Bon lives called?"
    assert named(question, pages) == {"Ivo Men"}
    assert named(question, pages[:1]) == set()
    assert named(question, [*pages, "The mayor of Zaburg is Eva Lon."]) == {"Ivo Men", "Eva Lon"}
    with pytest.raises(ValueError, match="not a fact"):
        named(question, [*pages, "Zaburg is large."])
