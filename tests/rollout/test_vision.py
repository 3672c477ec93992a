"""Images as tokens: contexts with a processor, and a vision-language model that sees them."""

from __future__ import annotations

import asyncio
import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("PIL", reason="needs the extra 'vision'")
torch = pytest.importorskip("torch", reason="needs the extra 'train'")
pytest.importorskip("transformers", reason="needs the extra 'train'")

from PIL import Image  # noqa: E402

from gem_chat import AppendContext, RebuildContext  # noqa: E402
from gem_chat._template_context import TemplateContext  # noqa: E402
from gem_chat._vision import ImageProcessor, Processor  # noqa: E402
from gem_chat._vision_model import forbid_placeholders  # noqa: E402
from gem_core.errors import ConfigError, DataError, PolicyError, UnsupportedTemplate  # noqa: E402
from gem_core.images import image_part, image_urls, text_part  # noqa: E402
from gem_core.rollout import Episode, EpisodeLimits, run_episode  # noqa: E402
from gem_lab._engines.sampling import BatchingPolicy  # noqa: E402
from gem_lab.train._batches import compute_logprobs, make_batch, policy_gradient  # noqa: E402
from gem_lab.train._tiny import _byte_tokenizer  # noqa: E402
from gem_lab.train._tiny_vision import CHAT_TEMPLATE, IMAGE_TOKENS, make_processor, make_vision_model  # noqa: E402
from tests.rollout.policies import ScriptedPolicy  # noqa: E402
from tests.support import ImageEnv, ScriptedEnv  # noqa: E402


def png(width: int, height: int, shade: int = 128) -> bytes:
    file = io.BytesIO()
    Image.new("L", (width, height), shade).save(file, "PNG")
    return file.getvalue()


SMALL, WIDE = png(28, 28), png(84, 56, 40)


def new_tokenizer() -> Any:
    tokenizer = _byte_tokenizer()
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]}
    )
    return tokenizer


@pytest.fixture(scope="module")
def processor() -> Processor:
    return make_processor(new_tokenizer())


@pytest.fixture(scope="module")
def context(processor: Processor) -> AppendContext:
    return AppendContext(processor)


@pytest.fixture(scope="module")
def model(processor: Processor) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = make_vision_model(processor.tokenizer, 32, 2, 512).eval()
    forbid_placeholders(made)
    return made


def policy(model: Any, context: AppendContext, **options: Any) -> BatchingPolicy:
    ends = {context.extra_stop_id(())}
    return BatchingPolicy(
        model, eos_token_ids=ends, pad_token_id=0, image_processor=context.image_processor, **options
    )


def play(env: Any, player: Any, context: Any, **options: Any) -> Episode:
    return asyncio.run(run_episode(env, player, context, seed=0, **options))


# -- tokens -----------------------------------------------------------------------------------


def test_an_image_is_as_many_placeholders_as_it_has_patches(context, processor):
    observation = [image_part(SMALL), text_part("a"), text_part("b"), image_part(WIDE)]
    text = context.first_text(observation)
    pad = "<|image_pad|>"
    assert text == (
        f"<|user|><|vision_start|>{pad}<|vision_end|>a\nb<|vision_start|>{pad * 6}<|vision_end|><|end|>"
        "<|assistant|>"
    )
    ids = context.first(observation)
    assert ids == processor.tokenizer.encode(text, add_special_tokens=False)
    assert ids.count(context.image_processor.token_id) == 7


def test_tokens_grow_into_the_whole_conversation(context, processor):
    """The concatenated pieces equal the template's rendering of the whole conversation."""
    shown = [[image_part(SMALL), text_part("one")], "text alone", [text_part("two"), image_part(WIDE)]]
    answer = processor.tokenizer.encode("yes", add_special_tokens=False)
    end = context.extra_stop_id(())
    ids = context.first(shown[0])
    for observation in shown[1:]:
        response = [*answer, end]
        ids += response + context.extend(observation, response)
    messages: list[dict[str, Any]] = []
    for observation in shown:
        parts = (
            observation
            if isinstance(observation, str)
            else [part if part["type"] == "text" else {"type": "image"} for part in observation]
        )
        messages += [{"role": "user", "content": parts}, {"role": "assistant", "content": "yes"}]
    text = processor.tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    places = iter((1, 6))
    pieces = text.split("<|image_pad|>")
    whole = pieces[0] + "".join("<|image_pad|>" * next(places) + piece for piece in pieces[1:])
    assert ids == processor.tokenizer.encode(whole, add_special_tokens=False)
    assert context.extend_text(shown[2], [*answer, end]).count("<|image_pad|>") == 6


