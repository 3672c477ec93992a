"""Images reach verl's servers and rows through its agent loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gem_verl import _failures
from gem_verl._loop import GemAgentLoop, GemOutput
from gem_verl._options import check_data, images_unsupported
from gem_verl._rows import verl_row
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.utils import qwen2_5_vl_dedup_image_tokens

from gem_chat._vision import Processor, processor_or_tokenizer
from gem_core import register
from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow
from gem_lab.train._tiny_vision import IMAGE_TOKENS
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ScriptedEnv, wide_images
from tests.trainers.verl.configs import verl_config

register("test:VerlImages", wide_images)
register("test:VerlText", ScriptedEnv)


class LookingServer:
    """Replaces verl's servers behind their own interface, and records the images in each request."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.calls: list[tuple[list[int], dict[str, Any], list[Any] | None]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, image_data: Any = None
    ) -> TokenOutput:
        self.calls.append((list(prompt_ids), dict(sampling_params), image_data))
        ids = self.tokenizer.encode("I see \\boxed{1}<|im_end|>", add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.1] * len(ids), stop_reason="completed")


def play(env_id: str, processor: Any, *overrides: str) -> tuple[list[GemOutput], LookingServer]:
    tokenizer = processor.tokenizer
    words = ("data.max_prompt_length=256", "data.max_response_length=300")
    config = verl_config("actor_rollout_ref.rollout.name=vllm", *words, *overrides)
    server = LookingServer(tokenizer)
    row = verl_row(TaskRow(env_id=env_id, env_kwargs={}, seed=11, index=0))
    row["raw_prompt"] = row.pop("prompt")

    async def run() -> Any:
        settings, data = DictConfigWrap(config), DictConfigWrap(config.data)
        # verl's own token builder only supports transformers' processors, and is not used here.
        agent_loop = GemAgentLoop(settings, server, tokenizer, None, RLHFDataset, data, hf_model_type="qwen2")
        agent_loop.processor = processor
        _failures.group.set(_failures.Group(1, 10_000))
        sampling = {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
        return await agent_loop.run(sampling, uid="u", session_id=1, global_steps=7, **row)

    return asyncio.run(run()), server


def test_a_server_is_shown_every_image_so_far_and_never_samples_a_placeholder(processor: Processor) -> None:
    _, server = play("test:VerlImages", processor)
    assert [len(images) for _, _, images in server.calls] == [1, 2, 3]
    placeholders = processor.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    place = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    for prompt, sampling, images in server.calls:
        assert all((image.mode, image.size) == ("RGB", (84, 56)) for image in images)
        assert sampling["logit_bias"] == dict.fromkeys(placeholders, -100.0)
        # verl's server folds the placeholders into one per image, as vLLM requires.
        image_processor = type("Qwen2VLImageProcessor", (), {})()
        kind = SimpleNamespace(image_processor=image_processor, image_token_id=place, video_token_id=-1)
        assert list(qwen2_5_vl_dedup_image_tokens(prompt, kind)).count(place) == len(images)


def test_a_row_carries_the_pixels_whose_places_are_in_it(processor: Processor) -> None:
    ((row,), server) = play("test:VerlImages", processor)
    assert list(row.multi_modal_data) == ["images"]
    assert len(row.multi_modal_data["images"]) == 3
    place = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    grids = processor.image_processor(images=row.multi_modal_data["images"], return_tensors="np")
    tokens = int(grids["image_grid_thw"].prod(-1).sum()) // processor.image_processor.merge_size**2
    assert (row.prompt_ids + row.response_ids).count(place) == tokens == 18
    assert not any(
        mask for token, mask in zip(row.response_ids, row.response_mask, strict=True) if token == place
    )
    assert (
        row.as_dict()["multi_modal_data"] is row.multi_modal_data
        or row.as_dict()["multi_modal_data"]["images"]
    )
    assert server.calls[0][0] == row.prompt_ids


def test_turn_rows_carry_their_images(processor: Processor) -> None:
    rows, _ = play("test:VerlImages", processor, "+gem.rows=turn")
    assert [len(row.multi_modal_data["images"]) for row in rows] == [1, 2, 3]


def test_text_is_unchanged(processor: Processor) -> None:
    ((row,), server) = play("test:VerlText", processor)
    assert row.multi_modal_data is None
    assert "multi_modal_data" not in row.as_dict()
    assert all(images is None for _, _, images in server.calls)


def test_policies_without_image_support_are_rejected_before_anything_is_played(tmp_path: Path) -> None:
    row = {"agent_name": "gem", "extra_info": {"env_id": "test:VerlImages", "env_kwargs": "{}", "seed": 1}}
    sglang = verl_config("actor_rollout_ref.rollout.name=sglang")
    with pytest.raises(ConfigError, match=r"test:VerlImages shows images, but .*rollout.name=sglang"):
        check_data(sglang, [row])
    bpe_tokenizer("chatml").save_pretrained(tmp_path)
    text = verl_config(f"actor_rollout_ref.model.path={tmp_path}", "actor_rollout_ref.rollout.name=vllm")
    assert "no processor of the Qwen2-VL family" in str(images_unsupported(text))


def test_dummy_weights_would_leave_the_engine_blind(
    tmp_path: Path, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verl.utils.hf_processor", lambda *args, **kwargs: processor)
    words = [f"actor_rollout_ref.model.path={tmp_path}", "actor_rollout_ref.rollout.name=vllm"]
    assert "rollout.load_format=auto" in str(images_unsupported(verl_config(*words)))
    assert images_unsupported(verl_config(*words, "actor_rollout_ref.rollout.load_format=auto")) is None


def test_a_processor_of_another_kind_is_ignored(processor: Processor) -> None:
    other = SimpleNamespace(tokenizer=processor.tokenizer, image_processor=object(), chat_template=None)
    assert processor_or_tokenizer(processor, None) is processor
    assert processor_or_tokenizer(other, "tokenizer") == "tokenizer"
    assert processor_or_tokenizer(None, "tokenizer") == "tokenizer"
