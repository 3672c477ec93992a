"""Verdicts of solvers of reasoning-gym on small items whose answers were found by hand."""

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra rg")

from gem_envs._rg.solvers import JUDGES

_SUM = "Solve this cryptarithm:\n\n  AB\n+ AB\n----\n CAD\n\nNo leading letter can be zero.\n"
_DICE = "I have these dice: 1d6, 2d2. What are the odds of rolling 9 or higher? (Assume"
_JUGS = "hold this many litres of water: A:5, B:3\nAnd your target is: 4 litres.\n"
_COLORS = "Vertices: [0, 1, 2]\nEdges: [(0, 1), (1, 2)]\nPossible colors: [1, 2]\n"
_KAKURASU = "Row sums: [3, 1]. Column sums: [3, 1].\n0 0\n0 0"
_LIFE = "after 1 steps of simulation\n\n[[0,0,0,0],\n [1,1,1,0],\n [0,0,0,0],\n [0,0,0,0]]."
_HALT = "halt at or before 1 steps? Initial board:\n[[0 0 0 0]\n [0 1 1 0]\n [0 0 0 0]\n [0 0 0 0]]"
_LIARS = (
    "A very special island is inhabited only by saints and sinners. You meet 2 inhabitants: Ava, and Liam."
    ' "it is not the case that (Ava is a saint and Liam is a saint)," Ava declared.'
    " Liam said that Ava is a sinner. So who is a saint and who is a sinner?"
)
_CIRCULAR = (
    "A very special island is inhabited only by saints and sinners. You meet 2 inhabitants: Ava, and Liam."
    ' In Ava\'s words: "Liam is a saint". Liam said, "Ava is a saint." So who is a saint and who is a sinner?'
)
_MACHINES = (
    "The vending machines sell cookies for 25 cents and gum for 110 cents. James spent $600 and got 6 bags of"
    " cookies and had 9% of his money left. How many gum did he buy? Give the result as your final answer."
)
_RULE = "Input 1: [40, 2, 3]\nOutput 1: [5]\nInput 2: [50, 7]\nOutput 2: [7]\n\n\nInput: {}\nOutput:\n"
"""The sum of the elements below some number, in which repeated elements count once or twice."""
_FUTOSHIKI = "this 2x2 Futoshiki puzzle:\n\n_ < _\n     \n_   _\n\nEnsure your answer"


@pytest.mark.parametrize(
    ("name", "question", "wrong", "right"),
    [
        ("cryptarithm", _SUM, "A=9,B=9,C=1,D=8", "A=9,B=7,C=1,D=4"),
        ("cryptarithm", _SUM, "A=9,B=5,C=1,D=1", "A=9,B=5,C=1,D=0"),
        ("decimal_arithmetic", "maximum of 3 significant digits\nvalue.\n2.0/3.0 = ?", "0.666", "0.667"),
        ("decimal_chain_sum", "problem: 0.05 - 0.1 + 0.004 =", "0.046", "-0.046"),
        ("decimal_chain_sum", "problem: -0.5 - -1.25 =", "-1.75", "0.75"),
        ("dice", _DICE, "3/24", "1/6"),
        ("fraction_simplification", "the fraction $\\frac{8}{12}$ to", "$\\frac{4}{6}$", "$\\frac{2}{3}$"),
        ("fraction_simplification", "the fraction 8/12 to", "3/2", "2/3"),
        ("gcd", "of these numbers: 12, 18. Give", "3", "6"),
        ("lcm", "of these numbers: 4, 6", "24", "12"),
        ("futoshiki", _FUTOSHIKI, "2   1\n\n1   2", "1 < 2\n\n2   1"),
        (
            "game_of_life",
            _LIFE,
            "[[0,0,0,0],[1,1,1,0],[0,0,0,0],[0,0,0,0]]",
            "[[0,1,0,0],[0,1,0,0],[0,1,0,0],[0,0,0,0]]",
        ),
        ("game_of_life_halting", _HALT, "False", "True"),
        ("game_of_life_halting", _HALT.replace("1 1 0", "1 1 1"), "True", "False"),
        ("graph_color", _COLORS, '{"0": 1, "1": 2}', '{"0": 1, "1": 2, "2": 1}'),
        ("graph_color", _COLORS, '{"0": 1, "1": 1, "2": 2}', '{"0": 2, "1": 1, "2": 2}'),
        (
            "group_anagrams",
            'into anagrams:\n["on", "no", "a"]',
            '[["on"], ["no"], ["a"]]',
            '[["a"], ["no", "on"]]',
        ),
        ("intermediate_integration", "∫ x*exp(x) dx\n", "x*exp(x) + C", "(x - 1)*E**x + C"),
        ("isomorphic_strings", "or False otherwise:\nabb ccd", "True", "False"),
        ("isomorphic_strings", "or False otherwise:\nabb baa", "False", "True"),
        (
            "jugs",
            _JUGS,
            '["fill A", "pour A->B", "empty A"]',
            '["fill A", "pour A->B", "empty B", "pour A->B", "fill A", "pour A->B"]',
        ),
        ("kakurasu", _KAKURASU, "1 1\n0 1", "1 1\n1 0"),
        (
            "knights_knaves",
            _LIARS,
            "Ava is a sinner, and Liam is a saint",
            "Ava is a saint, and Liam is a sinner",
        ),
        ("largest_island", "matrix grid:\n1 1 0\n0 0 1\n0 1 1\n\nAn island", "5", "3"),
        ("leg_counting", "if you have 2 wasps, 1 butterflys, 3 sea slugs?", "12", "18"),
        ("letter_counting", 'the letter "n" appear in the text: "No one"?', "1", "2"),
        ("letter_jumble", "these words: otnhing tA lal", "nothing At al", "nothing At all"),
        ("emoji_mystery", "from the emoji: \u2764\ufe0f\U000e0138\U000e0159\n", "HI", "Hi"),
        ("gsm_symbolic", _MACHINES, "494", "495"),
        (
            "gsm_symbolic",
            "Mia is required to submit a 10-page essay. She already finished writing 1/5",
            "2",
            "8",
        ),
        (
            "gsm_symbolic",
            "John has $47.80 and wants to buy 57 nuts from a bin at the store: $0.40",
            "24",
            "25",
        ),
        ("list_functions", _RULE.format("[4, 1]"), "[4]", "[5]"),
    ],
)
def test_wrong_and_right_answers(name, question, wrong, right):
    assert JUDGES[name](question, wrong) is False
    assert JUDGES[name](question, right) is True


