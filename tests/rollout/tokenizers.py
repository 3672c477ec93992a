"""Tokenizers for the tests: byte-level BPE with real template families, and a stub without dependencies."""

from __future__ import annotations

from typing import Any

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Qwen3: thinking before the last user message is dropped from the history, and without thinking the
# generation prompt contains an empty think block.
QWEN3 = (
    "{% set ns = namespace(last=0) %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{% set parts = message['content'].split('</think>') %}"
    "{% set text = parts[-1].lstrip('\n') %}"
    "{% if loop.index0 > ns.last %}"
    "{% set thought = parts[0].split('<think>')[-1].strip('\n') if parts | length > 1 else '' %}"
    "{{ '<|im_start|>assistant\n<think>\n' + thought + '\n</think>\n\n' + text }}"
    "{% else %}{{ '<|im_start|>assistant\n' + text }}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% elif message['role'] == 'tool' %}"
    "{{ '<|im_start|>user\n<tool_response>\n' + message['content'] + '\n</tool_response><|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{% endif %}"
)

# Llama 3: the bos token once, the date in the system header, contents trimmed.
LLAMA3 = (
    "{{ bos_token }}"
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{{ 'Today Date: ' + date_string + '\n\n' + system + '<|eot_id|>' }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)

# Like Mistral 7B's: no generation prompt, user and assistant take turns, the answer ends with eos.
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% set role = ['user', 'assistant'][loop.index0 % 2] %}"
    "{% if message.role != role %}{{ raise_exception('the roles have to alternate') }}{% endif %}"
    "{{ {'user': '[INST] %s [/INST]', 'assistant': ' %s'}[role] % message.content }}"
    "{{ eos_token if role == 'assistant' }}{% endfor %}"
)

TEMPLATES = {"chatml": CHATML, "qwen3": QWEN3, "llama3": LLAMA3, "mistral": MISTRAL, "none": None}

_SPECIALS = {
    "chatml": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "qwen3": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama3": [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ],
    "mistral": ["<s>", "</s>", "[INST]", "[/INST]"],
    "none": ["<|endoftext|>"],
}
_BOS = {"llama3": "<|begin_of_text|>", "mistral": "<s>"}
_EOS = {
    "chatml": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "mistral": "</s>",
    "none": "<|endoftext|>",
}

_CORPUS = [
    "Guess a number between 1 and 10. Your guess was too high, the target is lower than 5.",
    "user assistant system\n\nToday Date: 01 Jan 2026\n\nUser: hello\n\nAssistant: hello there",
    "I think the answer is \\boxed{5}. <think>\nLet me think about it.\n</think>\n\n<tool_response>",
] * 4


def bpe_tokenizer(family: str = "chatml", chat_template: str | dict[str, str] | None = None) -> Any:
    """Return a byte-level BPE tokenizer of about 350 tokens with the special tokens of a template family."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    specials = _SPECIALS[family]
    backend.train_from_iterator(
        _CORPUS,
        trainers.BpeTrainer(
            vocab_size=350,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=_BOS.get(family),
        eos_token=_EOS[family],
        pad_token=specials[0],
        additional_special_tokens=specials,
    )
    if family == "qwen3":
        tokenizer.add_tokens(["<think>", "</think>"])  # added, but not special: part of the text
    tokenizer.chat_template = chat_template or TEMPLATES[family]
    return tokenizer


class CharTokenizer:
    """Stub of a tokenizer: one token per character, with the standard library only."""

    eos_token, eos_token_id = "\x03", 3
    bos_token, bos_token_id = None, None
    all_special_ids = (3,)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str:
        hidden = self.all_special_ids if skip_special_tokens else ()
        return "".join(chr(token_id) for token_id in token_ids if token_id not in hidden)
