from __future__ import annotations

import asyncio
import json
from statistics import fmean

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

import gem_core  # noqa: E402
from gem_chat import AppendContext  # noqa: E402
from gem_core.errors import ConfigError  # noqa: E402
from gem_core.rollout import EpisodeLimits, episode_metrics, run_episode  # noqa: E402
from gem_core.tasks import EnvChoice  # noqa: E402
from gem_envs._games.guess_the_number import GuessTheNumber  # noqa: E402
from gem_envs.tools import Tools  # noqa: E402
from gem_lab._engines.sampling import BatchingPolicy  # noqa: E402
from gem_lab.train import TinyOptions, make_tiny, save_tiny  # noqa: E402
from gem_lab.train._tiny import RandomPlayer, folder_hash  # noqa: E402
from tests.train.helpers import EASY  # noqa: E402

QUICK = {"env": (EASY,), "hidden_size": 32, "layers": 1, "warm_start_steps": 2, "warm_start_tokens": 500,
         "corpus_episodes": 10}  # fmt: skip


def test_the_same_options_give_the_same_files(tmp_path):
    digests = []
    for name in ("a", "b"):
        torch.manual_seed(len(digests))  # independent of earlier random draws
        digests.append(save_tiny(tmp_path / name, TinyOptions(**QUICK)))
    assert digests[0] == digests[1] == folder_hash(tmp_path / "a")
    assert json.loads((tmp_path / "b" / "gem_tiny.json").read_text())["sha256"] == digests[0]
    assert save_tiny(tmp_path / "c", TinyOptions(**QUICK, seed=1)) != digests[0]


def test_the_steps_of_the_warm_start_are_reported():
    steps = []
    make_tiny(TinyOptions(**QUICK), steps.append)
    assert steps == [0, 1]


def test_making_a_model_leaves_torchs_random_state_and_threads_alone():
    torch.manual_seed(7)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    make_tiny(TinyOptions(**QUICK))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_no_oracle_is_called(monkeypatch):
    def forbidden(self):
        raise AssertionError("the warm start asked an oracle")

    monkeypatch.setattr(GuessTheNumber, "oracle_action", forbidden)
    make_tiny(TinyOptions(**QUICK))


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_random_play_calls_tools_with_the_probability_of_the_option(monkeypatch, probability):
    calls = []
    original = Tools.sample_random_action

    def counted(self):
        action = original(self)
        if self._may_call():
            calls.append("<python>" in action)
        return action

    monkeypatch.setattr(Tools, "sample_random_action", counted)
    files = "math:FileArithmetic-v0-python(modulus=3)"
    make_tiny(TinyOptions(**QUICK | {"env": (files,), "random_calls": probability, "corpus_episodes": 60}))
    assert len(calls) >= 60
    assert fmean(calls) == pytest.approx(
        probability, abs=4 * (0.25 / len(calls)) ** 0.5 * (0 < probability < 1)
    )


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(ConfigError, match="is not a tiny model"):
        save_tiny(tmp_path, TinyOptions(**QUICK))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_tiny_model_is_replaced_and_leaves_nothing_else(tmp_path):
    first = save_tiny(tmp_path / "a", TinyOptions(**QUICK))
    second = save_tiny(tmp_path / "a", TinyOptions(**QUICK, seed=1))
    assert folder_hash(tmp_path / "a") == second != first
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_transformers_loads_the_folder(tiny_folder):
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    assert model.config.vocab_size >= len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|user|>Hello<|end|><|assistant|>"
    out = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=3)
    assert out.shape[1] > len(tokenizer(text)["input_ids"])


def test_older_versions_of_transformers_know_what_is_in_the_tokenizers_config(tiny_folder):
    config = json.loads((tiny_folder / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert not isinstance(config.get("extra_special_tokens"), list)  # transformers 4 requires a dict here


def test_every_file_is_as_readable_as_the_folder(tiny_folder):
    readable = {bool(path.stat().st_mode & 0o044) for path in [tiny_folder, *tiny_folder.iterdir()]}
    assert len(readable) == 1


def test_text_of_the_game_survives_the_tokenizer(tokenizer):
    env = gem_core.make("game:GuessTheNumber-v0", min_number=1, max_number=3, max_turns=2)
    texts = []
    for seed in range(10):
        observation, _ = env.reset(seed=seed)
        action = env.sample_random_action()
        texts += [observation, action, env.step(action)[0]]
    texts += ["", "  two  spaces ", "\n\n", "unbalanced \\boxed{", "caf\u00e9 \U0001f600 \x00"]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert len(tokenizer.encode("\\boxed{2}", add_special_tokens=False)) == 1


def test_the_tokenizer_learns_the_text_of_an_environment_with_its_arguments():
    env_id = "game:GuessTheNumber-v0(max_number=50)"
    _, tokenizer = make_tiny(TinyOptions(**QUICK | {"env": (env_id,), "warm_start_steps": 0}))
    text, _ = EnvChoice.parse(env_id).make().reset(seed=0)
    assert "from 1 to 50" in text
    known = len(tokenizer.encode(text, add_special_tokens=False))
    assert known < 10 < len(tokenizer.encode(text.replace("50", "70"), add_special_tokens=False))


def test_the_smallest_vocabulary_has_one_token_per_byte():
    _, tokenizer = make_tiny(TinyOptions(**QUICK | {"vocab_size": 261, "warm_start_steps": 0}))
    text = "\\boxed{caf\u00e9}"
    assert len(tokenizer) == 261
    assert len(tokenizer.encode(text, add_special_tokens=False)) == len(text.encode())


def test_the_warm_started_model_knows_the_format_and_not_the_game(model, tokenizer):
    env, context = EnvChoice.parse(EASY).make(), AppendContext(tokenizer)

    def play(policy, seed):
        episode = run_episode(
            env, policy, context, seed=seed, limits=EpisodeLimits(max_tokens_per_turn=8), request_id=str(seed)
        )
        return asyncio.run(episode)

    policy = BatchingPolicy(model, eos_token_ids=[tokenizer.eos_token_id], pad_token_id=0)
    sampled = episode_metrics([play(policy, seed) for seed in range(200)])
    player = RandomPlayer(env, tokenizer, tokenizer.eos_token_id)
    chance = fmean(play(player, seed).success for seed in range(400))
    assert sampled["gem/format_error_rate"] < 0.2
    assert sampled["gem/success"] == pytest.approx(chance, abs=0.15)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": ()}, r"env=\(\): expected at least one environment id"),
        ({"hidden_size": 0}, "hidden_size=0: expected a whole number of at least 32"),
        ({"hidden_size": 48}, "hidden_size=48: expected a multiple of 32"),
        ({"layers": 0}, "layers=0: expected a whole number of at least 1"),
        ({"vocab_size": 100}, "vocab_size=100: expected a whole number of at least 261"),
        ({"warm_start_steps": -1}, "warm_start_steps=-1: expected a whole number of at least 0"),
        ({"random_calls": 1.5}, "random_calls=1.5: expected a number from 0 to 1"),
        ({"warm_start_learning_rate": 0.0}, "warm_start_learning_rate=0.0: expected a number above 0"),
    ],
)
def test_bad_options_are_rejected(changes, said):
    with pytest.raises(ConfigError, match=said):
        TinyOptions(**changes)


def test_an_environment_that_fails_at_random_play_is_named():
    with pytest.raises(ConfigError, match=r"faulty:Faulty-v0 cannot be played at random: .*nan"):
        make_tiny(TinyOptions(**QUICK | {"env": ("faulty:Faulty-v0(nan_every=1)",)}))
