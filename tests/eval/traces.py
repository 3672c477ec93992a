"""Episodes for the tests of the viewer."""

from __future__ import annotations

from typing import Any

from gem_core.rollout import Episode, Turn

TEXTS = {1: "<s>", 2: "user ", 3: "seven", 4: "\\boxed{7}", 5: "é", 6: "</script>", 7: "__TURNS__"}
EVIL = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> & __TEXTS__ <!--"


def turn(reward: float = 0.0, **changes: Any) -> Turn:
    fields: dict[str, Any] = {
        "context_ids": [1, 2, 3],
        "response_ids": [4, 5],
        "logprobs": [-0.5, -1.25],
        "reward": reward,
        "observation": "Guess a number.",
        "action": "\\boxed{7}é",
        "finish_reason": "stop",
        "info": {"invalid": None},
        "advantage": None,
    }
    return Turn(**{**fields, **changes})


def episode(
    *turns: Turn, env_id: str = "game:GuessTheNumber-v0-easy", seed: int | None = 0, **changes: Any
) -> Episode:
    fields: dict[str, Any] = {"terminated": True, "truncated": False, "stop_reason": "terminated"}
    return Episode(env_id=env_id, seed=seed, turns=list(turns), **{**fields, **changes})


def several() -> list[Episode]:
    """Return four episodes: solved, cut with hostile texts, failed, and one of another environment."""
    return [
        episode(
            turn(0.0, advantage=-0.5, observation="Guess a number."),
            turn(1.0, advantage=1.5, observation="The number is higher than 5.", info={"success": True}),
            seed=10,
            metadata={"gamma": 0.5, "step": 3},
        ),
        episode(
            turn(-0.1, observation=EVIL, action="", finish_reason="length", response_ids=[5, 6, 7],
                 logprobs=None, info={"invalid": "length", "note": EVIL}),
            seed=11, terminated=False, truncated=True, stop_reason="max_turns", metadata={"group": EVIL},
        ),
        episode(seed=12, terminated=False, truncated=True, stop_reason="env_error",
                error="it broke </script>", trainable=False),
        episode(turn(0.25, observation="Find the code of Äpfel."), env_id="game:Mastermind-v0", seed=None),
    ]  # fmt: skip
