"""Data sets of programs in the schema that they have on the hub, by the name of their format."""

from __future__ import annotations

import base64
import json
import pickle
import zlib

import pytest

from gem_core.errors import DataError
from gem_envs.data._formats import recognized
from gem_envs.datasets import CodeEnv
from gem_lab import main


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def cases(kind, *pairs):
    return [{"input": given, "output": wanted, "testtype": kind} for given, wanted in pairs]


LCB = {
    "question_title": "A", "question_content": "Double it.", "platform": "atcoder", "question_id": "abc1_a",
    "contest_id": "abc1", "contest_date": "2024-01-01T00:00:00", "starter_code": "", "difficulty": "easy",
    "public_test_cases": json.dumps(cases("stdin", ("1\n", "2\n"))),
    "private_test_cases": packed(cases("stdin", ("5\n", "10\n"))), "metadata": "{}",
}  # fmt: skip
LCB_CALL = {
    **LCB, "platform": "leetcode", "starter_code": "class Solution:\n    def twice(self, a: int) -> int:\n        ",
    "public_test_cases": json.dumps(cases("functional", ("1", "2"))),
    "private_test_cases": json.dumps(cases("functional", ("5", "10"))), "metadata": '{"func_name": "twice"}',
}  # fmt: skip
CONTESTS = {
    "name": "1_A. Twice", "description": "Double it.", "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["5\n"], "output": ["10\n"]}, "generated_tests": {"input": [], "output": []},
    "source": 2, "difficulty": 7, "solutions": {"language": [3], "solution": ["print(2 * int(input()))"]},
    "incorrect_solutions": {"language": [], "solution": []}, "cf_contest_id": 1, "cf_index": "A", "cf_points": 0.0,
    "cf_rating": 800, "cf_tags": ["math"], "is_description_translated": False, "untranslated_description": "",
    "time_limit": {"seconds": 7, "nanos": 500_000_000}, "memory_limit_bytes": 256_000_000, "input_file": "",
    "output_file": "",
}  # fmt: skip
MBPP = {
    "task_id": 601, "text": "Double it.", "code": "def twice(a):\r\n  return 2 * a",
    "test_list": ["assert twice(1) == 2", "assert twice(p.a) == 10"], "test_setup_code": "p = P(5)",
    "challenge_test_list": [],
}  # fmt: skip
SANITIZED = {
    "source_file": "Benchmark Questions Verification V2.ipynb", "task_id": 2, "prompt": "Double it.",
    "code": "def twice(a):\n  return 2 * a", "test_imports": ["import math"],
    "test_list": ["assert math.isclose(twice(1), 2)", "assert twice(5) == 10"],
}  # fmt: skip
HUMAN_EVAL = {
    "task_id": "HumanEval/0", "prompt": 'def twice(a: int) -> int:\n    """ Double it.\n    """\n',
    "canonical_solution": "    return 2 * a\n", "entry_point": "twice",
    "test": "\n\nMETADATA = {\n    'author': 'jt'\n}\n\n\ndef check(candidate):\n    for a in (1, 5):\n"
    "        assert candidate(a) == 2 * a\n",
}  # fmt: skip
P = "class P:\n    def __init__(self, a):\n        self.a = a\n"
FORMATS = {
    "livecodebench": (LCB, "print(2 * int(input()))"),
    "livecodebench, functional": (LCB_CALL, "class Solution:\n    def twice(self, a: Optional[int]):\n        return 2 * a"),
    "code_contests": (CONTESTS, "print(2 * int(input()))"),
    "mbpp": (MBPP, f"{P}{MBPP['code']}"),
    "mbpp, sanitized": (SANITIZED, SANITIZED["code"]),
    "humaneval": (HUMAN_EVAL, HUMAN_EVAL["canonical_solution"]),
}  # fmt: skip
# ruff: noqa: E501


def write(path, rows):
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'data'")
        import pyarrow

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_in_the_schema_of_the_hub(name, suffix, tmp_path, capsys):
    row, right = FORMATS[name]
    form = name.partition(",")[0]
    path = write(tmp_path / f"rows{suffix}", [row, row])
    env = CodeEnv(path, data_format=form)
    assert recognized(env.rows.columns, env.rows[1]) == form
    for program, reward in (
        (right, 1.0),
        (right.replace("2 *", "2 +"), 0.0),
        ("import os; os._exit(0)", 0.0),
    ):
        observation, _ = env.reset(options={"index": 1})
        assert "Double it." in observation
        assert env.step(f"```python\n{program}\n```")[1] == reward
    assert main(["data", path, "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["format"], about["kind"], about["rows"], about["problem"]) == (form, "code", 2, None)


def test_limits_of_code_contests_are_those_of_the_item(tmp_path):
    env = CodeEnv(write(tmp_path / "rows.jsonl", [CONTESTS]), data_format="code_contests")
    tests = env.tests_of(env.rows[0])
    assert (tests.cpu_seconds, tests.memory_bytes, len(tests.tests)) == (7.5, 256_000_000, 2)


BROKEN = {
    "livecodebench": [
        ({"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(["x"]))).decode()}, "pickled string"),
        ({"private_test_cases": "%"}, "packed|pickled"),
        ({"public_test_cases": "[", "private_test_cases": ""}, "expected equally many"),
        ({"public_test_cases": json.dumps(cases("functional", ("1", "2"))), "metadata": "{}"}, "nothing names the function"),
        ({"public_test_cases": json.dumps(cases("other", ("1", "2")))}, "testtype='other'"),
        ({"question_content": ""}, "'question_content' is empty"),
    ],
    "code_contests": [
        ({"public_tests": {"input": ["1"], "output": []}}, "expected equally many"),
        ({"private_tests": {"input": ["1"], "output": ["1", "2"]}}, "expected equally many"),
        ({"public_tests": {"input": [], "output": []}, "private_tests": {"input": [], "output": []}}, "the list of tests is empty"),
        ({"public_tests": None}, "expected equally many"),
        ({"description": None}, "'description'"),
    ],
    "mbpp": [
        ({"test_list": []}, "the list of tests is empty"),
        ({"test_list": ["assert twice(1) =="]}, "must be Python"),
        ({"test_list": ["# nothing"]}, "is empty"),
        ({"test_list": None}, "expected equally many"),
        ({"test_setup_code": "p = ("}, "'test_setup_code' must be Python"),
    ],
    "humaneval": [
        ({"test": None}, "'test' must be text"),
        ({"test": "assert True"}, r"must define a function check\(candidate\)"),
        ({"test": "def check(candidate):"}, "'test' must be Python"),
        ({"entry_point": None}, "'entry_point' must be text"),
        ({"prompt": ""}, "'prompt' is empty"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_row_that_cannot_be_graded_is_named_when_it_is_loaded(name, tmp_path, capsys):
    row, _ = FORMATS[name]
    for change, message in BROKEN[name]:
        path = write(tmp_path / "rows.jsonl", [row, {**row, **change}, row])
        with pytest.raises(DataError, match=rf"1 of 3 rows cannot be graded, such as row 1: .*{message}"):
            CodeEnv(path, data_format=name)
        assert len(CodeEnv(path, data_format=name, bad_rows="skip").rows) == 2
        assert main(["data", path]) == 1
        assert "1 of 3 rows" in " ".join(capsys.readouterr().out.split())
