"""Diagrams of the documentation: the packages in layers, and the messages of one episode.

python tools/diagrams.py  # writes docs/images/layers.svg and episode.svg
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
LAYERS = (
    ("plugins", "#f8ebe4", "#b0562a", (("verl, OpenRLHF, Oat, RL2, ROLL, TRL",),)),
    ("gem_lab", "#f6f3df", "#8a7a1c",
     (("cli", "repro", "exam"), ("train", "consistency", "conform", "eval"),
      ("engines", "checker", "pages"))),
    ("gem_agents", "#fbeef0", "#a3475a", (("gateway, harnesses", "endpoints", "ready"),)),
    ("gem_bridges", "#f3e9f6", "#7d4a96",
     (("gymnasium", "openenv", "pettingzoo"), ("skyrl", "textarena", "verifiers", "compat"))),
    ("gem_envs", "#e3f1ee", "#1b7f5c",
     (("games", "rg", "datasets", "generated", "geometry"),
      ("multiagent", "service", "terminal", "databases", "webshop"),
      ("tools", "graders", "data", "sandbox", "serving"))),
    ("gem_chat", "#e6edf8", "#2c5fa8", (("chat templates and contexts", "calls"),)),
    ("gem_core", "#eceff3", "#5b6470",
     (("trainers",), ("rollout", "advantages", "vector", "workers"),
      ("tasks", "multiagent", "wrappers", "tools"), ("registration", "wrapper", "observations", "images"),
      ("core", "thoughts", "spec", "errors", "util"))),
)  # fmt: skip
"""Title, fill, line, and rows of modules of each part; a part imports only from parts below it."""
LANES = ("environment", "episode runner", "policy")
MESSAGES = (
    (1, 0, "reset(seed)"),
    (0, 1, "observation"),
    (1, 1, "chat template: prompt ids"),
    (1, 2, "prompt ids"),
    (2, 1, "sampled ids, log-probs"),
    (1, 1, "record ids unchanged; decode a copy"),
    (1, 0, "step(text)"),
    (0, 1, "observation, reward, end"),
    (1, 1, "append the tokens of the reply"),
)
"""Sender, receiver, and text of the messages of the first turn."""
REPEATED = 3
"""Index of the first message of a turn."""
_FONT = 'font-family="system-ui, sans-serif" fill="#1f2933"'
_ARROW = (
    '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L10 5L0 10z" fill="#5b6470"/></marker></defs>'
)


def layers() -> str:
    """Return the diagram of the packages."""
    width, parts, y = 640, [], 20
    for title, fill, line, rows in LAYERS:
        height = 34 + 42 * len(rows)
        parts.append(_box(20, y, width - 40, height, fill, line))
        parts.append(_text(34, y + 22, title, "start", bold=True))
        for index, names in enumerate(rows):
            each = (width - 68 - 8 * (len(names) - 1)) / len(names)
            for place, name in enumerate(names):
                x, top = 34 + place * (each + 8), y + 32 + 42 * index
                parts += [
                    _box(x, top, each, 32, "#ffffff", line),
                    _text(x + each / 2, top + 21, name),
                ]
        y += height + 12
    return _svg(width, y + 8, "The packages of gem-core; each imports only from the packages below", parts)


def episode() -> str:
    """Return the diagram of an episode."""
    width, xs, parts, y = 640, (90, 320, 550), [], 104
    for x, lane in zip(xs, LANES, strict=True):
        parts += [_box(x - 75, 20, 150, 38, "#e6edf8", "#2c5fa8"), _text(x, 44, lane, bold=True)]
    for index, (sender, receiver, text) in enumerate(MESSAGES):
        if index == REPEATED:
            top = y - 28
        if sender == receiver:
            parts += [
                _box(xs[sender] - 145, y - 18, 290, 28, "#ffffff", "#9aa5b1"),
                _text(xs[sender], y + 1, text),
            ]
        else:
            step = 6 if receiver > sender else -6
            line = f"M{xs[sender] + step} {y}H{xs[receiver] - step}"
            parts.append(f'<path d="{line}" stroke="#5b6470" stroke-width="1.5" marker-end="url(#a)"/>')
            parts.append(_text((xs[sender] + xs[receiver]) / 2, y - 7, text))
        y += 44
    parts.insert(0, _box(8, top, width - 16, y - top + 10, "#f8fafc", "#cbd2d9"))
    parts.append(_text(24, y - 4, "repeated for every turn until the episode ends", "start", bold=True))
    lines = [f'<path d="M{x} 58V{y - 44}" stroke="#cbd2d9" stroke-dasharray="4 4"/>' for x in xs]
    parts = [parts[0], *lines, *parts[1:]]
    return _svg(
        width, y + 22, "Messages between environment, episode runner, and policy in one episode", parts
    )


def main() -> None:
    """Write both diagrams."""
    for draw in (layers, episode):
        (FOLDER / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")


def _svg(width: int, height: float, title: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="t">\n<title id="t">{escape(title)}</title>\n{_ARROW}\n'
        f'<rect width="{width}" height="{height}" rx="12" fill="#ffffff"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _box(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
    shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
    return f'<rect {shape} fill="{fill}" stroke="{line}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", *, bold: bool = False) -> str:
    weight = 600 if bold else 400
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {place} font-size="14" font-weight="{weight}" {_FONT}>{escape(text)}</text>'


if __name__ == "__main__":
    main()
