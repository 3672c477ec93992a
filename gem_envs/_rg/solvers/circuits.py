"""Solver of logic circuits, read from their drawing."""

from __future__ import annotations

import re
from collections.abc import Callable

from gem_envs._rg.solvers.reading import UnknownPrompt, find

_INPUT = re.compile(r"│(&&|↑↑|⊕⊕|\+\+|↓↓)")
"""An input of a gate: its edge and its symbol."""
_VALUES: dict[str, Callable[[list[bool]], bool]] = {
    "AND": all,
    "OR": any,
    "NAND": lambda inputs: not all(inputs),
    "NOR": lambda inputs: not any(inputs),
    "XOR": lambda inputs: sum(inputs) % 2 == 1,
}


def solve_circuit_logic(prompt: str) -> str:
    """Follow the wires from the gates to the left; all gates, and wires without a gate, feed the last one."""
    names = dict(re.findall(r"^(\S\S): ([A-Z]+)$", prompt, re.MULTILINE))
    inputs = {name: value == "1" for name, value in re.findall(r"^  (\w+) = ([01])$", prompt, re.MULTILINE)}
    lines = find(r"circuit\.\n\n(.*?)\n\s*\nLegend", prompt)[1].splitlines()
    marks = [{match.start(): match[1] for match in _INPUT.finditer(line)} for line in lines]
    first = lines[0].index("┐") + 5  # the column of the gates that the wires reach first
    gates: list[tuple[str, list[bool]]] = []
    passed: list[bool] = []
    last: list[str] = []
    in_gate = False
    for row, symbols in enumerate(marks):
        if lines[row][first : first + 1] == "─":
            passed.append(_traced(lines, row, first, inputs))
        if first in symbols:
            if not in_gate:
                gates.append((symbols[first], []))
            gates[-1][1].append(_traced(lines, row, first - 1, inputs))
        in_gate = symbols.pop(first, None) is not None
        last += symbols.values()
    values = passed + [_VALUES[names[symbol]](values) for symbol, values in gates]
    if not last and len(values) == 1:
        return str(int(values[0]))
    if len(last) != len(values) or len(set(last)) != 1:
        raise UnknownPrompt(f"{len(values)} wires, but {len(last)} inputs of the last gate")
    return str(int(_VALUES[names[last[0]]](values)))


def _traced(lines: list[str], row: int, column: int, inputs: dict[str, bool]) -> bool:
    """Return the value of the wire that ends at a place; where wires cross, the horizontal one is drawn."""
    negated = False
    while lines[row][column] in "─>o":
        negated ^= lines[row][column] == "o"
        column -= 1
    if lines[row][column] not in "├└":
        raise UnknownPrompt(f"a wire begins with {lines[row][column]!r}")
    while lines[row][column] != "┐":
        row -= 1
        if row < 0 or lines[row][column] not in "│├─┐":
            raise UnknownPrompt("a wire ends in nothing")
    return inputs[lines[row].split(":")[0]] != negated
