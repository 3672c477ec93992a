"""The step that all trainers take for the comparison: tasks, scripted answers, and gem_core's results.

The first test session creates everything in the shared folder (`tests.trainers.shared`); the others reuse it.
Their records are in its folder ``records``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gem_core
from gem_chat import AppendContext
from gem_chat._template_context import TemplateContext
from gem_core import Env
from gem_core._util.files import write_atomically
from gem_core.advantages import rebn
from gem_core.rollout import Context, Episode, EpisodeLimits, Generation, Policy, run_episode
from gem_core.tasks import EnvChoice, TaskRow, make_tasks
from gem_lab.consistency import Played, Record
from tests.trainers.shared import shared_folder
from tests.trainers.spies import gem_script, gem_trouble

TOOL = "math:FileArithmetic-v0-python"
SOURCES = ("game:GuessTheNumber-v0-easy", "game:Minesweeper-v0-easy(num_mines=5)=2", "test:Raises", TOOL)
TASKS = 8
SAMPLES = 2
SEED = 21
GAMMA = 0.9
MAX_TURNS = 4
TOKENS_PER_TURN = 24
TOKENS = 320
"""Maximum number of tokens of an episode, including prompt and observations."""

NOTE = "<|system|>later<|end|>"
REWRITING = (
    "{{ '" + NOTE + "' if messages | length > 3 }}"
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{{ '<|assistant|>' if add_generation_prompt }}"
)
"""Chat template of the same step with several rows per episode: once the history has two turns, each prompt
begins with a note, so the third turn begins another row. So does each turn after a response that the template
writes with other tokens than were sampled."""

Script: TypeAlias = dict[str, list[gem_script.Answer]]
"""Maps a prompt to its answers, in the order of the requests."""

Kind: TypeAlias = str
"""Kind of a scripted response: "oracle", "random", "spelled" (a random move in more tokens than the tokenizer
would use), "nonsense", "empty" (only the end-of-turn token), "cut" (no end before the limit), "long" (a
random move after words that use up the limit) or "tool" (a call of the Python tool)."""

PROGRAMS: list[list[Kind]] = [
    ["oracle"], ["spelled"],
    ["nonsense", "oracle"], ["empty", "random"],
    ["cut", "oracle"], ["random", "cut", "empty", "random"],
    ["long"], ["random", "nonsense"],
]  # fmt: skip
"""Kind of each turn; the last one repeats. The samples of a task use the programs in order, then start over.
The first turns of two samples differ, so that a row of one turn can be identified by its tokens."""
TOOL_PROGRAMS: list[list[Kind]] = [["tool", "oracle"], ["random"]]
"""Programs for tasks with the tool; the best player answers after calling it."""


@dataclass
class Scenario:
    """Paths of the scenario's files."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def script(self) -> Path:
        return self.folder / "script.json"

    @property
    def rows_script(self) -> Path:
        """The script of the step with several rows per episode."""
        return self.folder / "script-rows.json"

    @property
    def rows_template(self) -> Path:
        """File with `REWRITING`."""
        return self.folder / "rows.jinja"

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def version(self) -> Path:
        return self.folder / "scenario.sha256"

    def model_hash(self) -> str:
        return str(json.loads((self.model / "gem_tiny.json").read_text())["sha256"])

    def core(self, name: str = "core") -> Record:
        """Return gem_core's record of the step.

        Args:
            name: "core", or "core-rows" for several rows per episode; "-without-budget" at the end for no
                limit on an episode's tokens.
        """
        return Record.read(self.records / f"{name}.json")


def tasks() -> list[TaskRow]:
    """Return one row per task."""
    register()
    return list(make_tasks([EnvChoice.parse(text) for text in SOURCES], TASKS, seed=SEED))


def register() -> None:
    """Register the test environments and wrappers; trainers find them by entry points."""
    gem_trouble.register()
    gem_script.register()


def scenario() -> Scenario:
    """Return the scenario; make it if it is missing or was made by another version of this file."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    with shared_folder() as folder:
        made = Scenario(folder)
        if not made.version.exists() or made.version.read_text() != version:
            for old in (made.model, made.records):
                shutil.rmtree(old, ignore_errors=True)
            make(made)
            write_atomically(made.version, [version])
    return made


def make(made: Scenario) -> None:
    """Make the model, and play the tasks with gem_core, with one row per episode and with several."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gem_lab.train import TinyOptions, save_tiny

    options = TinyOptions(env=(*SOURCES[:2], TOOL), vocab_size=512, warm_start_steps=0, corpus_episodes=20)
    save_tiny(made.model, options)
    tokenizer = AutoTokenizer.from_pretrained(made.model)
    model = AutoModelForCausalLM.from_pretrained(made.model, attn_implementation="eager").float().eval()
    write_atomically(made.rows_template, [REWRITING])
    rewriting = TemplateContext(tokenizer, chat_template=REWRITING)
    record_step(made, "core", AppendContext(tokenizer), made.script, tokenizer, model)
    record_step(made, "core-rows", rewriting, made.rows_script, tokenizer, model)


