"""Rollout options, read from a trainer's config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from gem_chat import AppendContext, RebuildContext
from gem_chat._options import make_context
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from tests.rollout.tokenizers import CHATML, CharTokenizer, bpe_tokenizer


@dataclass(frozen=True)
class WithRows(RolloutOptions):
    """Options with a field added by a plugin."""

    rows: Literal["auto", "turn"] = "auto"
    share: float = 0.5


def test_a_config_sets_its_options_and_others_keep_their_defaults() -> None:
    options = WithRows.read({"max_turns": 3, "rows": "turn"})
    assert options == WithRows(max_turns=3, rows="turn")
    assert RolloutOptions.read({}) == RolloutOptions.read(None) == RolloutOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["max_turns"], r"--gem=.'max_turns'.: expected a JSON object"),
        ("yes", "--gem='yes': expected a JSON object"),
        (3, "--gem=3: expected a JSON object"),
        ({"max_turn": 3}, r"unknown option '--gem.max_turn'.*max_turns"),
        ({"max_turns": 0}, "at least 1"),
        ({"max_tokens_per_turn": 2.5}, "whole number"),
        ({"context": "rebuilt"}, "expected append, template, or rebuild"),
        ({"rows": "row"}, "expected auto or turn"),
        ({"on_length_cut": "drop"}, "expected invalid or pass"),
        ({"step_timeout": 0}, "step_timeout=0: expected a number above 0"),
        ({"step_timeout": "30"}, "step_timeout='30': expected a number above 0, or None"),
        ({"max_turns": True}, "max_turns=True: expected a whole number of at least 1, or None"),
        ({"wrappers": 5}, "wrappers=5: expected text"),
        ({"raw": "false"}, "raw='false': expected true or false"),
        ({"on_env_error": "drop"}, "--gem.on_env_error='drop': expected mask or retry"),
        ({"max_env_retries": 0}, "--gem.max_env_retries=0: expected a whole number of at least 1"),
        ({"share": "a"}, "share='a': expected a number"),
        ({"harness": "pi", "context": "template"}, "gem.harness='pi' needs --gem.context='append'"),
        ({"harness": "codex", "context": "rebuild"}, "needs --gem.context='append', not 'rebuild'"),
    ],
)
def test_mistakes_are_rejected_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        WithRows.read(given, prefix="--gem.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("harness", "message"),
    [
        ("nope", "harness 'nope' is neither a registered harness"),
        ("nope --prompt {prompt}", "nor a command whose program is on the PATH"),
        ("tests.trainers.talker:tlak", "no 'tlak' in tests.trainers.talker. Did you mean talk"),
        ("", "harness '' is neither a registered harness"),
    ],
)
def test_a_harness_that_cannot_play_is_rejected(harness: str, message: str) -> None:
    pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    with pytest.raises(ConfigError, match=message):
        WithRows.read({"harness": harness}, prefix="--gem.")


def test_contexts() -> None:
    tokenizer = CharTokenizer()
    assert isinstance(make_context(RolloutOptions(), tokenizer), AppendContext)
    assert isinstance(make_context(RolloutOptions(context="rebuild", raw=True), tokenizer), RebuildContext)


def test_traces_have_a_file_per_split(tmp_path: Path) -> None:
    assert RolloutOptions().trace_writers(CharTokenizer()) == {}
    writers = RolloutOptions(traces=str(tmp_path)).trace_writers(CharTokenizer())
    assert sorted(writers) == ["eval", "train"]


def test_the_chat_template_of_the_options_reaches_the_context(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the extra 'train'")
    tokenizer = bpe_tokenizer(
        "chatml", {"default": CHATML, "short": CHATML.replace("message['role']", "'r'")}
    )
    file = tmp_path / "template.jinja"
    file.write_text("{{ strftime_now('%Y') }}" + CHATML)
    for kind in ("append", "rebuild"):
        for options, start in (
            ({"chat_template": str(file), "date": "1999-12-31"}, "1999<|im_start|>user"),
            ({"chat_template": "{# #}day " + CHATML}, "day <|im_start|>user"),
            ({"chat_template": "short"}, "<|im_start|>r\n"),
            ({}, "<|im_start|>user"),
        ):
            context = make_context(RolloutOptions.read({"context": kind, **options}), tokenizer)
            assert tokenizer.decode(context.first("Go.")).startswith(start)
    text = "{#\n#}day " + CHATML
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    context = make_context(RolloutOptions(chat_template=str(file)), tokenizer)
    assert tokenizer.decode(context.first("Go.")).startswith("day <|im_start|>user\n")
    with pytest.raises(ConfigError, match=r"chat_template='none': expected a file.*'default', 'short'"):
        make_context(RolloutOptions(chat_template="none"), tokenizer)
    for options in ({"chat_template": CHATML}, {"date": "1999-12-31"}):
        with pytest.raises(ConfigError, match="raw=True"):
            make_context(RolloutOptions.read({"context": "rebuild", "raw": True, **options}), tokenizer)


def test_options_that_no_config_has_read_are_checked() -> None:
    for options in (RolloutOptions(context="apend"), RolloutOptions(system_prompt=3), RolloutOptions(raw=1)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"context=.apend|system_prompt=3|raw=1"):
            make_context(options, CharTokenizer())


def test_an_answer_that_ends_with_a_stop_token_of_the_engine_is_not_ended_again() -> None:
    tokenizer = CharTokenizer()
    context = make_context(RolloutOptions(), tokenizer, stop_ids=[7])
    assert tokenizer.decode(context.extend("No.", [65, 7])) == "\n\nUser: No.\n\nAssistant:"
    assert tokenizer.decode(context.extend("No.", [65, 8])).startswith("\x03\n\nUser")
