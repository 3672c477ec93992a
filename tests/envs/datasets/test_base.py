from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.errors import ConfigError, DataError, ResetNeeded
from gem_envs.datasets import CodeEnv, MathEnv, QaEnv
from gem_lab import check_env
from gem_lab._checker.texts import long_texts
from tests.support import PIXEL

ITEMS = [{"problem": f"{n} + 1 = ?", "answer": str(n + 1)} for n in range(7)]


def math_env(rows=ITEMS, **kwargs):
    return MathEnv(dataset=rows, symbolic=False, **kwargs)


def test_a_pass_takes_every_item_once_and_the_next_pass_has_another_order():
    env = math_env()
    passes = []
    for number in range(3):
        order = []
        for place in range(len(ITEMS)):
            env.reset(seed=5 if number == place == 0 else None)
            order.append(env.index)
        passes.append(order)
    assert all(sorted(order) == list(range(7)) for order in passes)
    assert passes[0] != passes[1] != passes[2]
    again = math_env()
    again.reset(seed=5)
    assert again.index == passes[0][0]


def test_seeds_spread_over_the_items():
    env = math_env()
    firsts = []
    for seed in range(300):
        env.reset(seed=seed)
        firsts.append(env.index)
    assert all(20 < firsts.count(item) < 80 for item in range(7))


def test_an_index_is_honored_and_leaves_the_pass_alone():
    env, twin = math_env(), math_env()
    env.reset(seed=1)
    twin.reset(seed=1)
    for index in range(7):
        observation, _ = env.reset(options={"index": index})
        assert observation.startswith(ITEMS[index]["problem"])
    env.reset()
    twin.reset()
    assert env.index == twin.index


@pytest.mark.parametrize("index", [-1, 7, 10**30, "0", 1.5, True + 7, True, False])
def test_an_index_out_of_range_is_rejected(index):
    with pytest.raises(ConfigError, match="index="):
        math_env().reset(options={"index": index})


def test_an_index_and_a_state_cannot_be_combined():
    env = math_env()
    env.reset(seed=0)
    state = env.get_state()
    with pytest.raises(ConfigError, match="'index' and 'state' cannot be combined"):
        env.reset(options={"index": 3, "state": state})
    env.reset(options={"index": 3, "state": None})
    assert env.index == 3
    env.reset(options={"index": None, "state": state})
    assert env.index == state["fields"]["index"]


RIGHT = {"invalid": None, "parsed_action": "4", "success": True}


def test_rewards_and_info():
    env = math_env()
    env.reset(options={"index": 3})
    assert env.step(r"4? \boxed{4}") == (
        "That is right.", 1.0, True, False, {**RIGHT, "metrics": {"grader_undecided": 0.0}}
    )  # fmt: skip
    with pytest.raises(ResetNeeded):
        env.step("again")
    env.reset(options={"index": 3})
    assert env.step(r"\boxed{5}")[1:4] == (0.0, True, False)
    env.reset(options={"index": 3})
    _, reward, terminated, truncated, info = env.step("4")
    assert (reward, terminated, truncated, info) == (
        0.0,
        True,
        False,
        {"invalid": "format", "success": False},
    )


def test_an_undecided_answer_earns_nothing_and_is_counted():
    env = math_env([{"problem": "p", "answer": r"\forall x"}])
    for answer, reward, undecided in ((r"\exists x", 0.0, 1.0), (r"\forall  x", 1.0, 0.0)):
        env.reset(seed=0)
        _, paid, _, _, info = env.step(rf"\boxed{{{answer}}}")
        assert (paid, info["metrics"]) == (reward, {"grader_undecided": undecided})
    env = math_env([{"problem": "p", "answer": ["5", r"\forall x"]}])
    env.reset(seed=0)
    assert env.step(r"\boxed{6}")[-1]["metrics"] == {"grader_undecided": 1.0}


def test_a_dataset_may_say_that_its_references_are_rounded():
    for rounded in (False, True):
        env = math_env([{"problem": "p", "answer": "3.14"}], rounded=rounded)
        for answer, reward in (
            (r"\pi", float(rounded)),
            ("3.1416", float(rounded)),
            ("3.14", 1.0),
            ("3.15", 0.0),
        ):
            env.reset(seed=0)
            assert env.step(rf"\boxed{{{answer}}}")[1] == reward


