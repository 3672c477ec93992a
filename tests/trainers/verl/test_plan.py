"""`gem-core doctor` says what plays and rewards each row, and rejects rows that nothing plays or rewards."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gem_verl._options import MANAGER
from gem_verl._preflight import check, check_composed
from omegaconf import OmegaConf

from gem_core.trainers import Plan
from gem_core.trainers._plan import SourceRows
from gem_lab import main
from tests.trainers.verl.configs import verl_config
from tests.trainers.verl.mixes import question, write

GUESS = "game:GuessTheNumber-v0-easy"
DATASET = ["data.custom_cls.path=pkg://gem_verl.dataset", "data.custom_cls.name=GemDataset"]
GRPO = "algorithm.adv_estimator=gem_grpo"
SYNC, MANAGED = "trainer.v1.trainer_mode=gem_sync", f"+{MANAGER}=gem_verl.GemAgentLoopManager"
USER = [
    "data.train_batch_size=8",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
    "trainer.n_gpus_per_node=1",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files of questions and of a game."""
    monkeypatch.chdir(tmp_path)
    write("pandas", [question(n) for n in range(16)], tmp_path, "train")
    write("datasets", [question(n, "test") for n in range(8)], tmp_path, "test")
    assert main(["export", "--to", "verl", "--env", GUESS, "--num", "4", "--out", "game.parquet"]) == 0
    return tmp_path


def plan_of(*words: str, train: str = "train.parquet", val: str = "test.parquet") -> Plan:
    config = verl_config(*USER, f"data.train_files=[{train}]", f"data.val_files=[{val}]", *words)
    # `OmegaConf.resolve` does the same, and would take a fifth of the time of this file.
    return check_composed(OmegaConf.create(OmegaConf.to_container(config, resolve=True)))


def rejection_of(*words: str, **files: str) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  verl's own errors have any type
        plan_of(*words, **files)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_the_plan_says_what_plays_and_rewards_each_row(folder: Path) -> None:
    plan = plan_of(
        *DATASET, SYNC, GRPO, "+gem.max_turns=12", "+gem.max_tokens_per_turn=320",
        train=f"train.parquet,game.parquet,'{GUESS}=0.2'", val=f"test.parquet,'{GUESS}'",
    )  # fmt: skip
    score = "verl's score of this data_source"
    assert plan.sources == [
        SourceRows("train", "openai/gsm8k", "single_turn_agent", score, 16),
        SourceRows("train", GUESS, "gem", "the environment", 4 + 4),
        SourceRows("eval", "openai/gsm8k", "single_turn_agent", score, 8),
        SourceRows("eval", GUESS, "gem", "the environment", 256),
    ]
    assert plan.estimator == "gem_grpo(gamma=1.0), compares the episodes of a task"
    assert plan.budget == [
        "an episode has 12 turns of at most 320 sampled tokens, 3,840 in all, but it is cut at "
        "data.max_response_length=1,024 tokens, observations included (agent loop gem)",
        "a response of another agent loop has at most data.max_response_length=1,024 tokens",
        "prompts of files with more than data.max_prompt_length=512 tokens lose their first tokens",
    ]
    assert plan.notes == []


def test_questions_alone_need_nothing_of_gem_core(folder: Path) -> None:
    plan = plan_of("algorithm.adv_estimator=grpo", "data.filter_overlong_prompts=True")
    assert [source.player for source in plan.sources] == ["single_turn_agent"] * 2
    assert plan.estimator == "verl's own grpo"
    assert plan.budget[-1].endswith("are left out of the data")


GAMES = f"'{GUESS}'"
FILES = "train.parquet,game.parquet"