def test_text_alone_has_the_tokens_of_a_tokenizer(context, processor):
    plain = AppendContext(processor.tokenizer)
    assert plain.image_processor is None
    assert plain.first("look") == context.first("look")
    assert plain.extend("go", [1]) == context.extend("go", [1])


def test_a_context_of_whole_prompts_takes_images_too(processor):
    rebuild = RebuildContext(processor)
    observation = [image_part(WIDE), text_part("x")]
    assert rebuild.extend(observation, [1]) == AppendContext(processor).first(observation)
    assert RebuildContext(processor, raw=True).image_processor is None


@pytest.mark.parametrize("drops", [False, True])
def test_a_rendered_history_shows_all_images_in_order(drops, processor):
    template = CHAT_TEMPLATE
    if drops:  # the number of messages begins the text, so no prompt continues another
        template = "{{ messages | length }}" + template
    tokenizer = processor.tokenizer
    context = TemplateContext(processor, chat_template=template)
    shown = [[image_part(SMALL), text_part("one")], "text alone", [text_part("two"), image_part(WIDE)]]

    class Player(ScriptedPolicy):
        takes_images = True
        images: list[list[str]] = []  # noqa: RUF012

        async def generate(self, prompt_ids, *, images=(), **options):
            self.images.append(list(images))
            return await super().generate(prompt_ids, **options)

    env = ImageEnv(images=[SMALL] * 3)
    env.shown = lambda _: [*shown, "over"][env.turn]
    player = Player([tokenizer.encode("yes<|end|>")])
    player.images = []
    episode = play(env, player, context)
    assert len(episode.turns) == 3
    messages = []
    for turn, prompt in enumerate(episode.prompts()):
        parts = shown[turn]
        content = (
            parts
            if isinstance(parts, str)
            else [part if part["type"] == "text" else {"type": "image"} for part in parts]
        )
        messages.append({"role": "user", "content": content})
        text = tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        pieces = text.split("<|image_pad|>")
        whole = pieces[0] + "".join(
            "<|image_pad|>" * count + piece for count, piece in zip([1, 6], pieces[1:], strict=False)
        )
        assert prompt == tokenizer.encode(whole, add_special_tokens=False)
        messages.append({"role": "assistant", "content": "yes"})
        urls = tuple(url for observation in shown[: turn + 1] for url in image_urls(observation))
        assert episode.images(turn) == tuple(player.images[turn]) == urls
    assert [row.images for row in episode.rows()] == (
        [episode.images(0), episode.images(1), episode.images(2)] if drops else [episode.images(2)]
    )


def test_templates_that_cannot_be_exact_are_rejected(processor):
    start = "{{ '<|vision_start|>"
    numbered = CHAT_TEMPLATE.replace(start, f"{{{{ messages[0]['content'] is string }}}}{start}")
    with pytest.raises(UnsupportedTemplate, match="depends on the images before it"):
        AppendContext(processor, chat_template=numbered)
    blind = CHAT_TEMPLATE.replace("<|image_pad|>", "[image]")
    with pytest.raises(UnsupportedTemplate, match="exactly once per image"):
        AppendContext(processor, chat_template=blind)
    bare = Processor(_byte_tokenizer(), processor.image_processor)
    bare.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        AppendContext(bare)


def test_processors_of_another_kind_are_rejected(processor):
    other = SimpleNamespace(tokenizer=processor.tokenizer, image_processor=object(), chat_template="x")
    with pytest.raises(ConfigError, match="not an image processor of the Qwen2-VL family"):
        ImageProcessor(other)