def test_any_of_several_answers_is_right():
    for answer in (["1", "2"], '["1", "2"]'):
        env = math_env([{"problem": "p", "answer": answer}])
        for boxed, reward in (("1", 1.0), ("2", 1.0), ("3", 0.0)):
            env.reset(seed=0)
            assert env.step(rf"\boxed{{{boxed}}}")[1] == reward


def test_numbers_are_answers_too():
    env = math_env([{"problem": "p", "answer": 5}])
    env.reset(seed=0)
    assert env.step(r"\boxed{5.0}")[1] == 1.0


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([], DataError, "has no rows"),
        ([{"problem": "p"}], ConfigError, r"no column 'answer' \(answer_key\); it has problem"),
        ([{"question": "p", "answer": "1"}], ConfigError, r"no column 'problem' \(question_key\)"),
        ("abc", ConfigError, "list of dicts"),
        ([1], ConfigError, "list of dicts"),
    ],
)
def test_unfit_rows_are_rejected_when_the_environment_is_made(rows, error, said):
    with pytest.raises(error, match=said):
        math_env(rows)


def test_unfit_values_are_an_error_of_the_data():
    with pytest.raises(DataError, match="row 0: column 'problem' must be text or chat messages, not nothing"):
        math_env([{"problem": None, "answer": "1"}])
    with pytest.raises(DataError, match="row 0: column 'answer' has no answer"):
        math_env([{"problem": "p", "answer": None}])


def test_one_source_must_be_given():
    for kwargs in ({}, {"dataset": ITEMS, "dataset_name": "a.jsonl"}):
        with pytest.raises(ConfigError, match="give dataset_name="):
            MathEnv(symbolic=False, **kwargs)


def test_reset_options():
    with pytest.raises(ConfigError, match=r"unknown reset options \['no'\]"):
        math_env().reset(options={"no": 1})
    with pytest.raises(ConfigError, match="not a state of MathEnv"):
        math_env().reset(options={"state": {"x": 1}})


def vision(problem, images, **kwargs):
    rows = [
        {"problem": "<image>What is y?", "answer": "1", "images": [PIXEL]},
        {"problem": problem, "answer": "3", "images": images},
    ]
    return math_env(rows, image_key="images", **kwargs)


GIF = b"GIF89a" + bytes(20) + b";"


@pytest.mark.parametrize(
    ("problem", "images", "kinds"),
    [
        ("Look: <image> What is x?", [PIXEL], "Look: |png|What is x?"),
        ("Look: <image> and <image> What is x?", [PIXEL, GIF], "Look: |png|and|gif|What is x?"),
        ("Is it <image 2> or <image 1>?", [PIXEL, {"bytes": GIF}], "Is it|gif|or|png|?"),
        ("<image_1> <image1> x?", [PIXEL], "png|png|x?"),
        ("What is x?", [PIXEL, GIF], "png|gif|What is x?"),
        ("What is x?", PIXEL, "png|What is x?"),
        ("<image>", (PIXEL,), "png"),
        ("What is 1 + 2?", [], "What is 1 + 2?"),
        ("What is 1 + 2?", None, "What is 1 + 2?"),
    ],
)
def test_images_become_content_parts(problem, images, kinds):
    env = vision(problem, images)
    observation, _ = env.reset(options={"index": 1})
    shown = [
        part["text"] if part["type"] == "text" else part["image_url"]["url"].partition(";")[0][11:]
        for part in observation[:-1]
    ]
    assert [text.strip() for text in shown] == [text.strip() for text in kinds.split("|")]
    assert env.step(r"\boxed{3}")[1] == 1.0