TRAIN, MIX = "train.parquet", f"train.parquet,{GAMES}"
OWN_SYNC, AGENT = "trainer.v1.trainer_mode=sync", "actor_rollout_ref.rollout.agent"
NO_PLAYER = {
    "a game in verl's mode": ([*DATASET, OWN_SYNC], GAMES, "gem needs GEM's manager; .*gem_sync"),
    "a mix in verl's mode": (
        [*DATASET, OWN_SYNC], MIX, "verl plays rows that name no agent loop only if"
    ),
    "a game's file in verl's mode": ([OWN_SYNC], "game.parquet", "nothing plays 4 train rows of game"),
    "an asynchronous mode": (
        [*DATASET, "trainer.v1.trainer_mode=colocate_async"], GAMES, "trainer_mode=gem_colocate_async"
    ),
    "another manager": (
        [SYNC, f"+{MANAGER}=verl.trainer.ppo.v1.AgentLoopManagerTQ"], "game.parquet", "needs GEM's manager"
    ),
    "no manager": ([SYNC, f"+{MANAGER}=nowhere.Manager"], TRAIN, "nowhere"),
    "a misspelled agent loop": (
        [SYNC], "agent.parquet", "nothing plays 2 train rows of openai/gsm8k: .*'single_turn_agnet'"
    ),
    "a misspelled default": (
        [SYNC, f"{AGENT}.default_agent_loop=tool_agnt"], TRAIN, "'tool_agnt'. Did you mean tool_agent"
    ),
    "no agent loops": ([SYNC, f"{AGENT}.agent_loop_config_path=no.yaml"], TRAIN, "no.yaml"),
    "no class": ([SYNC, f"{AGENT}.agent_loop_config_path=bad.yaml"], TRAIN, "bad.yaml: .*nowhere"),
    "no tools": (
        [SYNC, "actor_rollout_ref.rollout.multi_turn.function_tool_path=no.py"], TRAIN, "no.py"
    ),
    "no default": ([SYNC, f"{AGENT}.default_agent_loop=null"], TRAIN, "unknown agent loop 'None'"),
    "questions for the games' loop": (
        [SYNC, f"{AGENT}.default_agent_loop=gem"], TRAIN, "env_id is missing; .*name another agent loop"
    ),
    "a text as prompt": ([SYNC], "text.parquet", "16 train rows .*prompt='What is .*: expected a list of"),
    "some rows without a prompt": (
        [*DATASET, SYNC], f"promptless.parquet,{GAMES}", "nothing plays 8 train rows .*prompt=None"
    ),
    "texts as messages": ([SYNC], "texts.parquet", r"prompt=\['What is"),
    "no message": ([SYNC], "silent.parquet", r"prompt=\[\]: expected a list of messages"),
    "a text as extra_info": ([SYNC], "extra.parquet", "extra_info='.*: expected names and values"),
}  # fmt: skip
OWN_REWARD = "reward.custom_reward_function"
NO_REWARD = {
    "an unknown source": (
        [SYNC], "mine.parquet", "nothing rewards 2 train rows of my/math: .*data_source='my/math'"
    ),
    "no source": ([SYNC], "unsourced.parquet", "nothing rewards 2 train rows .* naive reads data_source"),
    "no truth": ([SYNC], "truthless.parquet", "naive reads reward_model.ground_truth"),
    "some rows without a truth": ([SYNC], "half.parquet", "nothing rewards 8 train rows of openai/gsm8k"),
    "a truth that is None": ([SYNC], "unknown.parquet", "nothing rewards 16 train rows .*ground_truth"),
    "another signature": (
        [SYNC, f"{OWN_REWARD}.path=narrow.py"], TRAIN, "verl calls it with data_source, .*required argument"
    ),
    "no such keyword": (
        [SYNC, f"{OWN_REWARD}.path=wide.py", f"+{OWN_REWARD}.reward_kwargs.scale=2"], TRAIN, "'scale'"
    ),
    "no function but a number": ([SYNC, f"{OWN_REWARD}.path=number.py"], TRAIN, "is not a callable"),
    "another source column": ([SYNC, "data.reward_fn_key=source"], TRAIN, "reads the column data_source"),
    "no function": ([SYNC, "reward.custom_reward_function.path=no.py"], TRAIN, "no.py"),
    "the old section": (
        [SYNC, "custom_reward_function.path=reward.py"], TRAIN, "write reward.custom_reward"
    ),
    "the old model": ([SYNC, "reward_model.enable=True"], TRAIN, "write reward.reward_model"),
    "an old manager": ([SYNC, "reward.reward_manager.name=prime"], TRAIN, "prime"),
}  # fmt: skip
NO_ROWS = {
    "other types": ([SYNC], "train.parquet,game.parquet", "cannot join these files, .* differ .*GemDataset"),
    "no prompts": (
        [SYNC, "data.prompt_key=question", *DATASET], MIX, "data.prompt_key=question"
    ),
    "a game for verl's dataset": ([SYNC], MIX, "Unsupported file .*GemDataset reads environments"),
    "no file": ([SYNC, *DATASET], f"trian.parquet,{GAMES}", "trian.parquet"),
}  # fmt: skip
FILTER = ["algorithm.filter_groups.enable=True", *DATASET, SYNC]
METRIC = "algorithm.filter_groups.metric"
NO_BATCH = {
    "a batch of more rows than there are": (
        [SYNC, "data.train_batch_size=24"], TRAIN, "train_batch_size=24: there are 16 rows to train on"
    ),
    "a filter by a metric of questions": ([*FILTER, f"{METRIC}=acc"], MIX, "acc: the agent loop gem reports"),
    "a filter by a metric of games": (
        [*FILTER, f"{METRIC}=gem/return"], MIX, "return: the agent loop single_turn_agent reports"
    ),
    "a filter without a metric": ([*FILTER, f"{METRIC}=null"], TRAIN, "filter_groups.metric must be set"),
    "a filter by an unknown metric": ([*FILTER, f"{METRIC}=gem/retrun"], GAMES, "the agent loop gem reports"),
}  # fmt: skip
SEPARATE = "trainer.v1.trainer_mode=gem_separate_async"
NO_RUN = {
    "updates that do not make a step": ([SEPARATE], TRAIN, "train_batch_size must equal parameter_sync_step"),
    "no sampler": (
        [SYNC, "trainer.v1.sampler.custom_sampler={path: no.py, name: Mine}"], TRAIN, "no.py"
    ),
    "no model": ([SYNC, "actor_rollout_ref.model.path=./no"], TRAIN, "path=./no: there is no such folder"),
}  # fmt: skip
PLANTED = {**NO_RUN, **NO_PLAYER, **NO_REWARD, **NO_ROWS, **NO_BATCH}
BROKEN: dict[str, Callable[[int], dict[str, Any]]] = {
    "text": lambda n: {"prompt": f"What is {n} + {n}?"},
    "promptless": lambda n: {"prompt": None} if n % 2 else {},
    "texts": lambda n: {"prompt": [f"What is {n} + {n}?"]},
    "silent": lambda n: {"prompt": []},
    "extra": lambda n: {"extra_info": f'{{"index": {n}}}'},
    "half": lambda n: {"reward_model": None} if n % 2 else {},
    "unknown": lambda n: {"reward_model": {"ground_truth": None}},
}
"""Changes of the rows of a file, by its name."""


