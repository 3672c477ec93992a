"""Solvers of tasks with many right answers: pouring water, swapping knights, and coloring a graph."""

from __future__ import annotations

import ast
import json
import re

from gem_envs._rg.solvers.reading import find

Square = tuple[int, int]
Knights = tuple[frozenset[Square], frozenset[Square]]
"""Places of the knights that move next, and of the others."""


def judge_jugs(prompt: str, answer: str) -> bool | None:
    """Make the moves, and check that a jug holds the target amount at the end."""
    sizes = {
        name: int(size) for name, size in re.findall(r"([A-Z]):(\d+)", find(r"of water: (.*)", prompt)[1])
    }
    target = int(find(r"your target is: (\d+) litres", prompt)[1])
    amounts = dict.fromkeys(sizes, 0)
    for move in json.loads(answer):
        match = re.fullmatch(r"(?:(fill|empty) ([A-Z])|pour ([A-Z])->([A-Z]))", move)
        if match is None or not {match[2], match[3], match[4]} - {None} <= sizes.keys():
            return False
        if match[1]:
            amounts[match[2]] = sizes[match[2]] if match[1] == "fill" else 0
        elif match[3] != match[4]:
            poured = min(amounts[match[3]], sizes[match[4]] - amounts[match[4]])
            amounts[match[3]] -= poured
            amounts[match[4]] += poured
    return target in amounts.values()


def judge_graph_color(prompt: str, answer: str) -> bool | None:
    """Check that every vertex has a color, and no edge has one color at both ends."""
    vertices, edges, colors = (
        ast.literal_eval(find(rf"{name}: (\[.*?\])\n", prompt)[1])
        for name in ("Vertices", "Edges", "Possible colors")
    )
    chosen = {int(vertex): color for vertex, color in json.loads(answer).items()}
    if chosen.keys() != set(vertices) or not all(
        type(color) is int and color in colors for color in chosen.values()
    ):
        return False
    return all(chosen[a] != chosen[b] for a, b in edges)


def judge_knight_swap(prompt: str, answer: str) -> bool | None:
    """Make the moves, or search all positions if the answer is that there is no way."""
    rows = re.findall(r"^(\d+) \|(.*)\|$", prompt, re.MULTILINE)
    signs = {
        (j, int(row)): cell.strip()
        for row, cells in rows
        for j, cell in enumerate(cells.split("|"))
        if cell.strip()
    }
    first = find(r"3\. ([wB]) moves first", prompt)[1]
    start = {color: frozenset(square for square in signs if signs[square] == color) for color in "wB"}
    other = "B" if first == "w" else "w"
    position = start[first], start[other]
    if answer.strip().lower() == "no":
        return not _can_swap(position, frozenset(signs))
    color = first
    for move in json.loads(answer):
        match = re.fullmatch(r"([wB]),([A-Z])(\d+),([A-Z])(\d+)", move.replace(" ", ""))
        if match is None or match[1] != color:
            return False
        here, there = ((ord(match[k]) - ord("A"), int(match[k + 1])) for k in (2, 4))
        own, others = position
        if here not in own or there not in signs or there in own | others or not _jumps(here, there):
            return False
        position = others, own - {here} | {there}
        color = "B" if color == "w" else "w"
    places = dict(zip((color, "B" if color == "w" else "w"), position, strict=True))
    return places["w"] == start["B"] and places["B"] == start["w"]


def _jumps(here: Square, there: Square) -> bool:
    return {abs(here[0] - there[0]), abs(here[1] - there[1])} == {1, 2}


def _can_swap(start: Knights, board: frozenset[Square]) -> bool:
    """Search all positions that can be reached in alternating moves."""
    jumps = {here: [there for there in board if _jumps(here, there)] for here in board}
    goals = {(start[1], start[0], True), (start[0], start[1], False)}
    front = [(*start, True)]
    seen = set(front)
    while front:
        own, others, first_moves = front.pop()
        for here in own:
            for there in jumps[here]:
                if there not in own and there not in others:
                    after = others, own - {here} | {there}, not first_moves
                    if after in goals:
                        return True
                    if after not in seen:
                        seen.add(after)
                        front.append(after)
    return False
