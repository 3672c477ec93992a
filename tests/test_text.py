from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_envs._text import boxed_answer, boxes, command, direction, plain, undecorated, word
from gem_envs.text import first_code_block, first_tag, integer, integers, last_boxed

SIZE = 10_000_000
"""Number of characters of the hostile texts; quadratic time would exceed the test's time limit."""

TOKENS = ["\\boxed{", "{", "}", "\\{", "\\}", "\\\\", "\\", "boxed{", "a", " ", "\n", "7"]
pieces = st.lists(st.sampled_from(TOKENS), max_size=30).map("".join)


# -- last_boxed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{5}", "5"),
        (r"first \boxed{1}, then \boxed{2}.", "2"),
        (r"\boxed{ 5 }", " 5 "),
        (r"\boxed{}", ""),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a{b{c}}d} tail }", "a{b{c}}d"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{a \\}", r"a \\"),
        (r"escaped once too often: \\boxed{5}", "5"),
        (r"\boxed{5} and then \boxed{", "5"),
        (r"\boxed{5} and then \boxed{6", "5"),
        (r"{ left open \boxed{5}", "5"),
        ("\\boxed{two\nlines}", "two\nlines"),
        ("", None),
        ("5", None),
        (r"\boxed{5", None),
        (r"\boxed{5\}", None),
        (r"boxed{5}", None),
        (r"\boxed 5", None),
        (r"\fbox{5}", "5"),
        (r"\boxed {5}", "5"),
        (r"\fbox 5", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("up", "up"),
        (" up\n", "up"),
        (r"\text{up}", "up"),
        (r"\textbf{ up }", "up"),
        (r"\mathrm {up}", "up"),
        ("$5$", "5"),
        ("$$5$$", "5"),
        ("**5**", "5"),
        ("5.", "5"),
        (r"$\textbf{\text{5.}}$.", "5"),
        (r"1 \, 2\ 3\quad4~5", "1   2 3 4 5"),
        (r"\text{a {b} c}", "a {b} c"),
        (r"\text{a} \text{b}", r"\text{a} \text{b}"),
        (r"\text{a}, {b}", r"\text{a}, {b}"),
        (r"\text{a", r"\text{a"),
        (r"\texture{a}", r"\texture{a}"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("**1** or **2**", "**1** or **2**"),
        (r"1 \\ 2", r"1 \\ 2"),
        ("0.5", "0.5"),
        ("$", "$"),
        ("$$", "$$"),
        ("", ""),
    ],
)
def test_undecorated(text, bare):
    assert undecorated(text) == bare


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Answer: up", "up"),
        ("the answer is (up", "(up"),
        ("The final answer is: **up**!", "up"),
        ("the answer is not up", "the answer is not up"),
        ("say: answer: up", "say: answer: up"),
        (r"\textcolor{red}{up}", "up"),
        (r"\bf up", "up"),
        (r"**\bf `up`**", "up"),
        ("(1)(2)", "(1)(2)"),
        ("'up'", "up"),
        (r"Move: $\text{Answer: [up]}$.", "up"),
        ("x" * 201 + "!", "x" * 201 + "!"),
    ],
)
def test_plain(text, bare):
    assert plain(text) == bare


@given(pieces | st.text())
def test_undecorated_takes_any_text(text):
    assert len(undecorated(text)) <= len(text)


