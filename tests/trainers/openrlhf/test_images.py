"""Images reach OpenRLHF's engines, samples, and actor through the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_openrlhf._executor import GemExecutor
from gem_openrlhf._labels import openrlhf_row, played_of
from gem_openrlhf._preview import images_unsupported
from openrlhf.models.actor import Actor
from openrlhf.utils import utils as openrlhf_utils
from openrlhf.utils.vlm_utils import dedup_media_tokens, merge_mm_train_inputs
from vllm import SamplingParams
from vllm.outputs import CompletionOutput, RequestOutput

from gem_chat._vision import Processor
from gem_core import register
from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow
from gem_lab.train._tiny_vision import IMAGE_TOKENS, make_vision_model
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ScriptedEnv, wide_images
from tests.trainers.openrlhf.args import experiences

register("test:OpenRlhfWide", wide_images)
register("test:OpenRlhfText", ScriptedEnv)


class LookingWorker:
    """Replaces OpenRLHF's rollout worker behind its own interface, and records the images in each request."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.calls: list[tuple[list[int], SamplingParams, Any]] = []

    async def generate(
        self, prompt_token_ids: list[int], sampling_params: SamplingParams, multi_modal_data: Any = None
    ) -> RequestOutput:
        self.calls.append((prompt_token_ids, sampling_params, multi_modal_data))
        ids = self.tokenizer.encode("I see \\boxed{1}<|im_end|>", add_special_tokens=False)
        sample = CompletionOutput(
            index=0, text="", token_ids=ids, cumulative_logprob=None, logprobs=None, finish_reason="stop"
        )
        return RequestOutput("", None, prompt_token_ids, None, [sample], finished=True)


def play(env_id: str, given: Any, samples: int = 1) -> tuple[list[dict[str, Any]], LookingWorker]:
    worker = LookingWorker(getattr(given, "tokenizer", given))
    agent = GemExecutor({})
    row = openrlhf_row(TaskRow(env_id=env_id, env_kwargs={}, seed=11, index=0))

    async def run() -> list[dict[str, Any]]:
        return [
            await agent.execute(
                prompt=row["input"],
                label=row["label"],
                sampling_params=SamplingParams(max_tokens=24),
                max_length=400,
                hf_tokenizer=given,
                llm_engine=worker,
                images=None,
            )
            for _ in range(samples)
        ]

    return asyncio.run(run()), worker


def test_an_engine_is_shown_every_image_so_far_and_never_samples_a_placeholder(
    processor: Processor,
) -> None:
    _, worker = play("test:OpenRlhfWide", processor)
    placeholders = processor.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    place = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert [len(shown["image"]) for _, _, shown in worker.calls] == [1, 2, 3]
    for prompt, params, shown in worker.calls:
        assert all((image.mode, image.size) == ("RGB", (84, 56)) for image in shown["image"])
        assert params.logit_bias == dict.fromkeys(placeholders, -100.0)
        # OpenRLHF folds the placeholders of an image into one, which vLLM expands again.
        assert prompt.count(place) == 6 * len(shown["image"])
        assert dedup_media_tokens(prompt, {place}).count(place) == len(shown["image"])


def test_a_sample_has_the_pixels_of_its_placeholders(processor: Processor) -> None:
    ((response,), _) = play("test:OpenRlhfWide", processor)
    place = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    played = played_of(response["label"])
    assert played is not None
    assert len(played.spans) == 3
    pixels = response["mm_train_inputs"]
    grids = pixels["image_grid_thw"]
    assert grids.shape == (response["observation_tokens"].count(place) // 6, 3)
    assert grids.dtype == torch.int64
    assert pixels["pixel_values"].shape[0] == grids.prod(-1).sum()


def test_text_needs_no_pixels(processor: Processor) -> None:
    for given in (processor, bpe_tokenizer("chatml")):
        ((response,), worker) = play("test:OpenRlhfText", given)
        assert response["mm_train_inputs"] is None
        assert all(shown is None for _, _, shown in worker.calls)


@pytest.fixture(scope="module")
def model(processor: Processor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "sees"
    torch.manual_seed(0)
    make_vision_model(processor.tokenizer, 64, 2, 1024).save_pretrained(folder)
    return folder


def test_openrlhfs_actor_sees_each_image_at_its_place(processor: Processor, model: Path) -> None:
    """The log-probs of a micro-batch equal the model's on each row with its own images."""
    from transformers import AutoModelForImageTextToText

    (seen,), _ = play("test:OpenRlhfWide", processor)
    (text,), _ = play("test:OpenRlhfText", processor)
    (other,), _ = play("test:OpenRlhfWide", processor)
    other["mm_train_inputs"]["pixel_values"] = -other["mm_train_inputs"]["pixel_values"]
    responses = [seen, text, other]
    batch = experiences(responses)
    actor = Actor(str(model), attn_implementation="eager").float().eval()
    assert actor.is_vlm
    merged = merge_mm_train_inputs(batch.mm_train_inputs, "cpu")
    with torch.no_grad():
        result = actor(batch.sequences, batch.action_mask, batch.attention_mask, **merged)
    options = {"attn_implementation": "eager", "dtype": torch.bfloat16}  # as the actor loads its weights
    alone = AutoModelForImageTextToText.from_pretrained(model, **options).float().eval()
    place = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    rows = []
    for index, response in enumerate(responses):
        ids = torch.tensor([response["observation_tokens"]])
        pixels = dict(response["mm_train_inputs"] or {})
        if pixels:
            pixels["mm_token_type_ids"] = (ids == place).int()
        with torch.no_grad():
            logits = alone(ids, attention_mask=torch.ones_like(ids), **pixels).logits
        wanted = logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        on = batch.action_mask[index].bool()
        rows.append(wanted[on[: len(wanted)]])
        assert torch.allclose(result[index][on], rows[-1], atol=1e-4)
    assert (rows[0] - rows[2]).abs().max() > 1e-3  # the content of an image makes a difference


def flags(model: Any, most: int) -> Any:
    return SimpleNamespace(
        data=SimpleNamespace(max_images_per_prompt=most), actor=SimpleNamespace(model_name_or_path=str(model))
    )


def test_policies_without_image_support_are_rejected(
    processor: Processor, tiny: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--data.max_images_per_prompt N" in str(images_unsupported(flags(tiny, 0)))
    assert "has no processor of the Qwen2-VL family" in str(images_unsupported(flags(tiny, 3)))
    # Folder of a vision model without its processor.
    assert "cannot load the processor of " in str(images_unsupported(flags(model, 3)))
    monkeypatch.setattr(openrlhf_utils, "get_tokenizer", lambda *args: processor)
    assert images_unsupported(flags(model, 3)) is None


def test_images_in_a_row_of_the_data_are_rejected(processor: Processor) -> None:
    agent = GemExecutor({})
    row = openrlhf_row(TaskRow(env_id="test:OpenRlhfWide", env_kwargs={}, seed=1, index=0))
    with pytest.raises(ConfigError, match="come from its environment"):
        asyncio.run(
            agent.execute(
                row["input"], row["label"], SamplingParams(max_tokens=4), 100, processor, None, ["a.png"]
            )
        )