def record_step(
    made: Scenario, name: str, context: Context, answers: Path, tokenizer: Any, model: Any
) -> None:
    """Play the tasks with gem_core; record the episodes as `name`, and requests and answers in a script."""
    pairs = [(task, sample) for task in tasks() for sample in range(SAMPLES)]
    asked: Script = defaultdict(list)
    unlimited = []
    for index, (task, _) in enumerate(pairs):
        env = EnvChoice.of(task).make("named")
        programs = TOOL_PROGRAMS if task["env_id"] == TOOL else PROGRAMS
        policy = Behavior(env, programs[index % len(programs)], tokenizer, model, asked)
        unlimited.append(play(env, task, policy, context, None))
    write_atomically(answers, [json.dumps(asked)])
    script = gem_script.Script(answers)
    limited = [
        play(
            EnvChoice.of(task).make("named"),
            task,
            Scripted(script),
            context,
            TOKENS,
        )
        for task, _ in pairs
    ]
    made.records.mkdir(parents=True, exist_ok=True)
    for of, episodes in ((f"{name}-without-budget", unlimited), (name, limited)):
        versions = {"gem-core": gem_core.__version__}
        played = [Played.from_episode(episode) for episode in with_advantages(episodes)]
        record = Record(of, versions, "run_episode, rebn", made.model_hash(), played)
        record.write(made.records / f"{of}.json")


def play(env: Env, task: TaskRow, policy: Policy, context: Context, tokens: int | None) -> Episode:
    """Play one episode of at most `tokens` tokens."""
    return asyncio.run(
        run_episode(
            env,
            policy,
            context,
            seed=task["seed"],
            limits=EpisodeLimits(max_turns=MAX_TURNS, max_tokens_per_turn=TOKENS_PER_TURN),
            max_total_tokens=tokens,
            metadata={"group": task["index"]},
        )
    )


def with_advantages(episodes: list[Episode]) -> list[Episode]:
    """Return the episodes with ReBN advantages of the whole batch in their turns."""
    trainable = [episode for episode in episodes if episode.trainable]
    credit = rebn([episode.rewards for episode in trainable], gamma=GAMMA)
    for episode, turn_advantages in zip(trainable, credit, strict=True):
        for turn, advantage in zip(episode.turns, turn_advantages, strict=True):
            turn.advantage = float(advantage)
    return episodes


class Scripted:
    """A `gem_core.rollout.Policy` that answers from a script."""

    def __init__(self, script: gem_script.Script) -> None:
        self._script = script

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        answer = self._script.answer(list(prompt_ids), max_tokens)
        return Generation(
            answer.token_ids, answer.logprobs, "stop" if answer.finish_reason == "stop" else "length"
        )


class Behavior:
    """A policy that follows a program; it reads the environment to play well or legally.

    It records requests and answers in `asked`, with log-probs of the model.
    """

    def __init__(self, env: Env, program: Sequence[Kind], tokenizer: Any, model: Any, asked: Script) -> None:
        self._env = env
        self._kinds = iter([*program, *[program[-1]] * MAX_TURNS])
        self._tokenizer = tokenizer
        self._model = model
        self._asked = asked
        self._end = tokenizer.convert_tokens_to_ids("<|end|>")

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        ids = self._ids(next(self._kinds))
        cut = len(ids) > max_tokens
        ids = ids[:max_tokens]
        answer = gem_script.Answer(ids, self._logprobs(list(prompt_ids), ids), "length" if cut else "stop")
        self._asked[gem_script.prompt_key(list(prompt_ids))].append(answer)
        return Generation(ids, answer.logprobs, "length" if cut else "stop")

    def _ids(self, kind: Kind) -> list[int]:
        words = {"nonsense": "I do not know.", "empty": "", "cut": "", "long": ""}
        words["tool"] = "<python>print(7)</python>"
        if kind == "oracle":
            text = self._env.oracle_action() or self._env.sample_random_action()
        elif kind in words:
            text = words[kind]
        else:
            text = self._env.sample_random_action()
        filler = self._encode(" z") * TOKENS_PER_TURN
        if kind == "spelled":
            return [*(token for character in text for token in self._encode(character)), self._end]
        if kind == "cut":
            return [*filler, self._end]
        if kind == "long":
            move = self._encode(self._env.sample_random_action())
            return [*filler[: TOKENS_PER_TURN - 1 - len(move)], *move, self._end]
        return [*self._encode(text), self._end]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _logprobs(self, prompt: list[int], response: list[int]) -> list[float]:
        import torch

        with torch.no_grad():
            logits = self._model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        chosen = torch.tensor(response)[:, None]
        found: list[float] = logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()
        return found
