"""Statements as tests: right programs of every shape pass, and no program makes a wrong result pass."""

from __future__ import annotations

import textwrap

import pytest

from gem_envs.graders import _programs
from gem_envs.graders._program_tests import row_tests
from gem_envs.graders._programs import run_tests
from gem_envs.sandbox._process import Process


def mbpp(*tests, **columns):
    return row_tests({"text": "t", "test_list": list(tests), **columns}, "test_list")


def human_eval(test, prompt="def f(a):\n    pass\n", name="f"):
    test = "def check(candidate):\n" + textwrap.indent(test, "    ")
    return row_tests({"prompt": prompt, "entry_point": name, "test": test}, "test")


def passes(code, tests):
    report = run_tests(code, tests)
    assert report.tests
    assert not report.undecided
    return report.passed == report.tests


WRONG = {
    "one": mbpp("assert f(1) == 2"),
    "set": mbpp("assert set([f(1), f(2)]) == {2, 3}"),
    "tolerance": mbpp("assert math.isclose(f(3), 4.0, rel_tol=0.001)", test_imports=["import math"]),
    "check": human_eval(
        "try:\n    assert candidate(1) == 2\nexcept ValueError:\n    assert False\n"
        "assert all(n > 0 for n in map(candidate, [1, 2]))\nassert list(map(candidate, [1])) == [2]\n"
        "assert double(candidate(1)) == 4",
        "def double(x):\n    return 2 * x\n\ndef f(a):\n    pass\n",
    ),
}
LIE = "\ndef f(a): return 0"
SEEK = """
import gc, sys
def seek(dicts):
    for value in dicts:
        proof = value.get("proof") if type(value) is dict else None
        if isinstance(proof, str):
            import json, os
            with open("result.json", "w") as file:
                json.dump(proof, file)
            os.write(1, proof.encode())
            raise SystemExit(0)
def frames():
    frame = sys._getframe()
    while frame:
        yield from list(frame.f_locals.values())
        frame = frame.f_back
"""
ATTACKS = {
    "os._exit": "import os\nos._exit(0)",
    "os._exit in the call": "def f(a):\n    import os\n    os._exit(0)",
    "sys.exit": "raise SystemExit(0)",
    "sys.exit in the call": "def f(a): raise SystemExit(0)",
    "atexit": f"import atexit, os\natexit.register(os._exit, 0){LIE}",
    "thread": "import os, threading, time\nthreading.Timer(0.01, os._exit, [0]).start()\ndef f(a): time.sleep(1)",
    "fork": f"import os\nif os.fork(): os._exit(0){LIE}",
    "own result": f"open('result.json', 'w').write('true')\nprint('true'){LIE}",
    "proof in the frames": f"{SEEK}\nseek(frames()){LIE}",
    "proof in the frames of the call": f"{SEEK}\ndef f(a): seek(frames())",
    "proof in memory": f"{SEEK}\nseek(gc.get_objects()){LIE}",
    "no exec": f"import builtins\nbuiltins.exec = lambda *args, **named: None{LIE}",
    "no compile": "import builtins\nreal = builtins.compile\n"
    f"builtins.compile = lambda source, name, *args, **named: real('', name, *args){LIE}",
    "no assertions": f"import builtins\nbuiltins.AssertionError = builtins.ValueError{LIE}",
    "globals of the driver": "import sys\nframe = sys._getframe()\nwhile frame:\n"
    "    frame.f_globals['exec'] = frame.f_globals['check'] = lambda *args, **named: None\n"
    f"    frame = frame.f_back{LIE}",
    "expected values": "import sys\ndef f(a):\n    frame = sys._getframe()\n    while frame:\n"
    "        if frame.f_code.co_filename == 'test.py' and a + 1 in frame.f_code.co_consts: return a + 1\n"
    "        frame = frame.f_back\n    return 0",
    "text of the test": "import gc\ntext = str([v for v in gc.get_objects() if type(v) is dict and 'setup' in v])\n"
    "def f(a): return a + 1 if 'assert' in text else 0",
    "equal": "class A:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(a): return A()",
    "equal int": "class A(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
    "    __lt__ = __gt__ = __sub__ = __rsub__ = __eq__\ndef f(a): return A()",
    "equal in a list": "class A(list):\n    def __eq__(self, other): return True\ndef f(a): return A()",
    "equal class": "class M(type):\n    def __eq__(self, other): return True\n    __hash__ = type.__hash__\n"
    "class A(metaclass=M): pass\ndef f(a): return A",
    "equal to anything": "from unittest.mock import ANY\ndef f(a): return ANY",
    "equal, of another file": "space = {}\nexec(compile('class A:\\n def __eq__(s, o): return True\\n"
    " __hash__ = object.__hash__', 'x', 'exec'), space)\ndef f(a): return space['A']()",
    "a partial method": "import functools\nclass A:\n    __hash__ = object.__hash__\n"
    "    __eq__ = functools.partialmethod(lambda self, other: True)\ndef f(a): return A()",
    "mock": "from unittest.mock import MagicMock\nmock = MagicMock()\nfor name in ('eq', 'lt', 'gt', 'sub', 'float'):\n"
    "    getattr(mock, f'__{name}__').return_value = 1.0\ndef f(a): return mock",
    "own set": f"def set(values): return 0\nclass All: pass{LIE}",
    "own math": f"class math:\n    isclose = staticmethod(lambda *args, **named: True){LIE}",
    "other math": f"import math\nmath.isclose = lambda *args, **named: True{LIE}",
    "other functions": f"def double(x): return 4\ndef check(f): pass\ndef all(v): return True{LIE}",
    "end of a loop": "def f(a): raise StopIteration",
    "an assertion": "def f(a): raise ValueError",
    "end of a loop, forged": "import sys\nfrom grading.peer import OPERATIONS, Peer\n"
    f"Peer._answer = lambda self, m: self._send(dict(raised=['StopIteration'], slots=[], table=m['table'])){LIE}",
    "a forged object": "from grading.values import Packer\n"
    f"Packer._entry = lambda self, value: ('mine', [0]){LIE}",
    "an object of the test": "from grading.values import Packer\n"
    f"Packer._entry = lambda self, value: ('yours', [0]){LIE}",
    "deep message": "import os\ndef f(a):\n    for n in range(3, 64):\n        try: os.write(n, "
    "(10**6).to_bytes(8, 'big') + b'[' * 10**6)\n        except OSError: pass\n    os._exit(0)",
    "endless message": "import os\ndef f(a):\n    for n in range(3, 64):\n        try: os.write(n, b'\\xff' * 64)\n"
    "        except OSError: pass\n    os._exit(0)",
    "a question": "import gc\nfrom grading.peer import Peer\ndef f(a):\n"
    "    peer = next(v for v in gc.get_objects() if type(v) is Peer)\n"
    "    return peer.ask('get', 0, ('__globals__',), {})",
}  # fmt: skip
# ruff: noqa: E501