# -- images that cannot be shown --------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "text", "message"),
    [
        (SMALL[:40], "x", "cannot be decoded"),
        (png(2000, 2), "x", "2000x2 pixels cannot be processed"),
    ],
)
def test_an_image_that_cannot_be_shown_ends_its_episode_with_one_line(image, text, message, context, model):
    env = ImageEnv(images=[image])
    env.shown = lambda _: [image_part(image), text_part(text)]
    episode = play(env, policy(model, context), context, log_errors=False)
    assert (episode.stop_reason, episode.trainable) == ("env_error", False)
    assert message in episode.error
    assert "\n" not in episode.error
    with pytest.raises(DataError):
        context.first(env.shown(""))


def test_text_only_policies_are_rejected_before_the_first_episode(context, processor):
    env = ImageEnv()
    with pytest.raises(ConfigError, match="supports text only"):
        play(env, ScriptedPolicy([[1]]), AppendContext(processor.tokenizer))
    with pytest.raises(ConfigError, match="ScriptedPolicy takes text only"):
        play(env, ScriptedPolicy([[1]]), context)
    assert env.seed is None, "nothing was reset"


def test_a_placeholder_that_was_sampled_is_reported(context, processor):
    class Dreamer(ScriptedPolicy):
        takes_images = True

        async def generate(self, prompt_ids, *, max_tokens, request_id, images=()):
            return await super().generate(prompt_ids, max_tokens=max_tokens, request_id=request_id)

    for token in IMAGE_TOKENS:
        (token_id,) = processor.tokenizer.encode(token, add_special_tokens=False)
        with pytest.raises(PolicyError, match=f"sampled the placeholder '{re.escape(token)}'"):
            play(ImageEnv(), Dreamer([[65, token_id, 66]]), context)


@pytest.mark.parametrize("kind", [AppendContext, RebuildContext])
def test_a_placeholder_in_a_text_of_the_environment_is_text(kind, processor):
    context = kind(processor)
    for text in ("see <|image_pad|>", "<|video_pad|>", "<|vision_start|>", "a<|vision_end|>b"):
        observation = [image_part(SMALL), text_part(text)]
        ids = context.first(observation)
        marks = [token_id for token_id in ids if token_id in context.image_processor.placeholders]
        assert marks == [i for i in context.first([image_part(SMALL), text_part("x")]) if i in marks]
        assert text in processor.tokenizer.decode(ids)
        assert not {*context.extend(text, [1])} & {*context.image_processor.placeholders}
        assert context.count_spelled(observation) == 1


@pytest.mark.parametrize("kind", [AppendContext, RebuildContext])
def test_texts_that_are_parsed_hold_no_placeholder(kind, processor):
    context = kind(processor, parse_special=True)
    with pytest.raises(DataError, match="must not contain it"):
        context.first([image_part(SMALL), text_part("a<|vision_end|>b")])
    for token in IMAGE_TOKENS:
        for text in (token, f"a {token * 3}"):
            with pytest.raises(DataError, match=re.escape(token)):
                context.first(text)
            with pytest.raises(DataError, match=re.escape(token)):
                context.extend(text, [1])
            with pytest.raises(DataError, match=re.escape(token)):
                kind(processor, system_prompt=text)


def test_placeholders_are_those_that_a_processor_names_or_its_template_writes(model):
    """As in GLM-4V, whose processor names two of them and whose template writes others."""
    tokenizer = new_tokenizer()
    tokens = ["<|begin_of_image|>", "<|image|>", "<|begin_of_video|>", "<|video|>", "<|audio|>", "<|other|>"]
    tokenizer.add_tokens(tokens, special_tokens=True)
    tokenizer.chat_template = None
    template = CHAT_TEMPLATE.replace(
        "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}",
        "{% if part['type'] == 'audio' %}{{ raise_exception('no sound') }}{% endif %}"
        "<|begin_of_{{ part['type'] }}|>: <|{{ part['type'] }}|>",
    )
    inner = make_processor(new_tokenizer()).image_processor
    named = {"image_token": "<|image|>", "audio_token": "<|audio|>"}
    for templates in (template, {"default": template}, {"other": CHAT_TEMPLATE, "default": template}):
        processor = SimpleNamespace(
            tokenizer=tokenizer, image_processor=inner, chat_template=templates, **named
        )
        context = AppendContext(processor, parse_special=True)
        assert sorted(context.image_processor.placeholders.values()) == sorted(tokens[:-1])
        with pytest.raises(DataError, match=r"begin_of_video"):
            context.first("<|begin_of_video|>")
        context.first("<|other|>")