@pytest.mark.parametrize(
    ("problem", "images", "message"),
    [
        (
            "<image>What is x?",
            [],
            "has 1 marks such as <image>, and there are 0 images: expected an image for",
        ),
        ("<image>What is x?", None, "and there are 0 images"),
        ("<image><image><image>x?", [PIXEL], "has 3 marks such as <image>, and there are 1 images"),
        ("<image>What is x?", [PIXEL, GIF], "and there are 2 images: expected one mark per image"),
        ("<image 3>What is x?", [PIXEL, GIF], "expected an image for each mark"),
        ("<image 2>What is x?", [PIXEL, GIF], "expected one mark per image"),
        ("<image 0>What is x?", [PIXEL], "and there are 1 images"),
        ("<image>What is x?", [None], "image 1 of 1 is missing"),
        ("What is x?", [PIXEL, None], "image 2 of 2 is missing"),
        ("What is x?", [{"bytes": None, "path": None}], "image 1 of 1 is missing"),
        ("<image>What is x?", [{}], "image 1 of 1 is missing"),
        ("<video>What is x?", [PIXEL], "the problem has the mark <video>, but"),
        ("<image><audio>x?", [PIXEL], "the problem has the mark <audio>, but"),
    ],
)
def test_a_row_that_cannot_be_shown_is_rejected_when_the_data_is_opened(problem, images, message):
    with pytest.raises(DataError, match=rf"dataset: .*{message}.*\(row 1\)$"):
        vision(problem, images)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"nothing", "7 bytes .* are not an image"),
        (b"", "0 bytes .* are not an image"),
        (PIXEL[:40], "the image is cut short: 40 bytes of png"),
        (b"\xff\xd8\xff" + bytes(40), "the image is cut short: 43 bytes of jpeg"),
        (b"RIFF" + (100).to_bytes(4, "little") + b"WEBP" + bytes(40), "cut short: 52 bytes of webp"),
        (bytes(4) + b"ftypmp42" + bytes(40), "are not an image"),  # a video
        (3.5, "the image is of type float"),
    ],
)
def test_a_damaged_image_names_the_row(image, message):
    env = vision("<image>What is x?", [image])
    with pytest.raises(DataError, match=rf"dataset: .*{message}.*\(row 1\)$"):
        env.reset(options={"index": 1})


def test_a_mark_without_a_column_of_images_is_rejected():
    row = {"problem": "<image>What is x?", "answer": "3", "decoded_image": PIXEL, "picture": PIXEL}
    with pytest.raises(
        DataError,
        match=r"shows <image>, but no image_key is given; .*columns .*: decoded_image, picture \(row 0",
    ):
        math_env([row]).reset(seed=0)
    with pytest.raises(DataError, match=r"shows <video>, but no image_key is given; set it .*\(row 0"):
        math_env([{"problem": "<video>What is x?", "answer": "3"}]).reset(seed=0)


def test_boxed_questions_ask_for_a_box_and_others_for_a_tag():
    rows = [{"question": "Who?", "answer": ["The Owl", "owl"]}]
    for boxed, asked, right, other in (
        (True, r"\boxed{answer}", r"\boxed{Owl.}", "<answer>owl</answer>"),
        (False, "<answer>answer</answer>", "<answer>x</answer> <answer> the OWL </answer>", r"\boxed{owl}"),
    ):
        env = QaEnv(dataset=rows, extract_boxed=boxed)
        assert asked in env.reset(seed=0)[0]
        assert env.step(right)[1] == 1.0
        env.reset(seed=0)
        assert env.step(other)[4]["invalid"] == "format"


@pytest.mark.parametrize(
    "form",
    [
        r"\text{%s}",
        r"\textbf{%s}.",
        r"\mathrm{ %s }",
        "$%s$",
        "**%s**",
        "%s",
        "Answer: %s",
        "The answer is %s.",
    ],
)
def test_latex_around_a_boxed_answer_does_not_matter(form):
    env = QaEnv(dataset=[{"question": "?", "answer": "True"}], extract_boxed=True)
    for answer, reward in (("True", 1.0), ("False", 0.0), ("text", 0.0), ("not True", 0.0)):
        env.reset(seed=0)
        assert env.step(rf"\boxed{{{form % answer}}}")[1] == reward


def test_references_with_signs_are_matched_as_before():
    env = QaEnv(dataset=[{"question": "?", "answer": "a~b"}], extract_boxed=True)
    env.reset(seed=0)
    assert env.step(r"\boxed{a~b}")[1] == 1.0