@pytest.mark.parametrize("name", ATTACKS)
def test_no_program_makes_a_wrong_result_pass(name):
    assert WRONG
    for kind, tests in WRONG.items():
        assert not passes(ATTACKS[name], tests), kind


def test_a_program_does_not_end_a_loop_of_the_test():
    tests = human_eval("assert all(map(candidate, [1, 2]))\nassert not [*zip([], map(candidate, [1]))]")
    assert passes("def f(a):\n    return a", tests)
    for error in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
        assert not passes(f"def f(a):\n    raise {error}", tests), error


@pytest.mark.parametrize("name", ["set", "sorted", "len", "isclose", "Counter"])
def test_a_program_does_not_replace_what_compares(name):
    tests = mbpp(
        f"assert {name}([f(1)]) == {name}([2, 2])" if name != "isclose" else "assert isclose(f(1), 5)"
    )
    assert not passes(f"def {name}(*values):\n    return 1\ndef f(a):\n    return 0", tests)
    tests = mbpp(f"assert {name}([1]) == 1" if name != "isclose" else "assert isclose(1) == 1")
    assert passes(f"def {name}(*values):\n    return 1", tests)


def test_the_wrong_results_are_those_of_the_attacks():
    for tests in WRONG.values():
        assert passes("def f(a):\n    return a + 1", tests)


@pytest.mark.parametrize("name", ["proof in the frames", "no exec", "equal", "sys.exit", "expected values"])
def test_attacks_at_level_process(name, monkeypatch):
    monkeypatch.setattr(_programs, "open_sandbox", lambda packages: Process(packages=bool(packages)))
    assert not passes(ATTACKS[name], WRONG["check"])
    assert passes("def f(a):\n    return a + 1", WRONG["check"])


@pytest.mark.parametrize(
    "test",
    ["f(1).startswith('a')", "f(1).count(3) == 1", "f(1)['a']", "f(1) < 5", "f(1) > 5", "5 - f(1) < 1e-9",
     "3 in f(1)", "isinstance(f(1), int)", "f(1).__eq__(3)", "abs(f(1) - 5) < 1e-9", "round(f(1)) == 1"],
)  # fmt: skip
def test_a_result_does_not_see_what_it_is_compared_with(test):
    code = """
        class Yes:
            def __getattr__(self, name): return self if name == "group" else lambda *args: True
            __lt__ = __gt__ = __sub__ = __rsub__ = __contains__ = __getitem__ = __round__ = __eq__ = \\
                lambda *args: True
            __class__ = int
        def f(a): return Yes()
    """
    assert not passes(textwrap.dedent(code), mbpp(f"assert {test}"))


