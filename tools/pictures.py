"""Pictures of episodes, one for each family of environments, for the documentation.

    python tools/pictures.py                # writes docs/images/episodes
    python tools/pictures.py math terminal  # some of them

Each picture shows an episode that the environment's oracle plays; the one of multi-agent environments shows
both players, and the one of vision shows a figure. The tool requires rich, bm25s, and Pillow; the families in
`SANDBOXED` also require the namespace level of the sandbox.
"""

from __future__ import annotations

import sys
import textwrap
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from screenshot import FONTS

import gem_core
from gem_core import render_observation
from gem_core.images import image_bytes, image_urls

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "episodes"
FAMILIES = {
    "games": "game:Wordle-v0-easy",
    "math": "math:Arithmetic-v0-retry",
    "logic": "logic:Proofs-v0-d1",
    "reasoning-gym": "rg:mini_sudoku",
    "qa": "qa:MultiHop-v0-search",
    "code": "code:SmallTasks-v0-easy",
    "databases": "database:Library-v0",
    "terminal": "terminal:Files-v0",
    "webshop": "webshop:train-text_rich",
    "service": "service:Shop-v0",
}
"""Maps the name of each picture to an environment."""
AGENTS = "multi:Bargaining-v0"
VISION = "vision:Geometry-v0"
SANDBOXED = ("code", "databases", "terminal")
WIDTH, LINES, TURNS = 96, 14, 5
FEWER_LINES = {FAMILIES["webshop"]: 8}
"""Limits the lines of a text in long episodes."""


def episode(env_id: str) -> Text:
    """Return the first turns of the episode with seed 0, with long texts shortened."""
    shown, lines = Text(), FEWER_LINES.get(env_id, LINES)
    with gem_core.make(env_id) as env:
        observation, info = env.reset(seed=0)
        for turn in range(1, TURNS + 1):
            _add(shown, "environment", "bold green", render_observation(observation, info), lines)
            action = env.oracle_action()
            if action is None:
                break
            _add(shown, "model", "bold cyan", action, lines)
            observation, reward, terminated, truncated, info = env.step(action)
            shown.append(f"turn {turn}: reward {reward:+g}\n\n", "bold yellow")
            if terminated or truncated:
                shown.append("solved" if info.get("success") else "not solved", "bold")
                break
    return shown


def agents_episode() -> Text:
    """Return an episode of two players: what each one sees and answers in its turns, and what both earn."""
    shown = Text()
    env: Any
    with gem_core.make(AGENTS, opponent="self") as env:
        observations, infos = env.reset(seed=0)
        while env.agents:
            (agent,) = env.active_agents()
            name = agent.replace("_", " ")
            seen = render_observation(observations[agent], infos[agent])
            _add(shown, f"environment to {name}", "bold green", seen, LINES)
            action = env.oracle_action(agent)
            _add(shown, name, "bold cyan", action, LINES)
            observations, rewards, _, _, infos = env.step({agent: action})
            shown.append("\n")
    earned = [f"{agent.replace('_', ' ')} {reward:+g}" for agent, reward in rewards.items()]
    shown.append(f"rewards: {', '.join(earned)}", "bold yellow")
    return shown


def figure() -> bytes:
    """Return the figure of a vision task as the bytes of a PNG file."""
    with gem_core.make(VISION) as env:
        observation, _ = env.reset(seed=3)
        return image_bytes(image_urls(observation)[0])


def picture(title: str, shown: Text) -> str:
    """Return an episode as SVG."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(shown)
    return FONTS.sub("", console.export_svg(title=title))


def main(names: list[str]) -> None:
    """Write the pictures with these names; an empty list means all."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or [*FAMILIES, "multi-agent"]:
        env_id = FAMILIES.get(name, AGENTS)
        shown = episode(env_id) if name in FAMILIES else agents_episode()
        (FOLDER / f"{name}.svg").write_text(picture(env_id, shown), encoding="utf-8")
    if not names:
        (FOLDER / "vision.png").write_bytes(figure())


def _add(shown: Text, label: str, style: str, text: object, limit: int) -> None:
    lines = [
        part
        for line in str(text).strip().splitlines()
        for part in textwrap.wrap(line, WIDTH - 2, replace_whitespace=False) or [""]
    ]
    if len(lines) > limit:
        lines = [*lines[: limit - 3], "...", *lines[-2:]]
    shown.append(f"{label}\n", style)
    shown.append("\n".join(f"  {line}" for line in lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
