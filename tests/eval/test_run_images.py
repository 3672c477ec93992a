"""Environments with images in an evaluation: the endpoint receives them, the run and its pages keep them."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("PIL", reason="needs the extra 'vision'")

import gem_core
from gem_core._tasks import evaluation_tasks
from gem_core.images import image_part, image_urls, text_part
from gem_core.rollout import read_traces
from gem_core.tasks import EnvChoice, reset_arguments
from gem_lab import main
from gem_lab._engines.endpoint import CHARACTERS_PER_IMAGE, _characters
from gem_lab.eval import evaluate
from tests.engines.stub import StubEndpoint
from tests.eval.test_run import config
from tests.support import PIXEL

EASY = "vision:Geometry-v0-easy"


def answers(count):
    """Return the right answer by image, for the tasks of an evaluation."""
    right = {}
    for task in evaluation_tasks([EnvChoice(EASY)], count):
        env = gem_core.make(EASY, **task["env_kwargs"])
        observation, _ = env.reset(**reset_arguments(task))
        right[image_urls(observation)[0]] = env.oracle_action()
    return right


def test_an_endpoint_that_sees_the_images_solves_everything(tmp_path, monkeypatch):
    pytest.importorskip("openai", reason="needs the extra 'eval'")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    right = answers(6)

    def look(request):
        (message,) = request["messages"]
        assert [part["type"] for part in message["content"]] == ["image_url", "text", "text"]
        return right[message["content"][0]["image_url"]["url"]]

    with StubEndpoint(look) as endpoint:
        argv = ["eval", "--model", "m", "--base-url", endpoint.url, "--env", EASY, "--episodes", "6"]
        assert main([*argv, "--out", str(tmp_path / "run")]) == 0
        assert len(endpoint.requests) == 6
        assert main([*argv, "--out", str(tmp_path / "run")]) == 0
        assert len(endpoint.requests) == 6, "finished episodes are read back, images and all"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["envs"][EASY]["success"]["mean"] == 1.0
    episodes = list(read_traces(tmp_path / "run" / "episodes.jsonl"))
    assert {url for episode in episodes for url in image_urls(episode.turns[0].observation)} == set(right)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert all(url in page for url in right)


def test_retries_show_the_image_once_and_keep_it(tmp_path):
    """Make three attempts at an item: the conversation begins with the image, and the trace holds it once."""
    outcome = evaluate(config(tmp_path, model="random", env=["vision:Geometry-v0-retry"], max_turns=None))
    line = (tmp_path / "episodes.jsonl").read_text().splitlines()[0]
    (url,) = image_urls(outcome.episodes[0].turns[0].observation)
    assert line.count(url) == 1


def test_an_image_costs_no_tokens_by_the_length_of_its_file():
    assert _characters("twelve words") == 12
    assert _characters([image_part(PIXEL), text_part("four")]) == CHARACTERS_PER_IMAGE + 4
