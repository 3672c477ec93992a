"""Solvers of tasks on squares and cubes: distances, boxes moved by agents, and a cube that is turned."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from typing import Any

from gem_envs._rg.solvers.reading import UnknownPrompt, find, grid

Place = tuple[float, float]


def solve_binary_matrix(prompt: str) -> str | None:
    """Let the zeros grow by one step at a time; None if there is no zero."""
    cells = grid(prompt.partition("matrix below:")[2])
    distances = {(r, c): 0 for r, row in enumerate(cells) for c, value in enumerate(row) if value == 0}
    front, steps = set(distances), 0
    while front:
        steps += 1
        near = {(r + dr, c + dc) for r, c in front for dr, dc in ((0, 1), (0, -1), (1, 0), (-1, 0))}
        front = {(r, c) for r, c in near - distances.keys() if 0 <= r < len(cells) and 0 <= c < len(cells[r])}
        distances |= dict.fromkeys(front, steps)
    if not distances:
        return None
    return "\n".join(" ".join(str(distances[r, c]) for c in range(len(row))) for r, row in enumerate(cells))


_AGENT = re.compile(
    r"^(?:.*: )?Agent\[([\d.]+), ([\d.]+)\]: I am in .*, I can observe (\[.*\]), I can do", re.MULTILINE
)
_NAME = re.compile(r"Agent\[([\d.]+), ([\d.]+)\]")
_MOVE = re.compile(r"move\(box_(\w+), (?:target_(\w+)|square\[([\d.]+), ([\d.]+)\])\)")


def judge_boxnet(prompt: str, answer: str) -> bool:
    """Let the agents act until all boxes are on their targets; every act until then must be possible.

    The agents of a step act in the order in which they are listed. The number of steps does not matter,
    because the prompt asks for few without a limit.
    """
    squares = _squares(prompt)
    boxes = sum(number for things in squares.values() for thing, number in things.items() if thing[0] == "b")
    plan = json.loads(answer, object_pairs_hook=_distinct)
    if not isinstance(plan, list) or not all(isinstance(step, dict) for step in plan):
        return False
    for agent, act in (pair for step in plan for pair in step.items()):
        place, move = _NAME.fullmatch(agent), _MOVE.fullmatch(act)
        if place is None or move is None:
            return False
        here, box = (float(place[1]), float(place[2])), f"box_{move[1]}"
        if here not in squares or not squares[here][box]:
            return False
        squares[here][box] -= 1
        if move[2]:
            if move[2] != move[1] or not squares[here][f"target_{move[2]}"]:
                return False
            squares[here][f"target_{move[2]}"] -= 1
            boxes -= 1
            if not boxes:
                return True
            continue
        there = float(move[3]), float(move[4])
        if there not in squares or abs(here[0] - there[0]) + abs(here[1] - there[1]) != 1:
            return False
        squares[there][box] += 1
    return False


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
        ValueError: It names an agent twice.
    """
    if len(dict(pairs)) < len(pairs):
        raise ValueError("an agent acts twice")
    return dict(pairs)


def _squares(prompt: str) -> dict[Place, Counter[str]]:
    squares = {
        (float(r), float(c)): Counter(ast.literal_eval(things)) for r, c, things in _AGENT.findall(prompt)
    }
    if not squares:
        raise UnknownPrompt(f"no agents in {prompt[:200]!r}")
    return squares


def box_plan(prompt: str) -> str:
    """Return a plan that brings one box after the other to a target, in JSON."""
    squares, plan = _squares(prompt), []
    targets = [
        (thing[7:], place)
        for place, things in squares.items()
        for thing in things.elements()
        if thing[0] == "t"
    ]
    for place, things in squares.items():
        for box in [thing[4:] for thing in things.elements() if thing[0] == "b"]:
            color, end = next(target for target in targets if target[0] == box)
            targets.remove((color, end))
            (r, c), act = place, ""
            while not act.startswith("move(box_" + box + ", target"):
                agent = f"Agent[{r}, {c}]"
                if r != end[0]:
                    r += 1 if r < end[0] else -1
                elif c != end[1]:
                    c += 1 if c < end[1] else -1
                else:
                    act = f"move(box_{box}, target_{box})"
                plan.append({agent: act or f"move(box_{box}, square[{r}, {c}])"})
    return json.dumps(plan)


_RINGS = {
    "front": ("top", "front", "bottom", "back"),
    "back": ("top", "back", "bottom", "front"),
    "left": ("top", "left", "bottom", "right"),
    "right": ("top", "right", "bottom", "left"),
}
"""Sides that a quarter turn moves; each one gets the color of the next."""
_TURN = (
    r"was before at the (\w+) is now|bring the (\w+) side|make the (\w+) face"
    r"|place its (\w+) side|Next, the (\w+) side"
)


def solve_color_cube_rotation(prompt: str) -> str | None:
    """Turn the cube; None if it matters which half turn brings the bottom to the top.

    A note says that it swaps front and back.
    """
    prompt, _, note = prompt.partition("\nA half turn")
    start = {side: color for color, side in re.findall(r"^- an? (\w+) (\w+) side$", prompt, re.MULTILINE)}
    asked = find(r"color of the (\w+) side of the cube\?", prompt)[1]
    cubes = [start]
    for match in re.finditer(_TURN, prompt):
        side = match[match.lastindex or 1]
        ways = (
            [[side]]
            if side != "bottom"
            else [["front", "front"]]
            if note
            else [["front", "front"], ["left", "left"]]
        )
        cubes = [_turned(cube, way) for cube in cubes for way in ways]
    colors = {cube[asked] for cube in cubes}
    return colors.pop() if len(colors) == 1 else None


def _turned(cube: dict[str, str], sides: list[str]) -> dict[str, str]:
    for side in sides:
        ring = _RINGS[side]
        cube = cube | {ring[i]: cube[ring[(i + 1) % 4]] for i in range(4)}
    return cube
