from __future__ import annotations

import pytest

from gem_core.errors import ConfigError, UnknownEnv
from gem_lab.train import TrainConfig


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"env": []}, ConfigError, "at least one environment"),
        ({"env": "game:Mastermind-v0"}, ConfigError, "expected a list"),
        ({"env": {"game:Mastermind-v0": 2.0}}, ConfigError, "expected a list"),
        ({"env": ["game:Mastermint-v0"]}, UnknownEnv, "game:Mastermind-v0"),
        ({"env": ["game:Mastermind-v0", "game:Mastermind-v0=2"]}, ConfigError, "listed twice"),
        ({"eval_env": ["game:Mastermind-v0", "game:Mastermind-v0=2"]}, ConfigError, "listed twice"),
        ({"eval_env": []}, ConfigError, r"eval_env=\[\]: expected a list of at least one environment"),
        ({"eval_env": ["game:Nothing-v0"]}, UnknownEnv, "unknown environment"),
        ({"env": ["game:Mastermind-v0=0"]}, ConfigError, "weight above 0"),
        ({"estimator": "rebm"}, ConfigError, "rebn"),
        ({"estimator_options": {"truncation": "all"}}, ConfigError, "'all': expected keep or mask"),
        ({"estimator": "grpo"}, ConfigError, "with group_size=1 every advantage would be 0"),
        ({"estimator": "rloo"}, ConfigError, "with group_size=1 every advantage would be 0"),
        ({"group_size": 3}, ConfigError, "episodes_per_step=512: expected a multiple of group_size=3"),
        ({"episodes_per_step": 2}, ConfigError, "minibatches=4: expected at most episodes_per_step=2"),
        ({"eval_episodes": 2_000_000}, ConfigError, "eval_episodes=2000000: expected .* from 0 to 1000000"),
        ({"steps": 0}, ConfigError, "steps=0: expected a whole number of at least 1"),
        ({"max_turns": 0}, ConfigError, "max_turns=0: expected a whole number"),
        ({"seed": -1}, ConfigError, "seed=-1: expected a whole number of at least 0"),
        ({"gamma": 1.5}, ConfigError, "gamma=1.5: expected a number from 0 to 1"),
        ({"steps": 1.5}, ConfigError, "steps=1.5: expected a whole number"),
        ({"adam_beta2": 1.0}, ConfigError, "adam_beta2=1.0: expected a number below 1"),
        ({"kl": float("nan")}, ConfigError, "kl=nan: expected a finite number of at least 0"),
        ({"temperature": 0.0}, ConfigError, "temperature=0.0: expected a number above 0"),
        ({"learning_rate": -1.0}, ConfigError, "learning_rate=-1.0: expected a number above 0"),
        ({"loss_scale": "episode"}, ConfigError, "loss_scale='episode': expected token-mean or turn-mean"),
        ({"estimator": "gae", "critic": "tree"}, ConfigError, "critic='tree': expected head or model"),
        ({"context": "forget"}, ConfigError, "context='forget': expected append, template, or rebuild"),
        ({"harness": "pi", "context": "rebuild"}, ConfigError, "harness='pi' needs context='append'"),
        ({"critic": "model"}, ConfigError, "critic has no effect, because rebn has no critic"),
        ({"critic_warmup": 3}, ConfigError, "critic_warmup has no effect, because rebn has no critic"),
        ({"on_length_cut": "drop"}, ConfigError, "on_length_cut='drop': expected"),
        ({"autocast": True, "dtype": "bfloat16"}, ConfigError, "float32, not in dtype=bfloat16"),
    ],
)  # fmt: skip
def test_a_bad_option_is_rejected_before_anything_is_loaded(changes, error, said):
    with pytest.raises(error, match=said):
        TrainConfig(**changes)


def test_the_learning_rate_fits_the_model_unless_it_is_given():
    assert TrainConfig().peak_learning_rate == 3e-3
    assert TrainConfig(model="somebody/model").peak_learning_rate == 1e-5
    assert TrainConfig(model="somebody/model", learning_rate=3e-4).peak_learning_rate == 3e-4


def test_only_options_that_change_the_result_count_as_differences():
    config = TrainConfig(learning_rate=1e-3, out="here", keep_checkpoints=3)
    recorded = TrainConfig(learning_rate=2e-3, out="there", seed=1, resume=False, curve=False).to_dict()
    assert config.differences(recorded) == ["seed", "learning_rate"]


def test_a_folder_that_cannot_be_made_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="cannot be written"):
        TrainConfig(out=str(tmp_path / "file")).prepare_folder()
    with pytest.raises(ConfigError, match="cannot be written"):
        TrainConfig(out=str(tmp_path / "file" / "below")).prepare_folder()
    assert (tmp_path / "file").read_text() == "mine"


def test_preparing_a_folder_leaves_no_probe(tmp_path):
    folder = TrainConfig(out=str(tmp_path / "a" / "b")).prepare_folder()
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