def test_the_arms_of_a_starfish_are_legs_only_if_the_prompt_says_so():
    from gem_envs._rg.env import ReasoningGymEnv

    judge = JUDGES["leg_counting"]
    assert judge("if you have 1 starfishs, 2 ducks?", "9") is None
    rows = [ReasoningGymEnv("leg_counting", size=30).rows[index] for index in range(30)]
    noted = ["\nThe five arms of a starfish count as legs." in row["question"] for row in rows]
    assert noted == ["starfish" in row["question"].partition("\nThe five")[0] for row in rows]
    assert {True, False} == set(noted)
    assert all(judge(row["question"], row["answer"]) for row in rows)


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("decimal_arithmetic", "maximum of 3 significant digits\nvalue.\n2.0/(1.0-1.0) = ?", "0"),
        ("futoshiki", _FUTOSHIKI.replace("<", " "), "1   2\n\n2   1"),
        ("kakurasu", "Row sums: [1, 1]. Column sums: [1, 1].\n0 0\n0 0", "1 0\n0 1"),
        ("gsm_symbolic", _MACHINES.replace("6 bags", "7 bags"), "494"),
        ("gsm_symbolic", "their son eats 1. How many tacos does this family eat in one month?", "30"),
        ("list_functions", _RULE.format("[3, 3]"), "[6]"),
        ("knights_knaves", _CIRCULAR, "Ava is a saint"),
    ],
)
def test_no_answer_is_right_if_there_are_several_solutions_or_none(name, question, answer):
    assert JUDGES[name](question, answer) is None


def test_a_word_whose_letters_are_missing_is_not_readable():
    """The font b_m__200 has I and S, but not D, E, and L."""
    from pyfiglet import figlet_format

    def verdict(drawn, word):
        drawing = figlet_format(drawn, font="b_m__200")
        return JUDGES["figlet_font"](f"What word does this say?\n\n{drawing}", word)

    assert verdict("D E L I E S", "DELIES") is None
    assert verdict("I S", "IS") is True
    assert verdict("IS", "IS") is True
    assert verdict("I S", "SI") is False
    assert verdict("I S", "") is False


@pytest.mark.parametrize(("name", "index"), [("gsm_symbolic", 15), ("list_functions", 51)])
def test_items_whose_kind_belongs_to_the_dataset_are_drawn_again(name, index):
    """These datasets draw the kinds of their items at once, so an item cannot be drawn by a larger index."""
    import reasoning_gym

    from gem_envs._rg.env import ReasoningGymEnv
    from gem_envs._rg.labels import label

    theirs = reasoning_gym.create_dataset(name, size=60, seed=42)[index]
    assert JUDGES[name](theirs["question"], theirs["answer"]) is None
    ours, again = (ReasoningGymEnv(name, size=60).rows[index] for _ in range(2))
    assert ours == again
    assert ours["metadata"]["source_index"] == index
    assert JUDGES[name](ours["question"], label(ours)) is True