def test_the_engines_forbid_the_tokens_that_the_model_names(processor, model):
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    named = {getattr(model.config, name) for name in names}
    assert set(ImageProcessor(processor).placeholders) == named


# -- a model ----------------------------------------------------------------------------------


def episodes_of(model: Any, context: AppendContext) -> list[Episode]:
    """Return two episodes of three turns with images and one of text, sampled in the same batches."""
    sampler = policy(model, context)

    async def all_of_them() -> list[Episode]:
        envs = [ImageEnv(images=[SMALL, WIDE]), ImageEnv(images=[WIDE, SMALL, WIDE]), ScriptedEnv()]
        return await asyncio.gather(
            *(
                run_episode(
                    env,
                    sampler,
                    context,
                    seed=3,
                    limits=EpisodeLimits(max_tokens_per_turn=4),
                    request_id=str(index),
                )
                for index, env in enumerate(envs)
            )
        )

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def episodes(model, context):
    return episodes_of(model, context)


def test_log_probs_of_sampling_match_training(model, context, episodes):
    """Positions, images, and padding agree between the cached, left-padded sampler and one full pass."""
    for rows in ("auto", "turn"):
        batch = make_batch(episodes, rows=rows, image_processor=context.image_processor)
        with torch.no_grad():
            found = compute_logprobs(model, batch)
        assert torch.allclose(found, batch.logprobs, atol=2e-5), rows
    batch = make_batch(episodes, image_processor=context.image_processor)
    assert [len(row) for row in batch.images] == [3, 3, 0]


def test_what_an_image_shows_changes_the_log_probs(model, context, episodes):
    batch = make_batch(episodes[:1], image_processor=context.image_processor)
    other = image_urls([image_part(png(84, 56, 250))])[0]
    before = compute_logprobs(model, batch)
    batch.images = [tuple(other if index == 1 else url for index, url in enumerate(batch.images[0]))]
    after = compute_logprobs(model, batch)
    first = batch.turn_ids[0] == 0
    assert torch.equal(before[0, first], after[0, first]), "the second image comes after the first answer"
    assert not torch.allclose(before[0, ~first], after[0, ~first], atol=1e-4)


def test_both_kinds_of_rows_have_the_same_gradient_and_it_reaches_the_images(model, context, episodes):
    for episode in episodes:
        for index, turn in enumerate(episode.turns):
            turn.advantage = 1.0 - index
    found = [
        policy_gradient(model, episodes, rows=rows, image_processor=context.image_processor)
        for rows in ("auto", "turn")
    ]
    seen = {name: gradient for name, gradient in found[0].items() if "visual" in name}
    assert max(float(gradient.abs().max()) for gradient in seen.values()) > 0
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-5), name


def test_placeholders_are_never_sampled(model, context, processor):
    head = model.get_output_embeddings()
    ids = processor.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    logits = head(torch.randn(3, head.in_features))
    assert (logits.softmax(-1)[:, ids] == 0).all()
    entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    assert torch.isfinite(entropy).all()


def test_a_batch_with_images_needs_an_image_processor(model, episodes):
    with pytest.raises(ConfigError, match="pass the context's image_processor to make_batch"):
        compute_logprobs(model, make_batch(episodes))


def test_models_of_another_kind_are_rejected():
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    with pytest.raises(ConfigError, match="not a model of the Qwen2-VL family"):
        forbid_placeholders(LlamaForCausalLM(small))