@pytest.mark.parametrize("piece", ["\\text{", "{", "}", "$", "*", ".", " ", "\\quad", "~"])
def test_undecorated_reads_hostile_texts_in_time(piece):
    for size in (9_000, SIZE):
        body = piece * (size // len(piece))
        for text in (body, f"\\text{{{body}}}", body + "}" * (size // len(piece))):
            undecorated(text)


def closing_brace(text: str, start: int) -> int:
    """Return the position of the brace that closes the one before `start`, or -1, by a simple scan."""
    depth, i = 1, start
    while i < len(text):
        if text.startswith("\\\\boxed{", i):
            i += 1  # a doubled backslash before a box is not an escape
        elif text[i] == "\\" and text[i + 1 : i + 2] in ("\\", "{", "}"):
            i += 2
            continue
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
        i += 1
    return -1


@given(pieces)
def test_last_boxed_agrees_with_reading_every_box_on_its_own(text):
    starts = [i + 7 for i in range(len(text)) if text.startswith("\\boxed{", i)]
    ends = {start: closing_brace(text, start) for start in starts}
    closed = [start for start in starts if ends[start] >= 0]
    assert last_boxed(text) == (text[closed[-1] : ends[closed[-1]]] if closed else None)


@given(pieces)
def test_boxes_are_all_complete_ones_without_a_box_inside(text):
    starts = [i + 7 for i in range(len(text)) if text.startswith("\\boxed{", i)]
    spans = [(start, end) for start in starts if (end := closing_brace(text, start)) >= 0]
    innermost = [(a, b) for a, b in spans if not any(a < c < b for c, _ in spans)]
    assert list(boxes(text)) == [text[a:b] for a, b in reversed(innermost)]


def test_no_more_than_the_last_hundred_boxes_are_read():
    simple = "".join(f"\\boxed{{{n}}}" for n in range(150))
    assert list(boxes(simple)) == [str(n) for n in range(149, 49, -1)]
    nested = "".join(f"\\boxed{{\\text{{{n}}}}}" for n in range(150))
    assert list(boxes(nested)) == [f"\\text{{{n}}}" for n in range(149, 49, -1)]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5} is what I give, as asked in \boxed{}", "5"),
        (r"\boxed{5}, in the form \boxed{answer}", "5"),
        (r"\boxed{5}, in the form \boxed{\text{Answer}}.", "5"),
        (r"\boxed{5} \boxed{number} \boxed{ } \boxed{...}", "5"),
        (r"\boxed{5} \boxed{6} \boxed{}", "6"),
        (r"\boxed{5 \boxed{}}", ""),
        (r"\boxed{}", ""),
        (r"\boxed{answer}", "answer"),
        (r"\boxed{} \boxed{answer}", "answer"),
        (r"\boxed{\frac{1}{2}} or \boxed{}", r"\frac{1}{2}"),
        ("no box", None),
    ],
)
def test_boxed_answer(text, answer):
    assert boxed_answer(text) == answer


@given(st.lists(st.sampled_from(["", " ", "answer", "number", "1", "2", r"\frac{1}{2}"]), max_size=8))
def test_boxed_answer_is_the_last_that_is_neither_empty_nor_a_placeholder(contents):
    text = " and ".join(f"\\boxed{{{content}}}" for content in contents)
    answers = [content for content in contents if content.strip() not in ("", "answer", "number")]
    assert boxed_answer(text) == (answers or contents or [None])[-1]


@pytest.mark.parametrize("depth", range(1, 5))
def test_runs_of_braces_nest(depth):
    content = "{" * depth + r"\frac{1}{2}" + "}" * depth
    assert list(boxes(f"}}}} \\boxed{{{content}}}}}}} \\boxed{{{{{{")) == [content]


