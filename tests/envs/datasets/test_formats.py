"""Rows as people have them: well-known formats, nested keys, several answers, and rows without an answer."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from gem_core.errors import ConfigError, DataError, UnknownName
from gem_envs.data import open_rows
from gem_envs.data._columns import answer_texts, prompt_text
from gem_envs.data._formats import FORMATS, recognized
from gem_envs.datasets import CodeEnv, MathEnv, QaEnv
from gem_envs.datasets._several import is_close, listed

USER = [{"role": "user", "content": "What is 6 * 7?"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is 6 * 7?"}]},
]
TESTS = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})

# name, a row, the end of the prompt, a right response, a wrong one
ROWS = [
    ("verl", {"data_source": "x", "prompt": USER, "reward_model": {"ground_truth": "42", "style": "rule"}},
     "What is 6 * 7?", r"\boxed{42}", r"\boxed{41}"),
    ("verl", {"prompt": json.dumps(TALK), "reward_model": json.dumps({"ground_truth": 42.0}), "extra_info": None},
     "Be brief.\n\nWhat is 6 * 7?", r"\boxed{42}", r"\boxed{4}"),
    ("verl", {"prompt": str(USER), "reward_model": str({"ground_truth": ["42", "6*7"]})},
     "What is 6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("openrlhf", {"input": "What is 6 * 7?", "label": 42}, "What is 6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("openrlhf", {"context_messages": USER, "label": "42"}, "What is 6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("trl", {"prompt": USER, "solution": r"So it is $\boxed{42}$."}, "What is 6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("orz", {"0": {"from": "human", "value": "6 * 7?"}, "1": {"from": "assistant", "ground_truth": {"value": "42"}}},
     "6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("numina", {"problem": "6 * 7?", "solution": r"It is $\boxed{42}$.", "source": "x", "messages": []},
     "6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("numina", {"problem": "6 * 7?", "solution": "long", "answer": "42", "source": "x"},
     "6 * 7?", r"\boxed{42}", r"\boxed{43}"),
    ("deepscaler", {"problem": "6 * 7?", "answer": "42", "solution": ""}, "6 * 7?", r"\boxed{42}", r"\boxed{4}"),
    ("olympiadbench", {"question": "Roots?", "context": None, "final_answer": ["2", "-2"], "error": None},
     "Roots?", r"\boxed{-2, 2}", r"\boxed{2}"),
    ("olympiadbench", {"question": "Mass?", "context": "A ball.", "final_answer": ["3.05"], "error": "1e-1"},
     "A ball.\n\nMass?", r"\boxed{3.1}", r"\boxed{3.2}"),
    ("triviaqa", {"question": "Who?", "entity_pages": {}, "answer": {
        "value": "Ada Lovelace", "aliases": ["Lady Lovelace"], "normalized_aliases": ["countess of lovelace"]}},
     "Who?", "<answer>Countess of Lovelace</answer>", "<answer>Byron</answer>"),
    ("squad", {"context": "Ada wrote it.", "question": "Who?", "answers": {"text": ["Ada", "Ada L."], "answer_start": [0]}},
     "Ada wrote it.\n\nWho?", "<answer>ada l</answer>", "<answer>it</answer>"),
    ("hotpotqa", {"question": "Who?", "answer": "Ada", "supporting_facts": {}}, "Who?", "<answer>Ada</answer>", "<answer>b</answer>"),
]  # fmt: skip
# ruff: noqa: E501
CLASSES = {"math": MathEnv, "qa": QaEnv, "code": CodeEnv}


def make(form, rows, **options):
    cls = CLASSES[FORMATS.get(form).kind]
    return cls(dataset=rows, data_format=form, **({"symbolic": False} if cls is MathEnv else {}), **options)


@pytest.mark.parametrize(("form", "row", "prompt", "right", "wrong"), ROWS)
def test_a_format_by_name(form, row, prompt, right, wrong):
    assert recognized(row, row) == form
    env = make(form, [row])
    observation, _ = env.reset(options={"index": 0})
    assert observation.startswith(prompt)
    assert env.step(right)[1] == 1.0
    env.reset(options={"index": 0})
    assert env.step(wrong)[1] == 0.0
    env.reset(options={"index": 0})
    assert env.step(env.oracle_action())[1] == 1.0


PLAIN = [
    {"question": "6 * 7?", "answer": "42"},
    {"question": "Who?", "answer": {"value": "Ada", "aliases": [], "normalized_aliases": []}},
    {"problem": "6 * 7?", "solution": "long"},
    {"text": "Double it.", "prompt": "Double it.", "test": "assert True"},
    {"context": "Ada wrote it.", "question": "Who?"},
    {"input": "6 * 7?", "output": "42"},
]


@pytest.mark.parametrize("row", PLAIN)
def test_a_format_is_recognized_by_columns_that_only_it_has(row):
    assert recognized(row, row) is None


@pytest.mark.parametrize("form", FORMATS.names())
def test_every_format_has_columns_by_which_it_is_recognized(form):
    assert FORMATS.get(form).marks


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Double it.", "input_output": TESTS, "solutions": "[]", "difficulty": "easy"},
        {"question": "Double it.", "input_output": TESTS, "skill_types": "[]"},
    ],
)
def test_programs_by_name(row):
    name = recognized(row, row)
    assert name in ("apps", "taco")
    env = make(name, [row])
    assert env.reset(options={"index": 0})[0].startswith("Double it.")


def test_formats_in_files(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'data'")
    import pyarrow

    rows = [{"prompt": USER, "reward_model": {"ground_truth": str(n), "style": "rule"}} for n in range(3)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    env = MathEnv(str(tmp_path / "rows.parquet"), data_format="verl", symbolic=False)
    assert env.reset(options={"index": 2})[0].startswith("What is 6 * 7?")
    assert env.step(r"\boxed{2}")[1] == 1.0
    assert sorted([*env.items("train"), *env.items("eval")]) == [0, 1, 2]


def test_a_file_of_conversations(tmp_path):
    talk = [{"from": "human", "value": "6 * 7?"}, {"from": "assistant", "ground_truth": {"value": "42"}}]
    for name, text in (("a.json", json.dumps([talk, talk])), ("a.jsonl", f"{json.dumps(talk)}\n")):
        (tmp_path / name).write_text(text)
        assert open_rows(str(tmp_path / name)).columns == ("0", "1")
        env = MathEnv(str(tmp_path / name), data_format="orz", symbolic=False)
        assert env.reset(options={"index": 0})[0].startswith("6 * 7?")


@pytest.mark.parametrize(
    ("value", "answers"),
    [
        ("a", ["a"]), (3, ["3"]), (3.0, ["3"]), (0.25, ["0.25"]), (Decimal("1E+2"), ["100"]), (True, ["True"]),
        (Decimal("0.50"), ["0.50"]), (["a", "b", "a", None], ["a", "b"]), ([["a"], ["b"]], ["a", "b"]),
        ('["a", "b"]', ["a", "b"]), ("['a', 'b']", ["a", "b"]), ("['a' 'b']", ["a", "b"]), ("[1, 2]", ["[1, 2]"]),
        ("['it''s']", ["its"]), ("[a, b]", ["[a, b]"]), (1e20, ["100000000000000000000"]),
    ],
)  # fmt: skip
def test_answers(value, answers):
    assert answer_texts({"x": value}, "x") == answers


@pytest.mark.parametrize(
    "value",
    [None, "", "  ", float("nan"), float("inf"), Decimal("NaN"), [], [None], "nan", {"a": 1}, b"a", [{}]],
)
def test_a_row_that_cannot_be_graded_is_an_error_when_it_is_loaded(value):
    rows = [{"problem": "p", "answer": "1"}, {"problem": "q", "answer": value}]
    with pytest.raises(
        DataError, match=r"dataset: 1 of 2 rows cannot be graded, such as row 1: column 'answer'"
    ):
        MathEnv(dataset=rows, symbolic=False)
    env = MathEnv(dataset=rows, symbolic=False, bad_rows="skip")
    assert len(env.rows) == 1
    assert [*env.items("train"), *env.items("eval")] == [0]
    with pytest.raises(DataError, match="1 of 1 rows cannot be graded"):
        QaEnv(dataset=rows[1:], question_key="problem", bad_rows="skip")


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "",
        [],
        [{"role": "user", "content": None}],
        [{"a": 1}],
        [{"role": "user", "content": [{"type": "image"}]}],
    ],
)
def test_a_row_without_a_prompt_is_an_error_when_it_is_loaded(value):
    with pytest.raises(DataError, match="row 0: column 'problem'"):
        MathEnv(dataset=[{"problem": value, "answer": "1"}], symbolic=False)
    with pytest.raises(DataError, match="row 0: column 'problem'"):
        CodeEnv(dataset=[{"problem": value, "tests": TESTS}])


def test_what_a_format_has_in_place_of_an_answer():
    rows = [
        {"problem": "p", "answer": answer, "solution": "", "source": ""}
        for answer in ("1", "proof", "notfound")
    ]
    with pytest.raises(
        DataError, match="2 of 3 rows cannot be graded, such as row 1: column 'answer' has 'proof'"
    ):
        make("numina", rows)
    assert len(make("numina", rows, bad_rows="skip").rows) == 1


def test_columns_of_another_format():
    row = {"prompt": USER, "reward_model": {"ground_truth": "1"}}
    with pytest.raises(ConfigError, match=r"no column 'problem'.*set data_format='verl'"):
        MathEnv(dataset=[row], symbolic=False)
    with pytest.raises(
        ConfigError, match="the format has its prompt in 'prompt', but dataset has the columns a"
    ):
        MathEnv(dataset=[{"a": 1}], data_format="verl", symbolic=False)
    with pytest.raises(UnknownName, match="verl"):
        MathEnv(dataset=[row], data_format="verll", symbolic=False)


def test_a_talk_shows_who_says_what():
    row = {"p": [*USER, {"role": "assistant", "content": "42"}, {"role": "user", "content": "And + 1?"}]}
    assert prompt_text(row, "p") == "User: What is 6 * 7?\n\nAssistant: 42\n\nUser: And + 1?"


def test_all_of_several_answers():
    env = MathEnv(
        dataset=[{"problem": "p", "answer": ["1", r"\frac{1}{2}", "(0,1)"]}], answers="all", symbolic=False
    )
    for response, reward in (
        (r"\boxed{(0,1), 0.5, 1}", 1.0), (r"\boxed{$1$, $\frac{1}{2}$ and $(0,1)$}", 1.0), (r"\boxed{1}", 0.0),
        (r"\boxed{1, 1, 1}", 0.0), (r"\boxed{1, 0.5, (0,1), 7}", 0.0),
    ):  # fmt: skip
        env.reset(options={"index": 0})
        assert env.step(response)[1] == reward, response
    assert listed(r"\{1, 2\}") == ["1", "2"]


@pytest.mark.parametrize(
    ("answer", "close"),
    [("3.1", True), (r"3.1 \times 10^{0}", True), ("31/10", True), (r"\frac{31}{10}", True), ("3.16", False), ("x", False), ("-3.1", False)],
)  # fmt: skip
def test_numbers_within_a_tolerance(answer, close):
    assert is_close(answer, "3.05", 0.1) is close