@pytest.mark.parametrize(("words", "train", "message"), PLANTED.values(), ids=PLANTED)
def test_rows_that_nothing_plays_or_rewards_are_rejected(
    folder: Path, words: list[str], train: str, message: str
) -> None:
    write("pyarrow", [question(n, agent_name="single_turn_agnet") for n in range(2)], folder, "agent")
    write("pandas", [question(n, data_source="my/math") for n in range(2)], folder, "mine")
    unsourced = {"prompt": question(1)["prompt"], "reward_model": {"ground_truth": "1"}}
    write("pandas", [unsourced] * 2, folder, "unsourced")
    write("pandas", [question(n, reward_model={"style": "rule"}) for n in range(2)], folder, "truthless")
    if (name := train.split(".")[0]) in BROKEN:
        write("pyarrow", [question(n) | BROKEN[name](n) for n in range(16)], folder, name)
    (folder / "bad.yaml").write_text("- name: mine\n  _target_: nowhere.Loop\n")
    (folder / "reward.py").write_text("def compute_score(**given):\n    return 1.0\n")
    (folder / "narrow.py").write_text("def compute_score(answer, truth):\n    return 1.0\n")
    (folder / "wide.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
    )
    (folder / "number.py").write_text("compute_score = 1\n")
    found = rejection_of(GRPO, *words, train=train)
    assert re.search(message, found), found


