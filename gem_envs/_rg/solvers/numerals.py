"""Solvers of tasks on the digits of numbers: bases, bits, primes, and binary strings."""

from __future__ import annotations

import ast

from gem_envs._rg.solvers.reading import find

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def solve_base_conversion(prompt: str) -> str:
    """Read the number in one base and write it in the other."""
    task = find(r"convert the (\S+) number (\w+) to (\S+)", prompt)
    base, rest, digits = _base(task[3]), int(task[2], _base(task[1])), ""
    while rest or not digits:
        rest, digit = divmod(rest, base)
        digits = _DIGITS[digit] + digits
    return digits


def _base(name: str) -> int:
    named = {"binary": 2, "hexadecimal": 16}
    return named[name] if name in named else int(name.removeprefix("base-"))


def judge_bitwise_arithmetic(prompt: str, answer: str) -> bool:
    """Compare the values; the answer must be hexadecimal."""
    sign, _, digits = answer.strip().lower().rpartition("0x")
    if sign not in ("", "-", "+") or not set(digits) <= set(_DIGITS[:16]):
        return False
    right = _integer(ast.parse(prompt.strip().splitlines()[-1].strip(), mode="eval").body)
    return int(f"{sign}{digits}", 16) == right


def _integer(node: ast.expr) -> int:
    """Return the value of sums, products, and shifts of integers, which may be negative."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _integer(node.left), _integer(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.LShift):
            return left << right
        if isinstance(node.op, ast.RShift):
            return left >> right
    raise ValueError(f"not arithmetic with integers: {ast.unparse(node)}")


def solve_count_bits(prompt: str) -> str:
    """Halve the number until nothing is left, and count the odd ones."""
    rest, ones = int(find(r"of the number (\d+)\?", prompt)[1]), 0
    while rest:
        rest, bit = divmod(rest, 2)
        ones += bit
    return str(ones)


def solve_count_primes(prompt: str) -> str:
    """Cross out the multiples of all smaller numbers."""
    first, last = map(int, find(r"between (\d+) and (\d+) \(inclusive\)", prompt).groups())
    prime = bytearray(b"\0\0") + bytearray(b"\1") * last
    for index in range(2, last + 1):
        if index * index > last:
            break
        if prime[index]:
            prime[index * index : last + 1 : index] = bytes(len(range(index * index, last + 1, index)))
    return str(sum(prime[first : last + 1]))


def solve_binary_alternation(prompt: str) -> str:
    """Count the characters in the wrong place for both alternating strings; a swap mends two of them."""
    string = find(r"alternating: ([01]+)\s*$", prompt)[1]
    wrong = sum(int(character) != place % 2 for place, character in enumerate(string))
    ones, half = string.count("1"), len(string) // 2
    swaps = []
    if ones == half:  # 0 comes first
        swaps.append(wrong // 2)
    if ones == len(string) - half:
        swaps.append((len(string) - wrong) // 2)
    return str(min(swaps, default=-1))