@pytest.mark.once
@pytest.mark.parametrize(
    "piece",
    ["\\boxed{}", "\\boxed{ {} }", "\\boxed{", "\\boxed{\\boxed{}}", "\\boxed{\\}", "}", "\\boxed{answer}"],
)
def test_boxed_answer_takes_linear_time(piece):
    size = SIZE // 10
    body = piece * (size // len(piece))
    for text in (body, "\\boxed{" + body, body + "}" * (size // 8)):
        boxed_answer(text)
        assert len(list(boxes(text))) <= 100


@given(st.text(), st.text(alphabet=st.characters(exclude_characters="{}\\")))
def test_a_box_at_the_end_is_found_after_any_text(before, content):
    assert last_boxed(f"{before} \\boxed{{{content}}}") == content


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * (SIZE // 7),
        "\\boxed{" + "{" * (SIZE // 4),
        "\\boxed{{" + "\\" * SIZE + "boxed{",
        "\\boxed{5" + "\\}" * (SIZE // 8),
    ],
    ids=["boxes", "braces", "backslashes", "escapes"],
)
def test_last_boxed_takes_linear_time(text):
    assert last_boxed(text) is None


# -- first_tag --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<search>gems</search>", "gems"),
        ("<search>a</search><search>b</search>", "a"),
        ("x <search>\n a \n</search> y", "\n a \n"),
        ("<search></search>", ""),
        ("</search><search>a</search>", "a"),
        ("<search>a", None),
        ("search", None),
        ("<Search>a</Search>", None),
        ("<searching>a</searching>", None),
    ],
)
def test_first_tag(text, content):
    assert first_tag(text, "search") == content


@given(st.text(), st.text())
def test_first_tag_returns_the_text_between(content, after):
    expected = content.partition("</a>")[0]
    assert first_tag(f"<a>{content}</a>{after}", "a") == expected


def test_first_tag_takes_linear_time():
    assert first_tag("<a>" * (SIZE // 3), "a") is None


# -- first_code_block -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("Run:\n```Python title=x\na\n\nb\n```\nDone.", "a\n\nb"),
        ("```text\nno\n```\n```python\nyes\n```", "yes"),
        ("```python\n1\n```\n```python\n2\n```", "1"),
        ("~~~python\n```\n~~~", "```"),
        ("````python\n```\n````", "```"),
        ("- item\n  ```python\n  x\n    y\n z\n  ```", "x\n  y\nz"),
        ("- ```python\n  x\n  ```", "x"),
        ("1. ```python\n   x\n   ```\n2. Done.", "x"),
        ("```python\nx\n``` It prints x.", "x"),
        ("```python\nx\n```</answer>", "x"),
        ("<think>a</think>```python\nx\n```", "x"),
        ("The program: ```python\nx\n```", "x"),
        ("<think>Here it is ```python\nx\n```", "x"),
        ("```python\nx\ny```\nDone.", "x\ny"),
        ("- ```python\n  x\n  y``` \n", "x\ny"),
        ('```python\nx = """```\ny"""\n```', 'x = """```\ny"""'),
        ("Use ``` or ~~~ here.\n```python\nx\n```", "x"),
        ("```python3\nx\n```", "x"),
        ("```py\nx\n```", "x"),
        ("```python\n```", ""),
        ("```text\n```python\nno\n```", None),
        ("`python`", None),
        ("```python print(1)```", None),
        ("Put ```python around it.\nx\n```", None),
        ("Close it with ```\nx\n```", None),
        ("```python\nuse `x` and ```y```", None),
        ("```python\nprint(1)", None),
        ("```python2\nprint(1)\n```", None),
        ("```\nplain\n```", None),
    ],
)
def test_first_code_block(text, content):
    assert first_code_block(text, "python") == content


def test_first_code_block_of_any_language():
    assert first_code_block("```\nplain\n```") == "plain"


@given(st.text(alphabet=st.characters(exclude_characters="`~")))
def test_first_code_block_returns_the_text_between(content):
    assert first_code_block(f"text\n```python\n{content}\n```\nmore", "python") == content


@pytest.mark.once
@pytest.mark.parametrize(
    "text",
    [
        "~" * SIZE + "`",
        "```\n" + "~~~\n" * (SIZE // 16),
        "```" + " " * SIZE,
        " " * SIZE + "a```",
        "- " * (SIZE // 2) + "a```",
    ],
)
def test_first_code_block_takes_linear_time(text):
    assert first_code_block(text) is None


# -- numbers ----------------------------------------------------------------------------------


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_integer_reads_what_str_writes(number):
    assert integer(str(number)) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+5", 5),
        ("007", 7),
        ("-0", 0),
        ("9" * 5000, 10**18),
        ("-" + "9" * 19, -(10**18)),
        ("0" * 30 + "7", 7),
    ],
)
def test_integer_reads_signs_and_leading_zeros(text, number):
    assert integer(text) == number


@pytest.mark.parametrize(
    "text", ["", " 5", "5\n", "5.1", "5.", ".0", "1_000", "0x5", "five", "--5", "\u0665", "\u00b2"]
)
def test_integer_rejects_the_rest(text):
    assert integer(text) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3 1 4", [3, 1, 4]), ("3,1, 4", [3, 1, 4]), (" 7\n", [7]), ("", None), (",", None), ("3 x", None)],
)
def test_integers(text, numbers):
    assert integers(text) == numbers


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("up", "up"),
        ("Left", "left"),
        ("DOWN", "down"),
        ("right", "right"),
        ("upward", None),
        ("up ", "up"),
        ("move up", "up"),
        ("\u2191", "up"),
        ("up down", None),
        ("", None),
    ],
)
def test_direction(text, name):
    assert direction(text) == name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("crane", "crane"), ("CRANE", "crane"), ("C r A n e", "crane"), ("a\nb", "ab"), ("e", "e"),
        ("", None), (" ", None), ("cr4ne", None), ("cran\u00e9", None), ("\u0441rane", None),
        ("\u0130", None), ("a-b", None),
    ],
)  # fmt: skip
def test_word(text, found):
    assert word(text) == found


# -- all of them ------------------------------------------------------------------------------


@given(st.text() | pieces)
def test_no_parser_raises_on_any_text(text):
    for content in (last_boxed(text), first_tag(text, "a"), first_code_block(text)):
        assert content is None or all(line in text for line in content.split("\n"))
    assert isinstance(integer(text), (int, type(None)))
    assert isinstance(integers(text), (list, type(None)))
    assert direction(text) is None or direction(text) == text.lower()
    assert word(text) is None or word(text).isalpha()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("search[red shoes]", ("search", "red shoes")),
        ("  Click[ Next > ]  ", ("click", "Next >")),
        ("click[a [b] c]", ("click", "a [b] c")),
        ("search []", None),
        ("search[x", None),
        ("search[x] now", None),
        ("[x]", None),
        ("se arch[x]", None),
        ("s\u00e9arch[x]", None),
        ("", None),
    ],
)
def test_command(text: str, expected: tuple[str, str] | None) -> None:
    assert command(text) == expected