def test_what_a_user_adds_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward function, an agent loop of one's own, and verl's mode with GEM's manager."""
    write("pandas", [question(n, data_source="my/math", agent_name="mine") for n in range(2)], folder, "mine")
    (folder / "reward.py").write_text("def compute_score(**given):\n    return 1.0\n")
    (folder / "own_loop.py").write_text(
        "from verl.experimental.agent_loop.agent_loop import AgentLoopBase\n"
        "class Loop(AgentLoopBase):\n    async def run(self, sampling_params, **fields): ...\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    (folder / "loops.yaml").write_text("- name: mine\n  _target_: own_loop.Loop\n")
    words = [
        *DATASET,
        MANAGED,
        "algorithm.adv_estimator=grpo",
        "trainer.v1.trainer_mode=sync",
        "reward.custom_reward_function.path=reward.py",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path=loops.yaml",
    ]
    plan = plan_of(*words, train=f"train.parquet,mine.parquet,{GAMES}")
    assert {(source.source, source.player, source.reward) for source in plan.sources} == {
        ("openai/gsm8k", "single_turn_agent", "compute_score in reward.py"),
        ("my/math", "mine", "the agent loop, or else compute_score in reward.py"),
        (GUESS, "gem", "the environment"),
    }


def test_a_reward_function_may_take_rows_without_a_source(folder: Path) -> None:
    """verl passes it None, and in a mix the file of a row without the column."""
    (folder / "reward.py").write_text("def compute_score(**given):\n    return 1.0\n")
    some = [question(n) | {"data_source": None if n % 2 else "mine"} for n in range(8)]
    none = [{name: value for name, value in question(n).items() if name != "data_source"} for n in range(8)]
    write("pyarrow", some, folder, "some")
    write("pyarrow", none, folder, "none")
    words = [SYNC, GRPO, "reward.custom_reward_function.path=reward.py"]
    scorer = "single_turn_agent", "compute_score in reward.py"
    assert plan_of(*words, train="some.parquet").sources[:2] == [
        SourceRows("train", "mine", *scorer, 4),
        SourceRows("train", "the files for train without data_source", *scorer, 4),
    ]
    plan = plan_of(*DATASET, *words, train=f"none.parquet,some.parquet,{GAMES}")
    assert [source.rows for source in plan.sources if source.split == "train"] == [8, 4, 4, 16]
    for data in ([], DATASET):
        assert "reads data_source" in rejection_of(*data, *words, train="none.parquet")


def test_the_rows_of_a_dataset_of_ones_own_are_not_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class adds what verl's reward manager needs, but its rows of environments are checked."""
    (folder / "own_data.py").write_text(
        "from verl.utils.dataset.rl_dataset import RLHFDataset\n"
        "class Own(RLHFDataset):\n"
        "    def __getitem__(self, item):\n"
        "        return super().__getitem__(item) | {'data_source': 'openai/gsm8k'}\n"
    )
    own = ["data.custom_cls.path=own_data.py", "data.custom_cls.name=Own", GRPO, SYNC]
    write("pandas", [question(n, data_source="my/math") for n in range(8)], folder, "mine")
    plan = plan_of(*own, train="mine.parquet")
    assert str(plan.sources[0]) == (
        "train: 8 rows of Own, played by the agent loop that a row names, or else single_turn_agent, "
        "rewarded by the agent loop, or else verl's score of this data_source"
    )
    write("pyarrow", [{**question(1), "agent_name": "gem"}], folder, "broken")
    assert "env_id is missing" in rejection_of(*own, train="broken.parquet")


@pytest.mark.parametrize(
    ("metric", "train"), [("reward", MIX), ("gem/return", GAMES), ("acc", TRAIN), ("reward", GAMES)]
)
def test_a_filter_by_a_metric_of_all_rows_is_accepted(folder: Path, metric: str, train: str) -> None:
    assert plan_of(GRPO, *FILTER, f"{METRIC}={metric}", train=train, val=TRAIN).sources


ROLLOUT = "actor_rollout_ref.rollout"
NOTED = {
    "top_p": ([f"{ROLLOUT}.top_p=0.8"], TRAIN, "rollout.top_p=0.8: .* fewer tokens than the log-probs cover"),
    "top_k": ([f"{ROLLOUT}.top_k=20"], TRAIN, "rollout.top_k=20: .* fewer tokens than the log-probs cover"),
    "options of another estimator": (
        ["+algorithm.rebn.ddof=1"], TRAIN, "algorithm.rebn has no effect: .*gem_grpo"
    ),
    "a discount of a critic": (["algorithm.lam=0.9"], TRAIN, "algorithm.lam=0.9 has no effect: .*gem_grpo"),
    "a limit of no rows": (["data.val_max_samples=0"], TRAIN, "max_samples=0 limits nothing"),
    "options of games": (["+gem.max_turns=3"], TRAIN, "gem.max_turns has no effect: .* plays no row"),
    "a reward of questions": (
        ["reward.custom_reward_function.path=reward.py", *DATASET], GAMES, "function has no effect"
    ),
    "a weight in validation": ([*DATASET], GAMES, f"weight of {GUESS} has no effect on validation"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "train", "note"), NOTED.values(), ids=NOTED)
def test_options_with_another_effect_than_their_name_suggests_are_noted(
    folder: Path, words: list[str], train: str, note: str
) -> None:
    (folder / "reward.py").write_text("def compute_score(**given):\n    return 1.0\n")
    val = f"'{GUESS}=0.5'" if "validation" in note else GAMES if train == GAMES else "test.parquet"
    (found,) = plan_of(GRPO, SYNC, *words, train=train, val=val).notes
    assert re.search(note, found), found


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("openai/gsm8k", True),
        ("lighteval/MATH", True),
        ("math_dapo", True),
        ("aime2024", True),
        ("codecontests", True),
        ("hiyouga/geometry3k", True),
        ("searchR1_nq", True),
        ("GSM8K", False),
        ("openai/gsm8k ", False),
        ("", False),
        (GUESS, False),
    ],
)
def test_the_sources_that_verl_scores_are_known(source: str, known: bool) -> None:
    from gem_verl._plan import _score_problem

    problem = _score_problem(source)
    assert (problem is None or "ModuleNotFoundError" in problem) is known


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("date=today", "date='today': expected a day"),
        ("raw=true", "raw=True needs context='rebuild'"),
        ("chat_template=no.jinja", "no.jinja"),
    ],
)
def test_options_that_do_not_fit_the_chat_template_are_rejected(
    folder: Path, tiny: Path, option: str, message: str
) -> None:
    words = [*DATASET, SYNC, GRPO, f"actor_rollout_ref.model.path={tiny}"]
    assert plan_of(*words, train=MIX).sources
    assert message in rejection_of(*words, f"+gem.{option}", train=MIX)