@pytest.mark.parametrize("timeout", [0, -1, "5", None, float("nan"), True])
def test_an_invalid_timeout_is_named(timeout):
    rows = [{"problem": "p", "tests": {"inputs": ["1"], "outputs": ["2"]}}]
    with pytest.raises(ConfigError, match=r"timeout=.*: expected a (finite )?number above 0"):
        CodeEnv(dataset=rows, timeout=timeout)


def test_programs_are_run_on_the_tests():
    rows = [{"problem": "Double it.", "tests": {"inputs": ["1", "2"], "outputs": ["2", "4"]}}]
    env = CodeEnv(dataset=rows)
    cases = {
        "```python\nprint(2 * int(input()))\n```": (1.0, 1.0),
        "```python\nprint(1)\n```\nor\n```python\nprint(2 * int(input()))\n```": (1.0, 1.0),
        "```\nprint(1)\n```\nor\n```\nprint(2 * int(input()))\n```": (1.0, 1.0),
        "```python\nprint(2 * int(input()))\n```\nFor 1 it prints\n```text\n2\n```": (1.0, 1.0),
        "```python\nprint(2)\n```": (0.0, 0.5),
        "```python\nprint(9)\n```": (0.0, 0.0),
    }
    for text, (reward, share) in cases.items():
        env.reset(seed=0)
        _, got, terminated, _, info = env.step(text)
        assert (got, terminated, info["metrics"]) == (reward, True, {"tests_passed": share})
    env.reset(seed=0)
    assert env.step("print(2 * int(input()))")[1] == -0.1
    assert env.oracle_action is not None
    partial = CodeEnv(dataset=rows, partial_credit=True)
    partial.reset(seed=0)
    assert partial.step("```python\nprint(2)\n```")[1] == 0.5


@pytest.mark.parametrize("kwargs", [{"max_tests": 0}, {"max_tests": True}, {"timeout": 0}])
def test_limits_of_programs_are_checked(kwargs):
    with pytest.raises(ConfigError):
        CodeEnv(dataset=[{"problem": "p", "tests": "[]"}], **kwargs)


@pytest.mark.once
def test_ten_megabytes_are_a_format_error_or_wrong():
    envs = [math_env(), QaEnv(dataset=[{"question": "q", "answer": "a"}])]
    for env in envs:
        for text in [*long_texts(200_000), *list(long_texts(10_000_000))[:6]]:
            env.reset(seed=0)
            _, reward, terminated, _, info = env.step(text)
            assert (reward, terminated) == (0.0, True)
            assert len(json.dumps(info)) < 100_000


@pytest.mark.once
@settings(max_examples=200)
@given(st.text().map(lambda t: rf"\boxed{{{t}}}") | st.text())
def test_any_text_is_answered(text):
    env = math_env()
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(text)
    assert terminated
    assert reward in (0.0, 1.0)
    json.dumps(info)


class TestOnAFile:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "items.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
        return str(path)

    def test_check_env(self, path):
        report = check_env(lambda **kwargs: MathEnv(dataset_name=path, symbolic=False, **kwargs))
        assert "best_return" in report.passed

    def test_a_spec_survives_another_process(self, path):
        pytest.importorskip("math_verify", reason="needs the extra 'math'")
        env = gem_core.make("math:GSM8K", dataset_name=path)
        again = gem_core.make(gem_core.EnvSpec.from_json(env.spec.to_json()))
        assert env.reset(seed=4) == again.reset(seed=4)


def test_code_after_the_thinking_is_the_program():
    env = CodeEnv(dataset=[{"problem": "p", "tests": '{"inputs": [""], "outputs": [""]}'}])
    thinking = "<think>First\n```python\nx = 1\nand then"
    assert env.parse(f"{thinking}</think>```python\ny\n```") == "y"
    assert env.parse(f"{thinking}\n</think>\n1. ```python\n   y\n   ``` prints y") == "y"
    assert env.parse("<think>```python\nx\n```</think>") == "x"
    assert env.parse("<think>So far:\n```python\nx\n```\nBut then") == "x"  # GEM reads it, too
    assert env.parse("<think>So far:\n```python\nx") is None
    assert "It can import the standard library" in env.reset(seed=0)[0]
