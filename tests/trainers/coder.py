"""A small coding agent: a program that may ask for a title, then runs commands until it submits.

It runs as a process of its own, knows an address, and has nothing but Python's standard library. Its shell is
that of the environment, which gives each command its reward.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

TITLE = "Name this task in three words."
RULES = "You are a coding agent. Answer with one block of bash, and with submit when the tests will pass."


def post(url: str, body: dict[str, Any]) -> Any:
    """Return the answer to a request; None if the episode is over."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        return None


def ask(messages: list[dict[str, str]]) -> str | None:
    """Return what the model says."""
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "m", "messages": messages})
    return None if answer is None else str(answer["choices"][0]["message"]["content"])


def main() -> None:
    """Work on the task of the standard input."""
    task = sys.stdin.read()
    if "--title" in sys.argv:
        ask([{"role": "user", "content": TITLE}])
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": task}]
    while (said := ask(messages)) is not None:
        step = post(os.environ["GEM_STEP_URL"], {"action": said})
        if step is None or step["done"]:
            return
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": step["observation"]},
        ]


if __name__ == "__main__":
    main()
else:
    from gem_agents import Command

    CODER = Command([sys.executable, os.path.abspath(__file__)], stdin="{prompt}", folder=False)
    CODER_WITH_TITLE = Command([*CODER.command, "--title"], stdin="{prompt}", folder=False)
