from __future__ import annotations

import pytest

from gem_core.errors import ConfigError, UnknownEnv
from gem_lab.eval import EvalConfig

EASY = "game:GuessTheNumber-v0-easy"


def test_what_a_model_is(tmp_path):
    def kind(model, **options):
        config = EvalConfig(model, [EASY], **options)
        return config.kind, config.name

    assert kind("random") == ("random", "random")
    assert kind("oracle") == ("oracle", "oracle")
    assert kind(str(tmp_path)) == ("hf", str(tmp_path))
    assert kind(str(tmp_path), base_url="http://here/v1") == ("endpoint", str(tmp_path))
    assert kind("hf:some/where") == ("hf", "some/where")
    assert kind("vllm:some/where") == ("vllm", "some/where")
    assert kind("qwen2.5:7b") == ("endpoint", "qwen2.5:7b")
    assert kind("endpoint:random") == ("endpoint", "random")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": []}, "at least one environment"),
        ({"env": EASY}, "expected a list"),
        ({"env": [EASY, EASY]}, "listed twice"),
        ({"env": [f"{EASY}=2"]}, "omit the weights"),
        ({"episodes": 0}, "episodes=0: expected a whole number from 1 to 1000000"),
        ({"episodes": 1.5}, "episodes=1.5: expected a whole number"),
        ({"episodes": 2_000_000}, "episodes=2000000: expected a whole number from 1 to 1000000"),
        ({"group_size": True}, "group_size=True: expected a whole number"),
        ({"seed": -1}, "seed=-1: expected"),
        ({"temperature": -0.1}, "temperature=-0.1: expected a number of at least 0"),
        ({"temperature": float("nan")}, "temperature=nan: expected a finite number of at least 0"),
        ({"top_p": 0}, "top_p=0: expected a number above 0 and up to 1"),
        ({"timeout": 0}, "timeout=0: expected a number above 0"),
        ({"give_up_after": 120}, "give_up_after=120: expected more than timeout=120 seconds"),
        ({"timeout": 600, "give_up_after": 300}, "give_up_after=300: expected more than timeout=600"),
        ({"give_up_after": 0}, "give_up_after=0: expected a number above 0"),
        ({"on_length_cut": "maybe"}, "on_length_cut="),
        ({"max_total_tokens": 100}, "max_total_tokens is for a model in a folder"),
        ({"model": "random", "extra_body": {"a": 1}}, "extra_body is for a model at an endpoint"),
        ({"template_kwargs": {"a": 1}}, "template_kwargs is for a model in a folder"),
        ({"model": "hf:folder", "harness": "pi", "context": "template"}, "pi' needs context='append'"),
        ({"model": "hf:folder", "temperature": 0}, "temperature=0: expected a number above 0"),
    ],
)
def test_values_that_cannot_be_honored(options, message):
    with pytest.raises(ConfigError, match=message):
        EvalConfig(**{"model": "a-model", "env": [EASY], **options})


@pytest.mark.parametrize("timeout", [5.0, 120.0, 3600.0])
def test_a_request_may_take_its_time_before_the_endpoint_counts_as_down(timeout):
    assert EvalConfig("a-model", [EASY], timeout=timeout).patience == timeout + 60
    assert EvalConfig("a-model", [EASY], timeout=timeout, give_up_after=timeout + 1).patience == timeout + 1


def test_an_unknown_environment():
    with pytest.raises(UnknownEnv, match="GuessTheNumber-v0"):
        EvalConfig("random", ["game:GuessTheNumbr-v0"])


def test_the_identity_consists_of_what_determines_the_results():
    one = EvalConfig("m", [EASY], api_key="secret", concurrency=4, price_in=1.0, out="a")
    same = EvalConfig("m", [f" {EASY} "], concurrency=9, timeout=3.0, out="b")
    assert one.identity() == same.identity()
    moved = EvalConfig("m", [EASY], base_url="http://127.0.0.1:8001/v1")
    assert moved.differences({**one.identity(), "base_url": "http://127.0.0.1:8000/v1"}) == []
    assert "secret" not in repr(one) + repr(one.identity())
    other = EvalConfig("m", [EASY], seed=5, temperature=0.5)
    assert other.differences(one.identity()) == ["seed: 0 then, 5 now", "temperature: 1.0 then, 0.5 now"]