CONFIG = """
hydra:
  searchpath:
    - pkg://verl.trainer.config
defaults:
  - ppo_trainer
  - _self_
data:
  train_batch_size: 8
  max_response_length: 777
  train_files: [train.parquet]
  val_files: [test.parquet]
algorithm:
  adv_estimator: rebn
  gamma: 0.9
"""


@pytest.fixture
def own_config(folder: Path) -> Path:
    (folder / "config").mkdir()
    (folder / "config" / "mine.yaml").write_text(CONFIG)
    return folder / "config"


@pytest.mark.parametrize(
    "flags",
    [
        ["--config-path={}", "--config-name=mine"],
        ["--config-path", "{}", "--config-name", "mine.yaml"],
        ["-cp", "{}", "-cn", "mine"],
        ["--config-dir={}", "--config-name=mine"],
        ["--run", "-cd", "config", "-cn", "mine"],
    ],
)
def test_the_files_of_the_command_are_read(own_config: Path, flags: list[str]) -> None:
    words = [word.format(own_config) for word in flags]
    plan = check([*words, *USER[3:], SYNC, "algorithm.gamma=0.5"])
    assert plan.estimator.startswith("rebn(gamma=0.5)")
    assert "max_response_length=777" in plan.budget[0]


def test_verls_other_config_is_read(folder: Path) -> None:
    files = ["data.train_files=train.parquet", "data.val_files=test.parquet"]
    plan = check(["--config-name=ppo_megatron_trainer", *USER, *files, "algorithm.adv_estimator=grpo"])
    assert plan.estimator == "verl's own grpo"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config-nam=mine"], "--config-nam"),
        (["--config-name=none"], "none"),
        (["--config-path=/nowhere"], "nowhere"),
        (["--config-dir=nowhere"], "--config-dir=nowhere: there is no such folder"),
        (["-m"], "--multirun does not start one run"),
        (["--multirun", "algorithm.gamma=0.9,1"], "--multirun does not start one run"),
        (["--cfg", "job"], "--cfg does not start one run"),
        (["--info"], "--info does not start one run"),
        (["--help"], "--help does not start one run"),
        (["algorithm.gama=0.9"], "gama"),
        (["--gamma=0.9"], "--gamma"),
        (["hydra.mode=MULTIRUN"], "hydra.mode=MULTIRUN does not start one run"),
        (["hydra.job.chdir=true"], "chdir=True the run starts in a new folder, so write absolute paths"),
        (["trainer.experiment_name=${now:%H}"], "Unsupported interpolation type now; the process of the run"),
        (["trainer.experiment_name=${hydra:job.name}"], "experiment_name: UnsupportedInterpolationType"),
        (["trainer.experiment_name=${oc.env:NO_SUCH}"], "experiment_name: InterpolationResolutionError"),
        (["trainer.experiment_name=${data.name}"], "Interpolation key 'data.name' not found"),
        ([f"++data.train_files=[train.parquet,{GUESS}=0.2]"], "; quote entries of a list that contain ="),
    ],
)
def test_words_that_do_not_start_one_run_are_rejected(folder: Path, words: list[str], message: str) -> None:
    files = ["data.train_files=train.parquet", "data.val_files=test.parquet"]
    with pytest.raises(Exception) as caught:  # noqa: PT011
        check([*USER, *files, *words])
    assert message in str(caught.value)


def test_absolute_paths_and_variables_of_the_run_are_accepted(folder: Path) -> None:
    """Hydra starts the run in a new folder, with a variable."""
    words = ["hydra.job.chdir=true", "+hydra.job.env_set.RUN=mine", "trainer.experiment_name=${oc.env:RUN}"]
    files = [f"data.train_files={folder}/train.parquet", f"data.val_files={folder}/test.parquet"]
    assert check([*USER, *files, *words, "algorithm.adv_estimator=grpo"]).sources
    assert Path.cwd() == folder


def test_the_doctor_prints_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*USER, *DATASET, SYNC, "algorithm.adv_estimator=gem_grpo"]
    files = [f"data.train_files=['train.parquet','{GUESS}=0.25']", "data.val_files=[test.parquet]"]
    assert main(["doctor", "--trainer", "verl", "--", *words, *files]) == 0
    out = capsys.readouterr().out
    assert f"plan train: 4 rows of {GUESS}, played by gem, rewarded by the environment" in " ".join(
        out.split()
    )