RIGHT = {
    "generator": ("def f(n):\n    yield from range(n)",
        ["assert list(f(3)) == [0, 1, 2]", "assert next(f(3)) == 0", "assert [*zip(f(2), 'ab')] == [(0, 'a'), (1, 'b')]",
         "import itertools\nassert list(itertools.islice(f(10**9), 2)) == [0, 1]"]),
    "containers": ("def f(x):\n    return (x, [x], {x: (1, {2})}, frozenset({x}))",
        ["assert f(1) == (1, [1], {1: (1, {2})}, {1})", "a, b, *c = f(2)\nassert a == 2 and b[0] == 2 and type(c[1]) is frozenset"]),
    "any value": ("def f(x):\n    return x",
        ["a = [1]\nassert f(a) is a", "a = [1]\na.append(a)\nassert f(a)[1] is a", "assert f(None) is None",
         "for x in (1.5, b'ab', bytearray(b'a'), 1 + 2j, range(3), 10**6000, '\\ud800', float('inf'), int, abs):\n    assert f(x) == x and type(f(x)) is type(x)",
         "x = f(float('nan'))\nassert x != x", "assert f({(1, 2): [3], None: True}) == {(1, 2): [3], None: True}",
         "x = []\nfor _ in range(30_000):\n    x = [x]\nassert type(f(x)) is list"]),
    "changed arguments": ("def f(x):\n    x.sort()", ["a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]",
        "a = [[2, 1]]\nb = a[0]\nfor one in a:\n    assert f(one) is None\nassert b == [1, 2]"]),
    "recursion": ("def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)", ["assert f(5000) == 5000"]),
    "functions": ("def f(g, xs):\n    return [g(x) for x in xs]",
        ["assert f(lambda x: x * 2, [1, 2]) == [2, 4]", "assert f(abs, [-1]) == [1]", "assert f(str, iter([1])) == ['1']",
         "try:\n    f(lambda x: 1 / x, [0])\nexcept ZeroDivisionError:\n    pass\nelse:\n    assert False"]),
    "function of functions": ("def f(g):\n    return lambda x: g(g(x))", ["assert f(lambda x: x + 1)(3) == 5"]),
    "exceptions": ("class E(ValueError):\n    pass\ndef f(a):\n    if a:\n        raise E('no')\n    raise KeyError(a)",
        ["try:\n    f(1)\n    assert False\nexcept ValueError as error:\n    assert str(error) == 'no'",
         "import contextlib\nwith contextlib.suppress(KeyError):\n    f(0)\n    assert False"]),
    "class": ("class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        self.items.append(x)\n"
        "    def pop(self):\n        return self.items.pop()\n    def __len__(self):\n        return len(self.items)",
        ["s = Stack()\ns.push(1)\ns.push(2)\nassert len(s) == 2\nassert s.pop() == 2\nassert s.items == [1] and bool(s)"]),
    "nodes": ("class Node:\n    def __init__(self, v, n=None):\n        self.v, self.n = v, n\ndef f(root):\n    return root.v + (f(root.n) if root.n else 0)",
        ["assert f(Node(1, Node(2))) == 3", "a = Node(1)\na.n = Node(5)\nassert f(a) == 6 and a.n.v == 5 and a.n.n is None"]),
    "method": ("class Solution:\n    def f(self, a):\n        return a", ["assert Solution().f(1) == 1"]),
    "types": ("from collections import *\nfrom decimal import Decimal\nfrom fractions import Fraction\nimport datetime\nP = namedtuple('P', 'x y')\n"
        "def f(k):\n    return [Decimal('1.5'), Fraction(1, 3), Counter('aab'), deque([1]), OrderedDict(a=1), defaultdict(int, a=1),\n"
        "        datetime.date(2020, 1, 2), datetime.timedelta(1), P(1, 2)][k]",
        ["from decimal import Decimal\nassert f(0) == Decimal('1.5')", "from fractions import Fraction\nassert f(1) == Fraction(1, 3)",
         "assert f(2) == {'a': 2, 'b': 1} and f(2).most_common(1) == [('a', 2)]", "from collections import deque\nassert f(3) == deque([1])",
         "assert f(4) == f(5) == {'a': 1}", "import datetime\nassert f(6).year == 2020 and f(7) == datetime.timedelta(1)", "assert f(8) == (1, 2) and f(8).x == 1"]),
    "enumeration": ("import enum\nclass C(enum.IntEnum):\n    A = 1\ndef f(a):\n    return C.A", ["assert f(1) == 1"]),
    "name of a builtin": ("def sum(a, b):\n    return a + b", ["assert sum(1, 2) == 3"]),
    "name of a module": ("def copy(a):\n    return [*a]", ["assert copy([1]) == [1]"]),
    "names without an import": ("import math\ndef f(r):\n    return math.pi * r", ["assert math.isclose(f(1), math.pi)", "assert isclose(f(1), pi)"]),
    "constant": ("LIMIT = 5\ndef f(a):\n    return a < LIMIT", ["assert f(LIMIT - 1) and not f(LIMIT)"]),
    "coroutine": ("async def f(a):\n    return a", ["import asyncio\nassert asyncio.run(f(1)) == 1"]),
    "object of a library": ("import re\ndef f(a):\n    return re.match('a', a)", ["assert f('abc') and f('x') is None", "assert f('a').group() == 'a'"]),
    "noise": ("print('noise')\ndef f(a):\n    print('noise' * 10**6)\n    return a", ["assert f(1) == 1", "print('x')\nassert f(1) == 1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_of_every_shape_pass(name):
    code, tests = RIGHT[name]
    for test in tests:
        assert passes(code, mbpp(test)), test
        assert not passes(
            code.replace("return", "return 99,").replace("yield", "yield 99;yield"),
            mbpp(f"{test}\nassert False"),
        )


def test_results_of_numpy():
    pytest.importorskip("numpy")
    code = "import numpy as np\ndef f(a):\n    return np.array(a) * 2\ndef g(a):\n    return np.mean(a)\ndef h():\n    return np.bool_(True)"
    assert passes(
        code, mbpp("assert list(f([1, 2])) == [2, 4]", "assert g([1, 2]) == 1.5", "assert h() is True")
    )
    check = "import numpy as np\nassert np.allclose(candidate(np.arange(3)), [0, 2, 4])"
    assert passes("def f(a):\n    return [2 * x for x in a]", human_eval(check))


LIST = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
    def same(self, other):
        return [*self] == [*other]
    def __iter__(self):
        node = self
        while node is not None:
            yield node.val
            node = node.next

def chain(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

"""
TURN = """
class Solution:
    def turn(self, head):
        last = None
        while head:
            head.next, last, head = last, head, head.next
        return last
"""


def test_objects_of_a_class_of_the_task_are_values():
    tests = human_eval(
        "assert candidate(head=chain([*range(2000)])).same(chain([*range(1999, -1, -1)]))",
        LIST,
        "Solution().turn",
    )
    assert passes(TURN, tests)
    assert not passes(TURN.replace("return last", "return head"), tests)
    assert not passes(f"{TURN.replace('return last', 'return last.next')}", tests)
    lies = "\nclass Liar(ListNode):\n    def same(self, other):\n        return True\n"
    assert not passes(f"{lies}{TURN.replace('return last', 'return Liar()')}", tests)
    hides = TURN.replace(
        "return last", "last.same = lambda other: True\n        last.val = -1\n        return last"
    )
    assert not passes(hides, tests)


def test_a_value_of_a_named_tuple_is_no_method():
    code = (
        "from collections import namedtuple\nP = namedtuple('P', 'count x')\ndef f(a):\n    return P({}, 1)"
    )
    assert not passes(code.format("lambda value: True"), mbpp("assert f(1).count(3)"))
    assert passes(code.format("5"), mbpp("assert f(1).count == 5 and f(1).x == 1"))


def test_the_import_of_a_test_is_known_to_the_program():
    assert passes(
        "def f(a):\n    return math.floor(a)", mbpp("assert f(1.5) == 1", test_imports=["import math"])
    )


def test_a_test_that_catches_everything_does_not_pass_a_program_that_ended():
    test = "try:\n    f(1)\nexcept:\n    pass\nelse:\n    assert False"
    assert passes("def f(a):\n    raise ValueError", mbpp(test))
    assert not passes("import os\ndef f(a):\n    os._exit(0)", mbpp(test))
    assert not passes("import os\ndef f(a):\n    os.close(3)\n    os.closerange(3, 99)", mbpp(test))


def test_a_program_cannot_keep_a_test_busy():
    code = "import itertools\ndef f(a):\n    return itertools.repeat(1)"
    assert run_tests(code, mbpp("assert 3 in f(1)")).hint == "Test 1 of 1 failed: the program ran too long."


def test_hints_say_how_a_program_failed():
    for code, hint in (
        ("def f(a):\n    return 0", "the program raised AssertionError"),
        ("def f(a):\n    return 1 / 0", "the program raised ZeroDivisionError"),
        ("def f(", "the program raised SyntaxError"),
        ("def g(a):\n    return 0", "the program raised NameError"),
        ("import os\nos._exit(0)", "the program failed"),
        ("while True: pass", "the program ran too long"),
    ):
        limits = _programs.program_limits(1)
        assert run_tests(code, WRONG["one"], limits=limits).hint == f"Test 1 of 1 failed: {hint}."
