from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gem_chat._wrappers import ConcatChat, ConcatChatOnReset
from gem_core import render_observation, wrap
from gem_core.errors import ConfigError, MissingDependency, ModelError, UnsupportedTemplate
from tests.rollout.jinja_tokenizer import JinjaTokenizer
from tests.wrappers.test_observation import IMAGE, Telling, shown, telling


class Tags:
    """A minimal chat template that accepts any role."""

    def __init__(self, roles: tuple[str, ...] = ("user", "assistant", "tool")) -> None:
        self.roles = roles
        self.calls: list[dict[str, Any]] = []

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> str:
        self.calls.append(kwargs)
        for message in conversation:
            if message["role"] not in self.roles:
                raise ValueError(f"no role {message['role']}")
        return "".join(f"<{m['role']}>{m['content']}</>" for m in conversation) + "<assistant>"


def test_concat_chat_has_the_roles_of_the_conversation() -> None:
    told: list[Any] = [
        ("rules", {"suffix": "?"}),
        ("result", {"use_tool": True}),
        ("next", {"use_tool": False}),
    ]
    env = ConcatChat(Telling(told), tokenizer=Tags())
    assert shown(env, "ab") == [
        "<user>rules\n?</><assistant>",
        "<user>rules\n?</><assistant>a</><tool>result</><assistant>",
        "<user>rules\n?</><assistant>a</><tool>result</><assistant>b</><user>next</><assistant>",
    ]
    env = ConcatChat(Telling(told), tokenizer=Tags(), tool_role="user")
    assert shown(env, "a")[-1] == "<user>rules\n?</><assistant>a</><user>result</><assistant>"


def test_concat_chat_bounded() -> None:
    env = ConcatChat(telling("rules", "one", "two", "three"), tokenizer=Tags(), max_history=1)
    assert shown(env, "abc")[-1] == "<user>rules</><assistant>c</><user>three</><assistant>"


def test_concat_chat_on_reset_uses_the_template_once() -> None:
    tokenizer = Tags()
    env = ConcatChatOnReset(telling("rules", "one", "two"), tokenizer=tokenizer)
    assert shown(env, "ab") == [
        "<user>rules</><assistant>",
        "<user>rules</><assistant>a\none",
        "<user>rules</><assistant>a\none\nb\ntwo",
    ]
    assert len(tokenizer.calls) == 1
    env = ConcatChatOnReset(telling("rules", "one", "two"), tokenizer=tokenizer, max_history=1)
    assert shown(env, "ab")[-1] == "<user>rules</><assistant>b\ntwo"


def test_template_is_called_for_a_prompt_with_the_callers_options() -> None:
    tokenizer = Tags()
    ConcatChat(telling("rules"), tokenizer=tokenizer, template_kwargs={"enable_thinking": False}).reset()
    assert tokenizer.calls == [{"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}]


def test_nothing_is_left_to_render() -> None:
    env = ConcatChat(telling("rules", "one", prefix="BOARD", suffix="?"), tokenizer=Tags())
    observation, info = env.reset()
    assert render_observation(observation, info) == observation == "<user>BOARD\nrules\n?</><assistant>"


@pytest.mark.parametrize("wrapper", [ConcatChat, ConcatChatOnReset])
def test_images_are_rejected_and_text_parts_read(wrapper: type[ConcatChat]) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert shown(wrapper(telling(parts, "end"), tokenizer=Tags()), "") == ["<user>a\nb</><assistant>"]
    with pytest.raises(ConfigError, match="parts of type image_url, which text cannot hold"):
        wrapper(telling([IMAGE, *parts]), tokenizer=Tags()).reset()


def test_template_that_rejects_is_named() -> None:
    env = ConcatChat(
        Telling([("rules", {}), ("result", {"use_tool": True})]), tokenizer=Tags(("user", "assistant"))
    )
    env.reset()
    with pytest.raises(UnsupportedTemplate, match="roles user, assistant, tool: ValueError: no role tool"):
        env.step("a")


class Fields(Tags):
    """A template with a field for thoughts, which it shows in brackets."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> str:
        shown = [
            {**m, "content": f"[{m['thinking']}]{m['content']}"} if "thinking" in m else m
            for m in conversation
        ]
        return super().apply_chat_template(shown, **kwargs)


def test_thoughts_are_written_as_the_template_does() -> None:
    said = "<think>a\n</think>b"
    env = ConcatChat(telling("rules", "one"), tokenizer=Fields())
    assert shown(env, [said])[-1] == "<user>rules</><assistant>[a]b</><user>one</><assistant>"
    env = ConcatChat(telling("rules", "one"), tokenizer=Tags())
    assert shown(env, [said])[-1] == f"<user>rules</><assistant>{said}</><user>one</><assistant>"


def test_a_template_and_its_day_may_be_given(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2, which comes with the extra 'train'")
    day = "{{ strftime_now('%d %B') if strftime_now is defined }}"
    template = day + "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    (tmp_path / "own.jinja").write_text(template)
    tokenizer = JinjaTokenizer("{% for m in messages %}({{ m.content }}){% endfor %}", ["</s>"])
    for given in (template, str(tmp_path / "own.jinja")):
        for kind, wanted in (
            (ConcatChat, "31 January[rules][a][one]"),
            (ConcatChatOnReset, "31 January[rules]aone"),
        ):
            env = kind(telling("rules", "one"), tokenizer=tokenizer, chat_template=given, date="2026-01-31")
            assert "".join(shown(env, "a")[-1].split("\n")) == wanted
    tokenizer.chat_template = {"own": template}
    assert ConcatChat(telling("x"), tokenizer=tokenizer, chat_template="own").reset()[0] == "[x]"
    with pytest.raises(ConfigError, match=r"no default chat template; set chat_template \(it has 'own'\)"):
        ConcatChat(telling("x"), tokenizer=tokenizer).reset()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"chat_template": "no/such/file"},
            r"expected a file, Jinja text, or the name .*\(it has 'default'\)",
        ),
        ({"date": "tomorrow"}, "expected a day such as 2026-01-31"),
        ({"date": "2026-01-31"}, "shows no date"),
        ({"template_kwargs": {"thinking": True}}, "reads no such variable"),
        (
            {"chat_template": "{{ thinking }}{{ messages }}", "template_kwargs": {"think": 1}},
            "it reads: thinking",
        ),
    ],
)
def test_a_template_that_cannot_be_as_asked_is_an_error(options: dict[str, Any], reason: str) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2, which comes with the extra 'train'")
    tokenizer = JinjaTokenizer("{{ messages[0].content }}", ["</s>"])
    with pytest.raises(ConfigError, match=reason):
        ConcatChat(telling("rules"), tokenizer=tokenizer, **options).reset()


def test_a_day_without_a_known_template_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the tokenizer has no chat template; omit it"):
        ConcatChat(telling("rules"), tokenizer=Tags(), date="2026-01-31").reset()


class Forgets(Tags):
    """A template that shows some messages only."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> str:
        return super().apply_chat_template([m for m in conversation if "secret" not in m["content"]])


def test_a_template_that_drops_a_message_is_rejected() -> None:
    for told in (["the secret rules"], ["rules", "a secret"]):
        env = ConcatChat(telling(*told, "end"), tokenizer=Forgets())
        with pytest.raises(UnsupportedTemplate, match=r"does not show the user message '.*secret"):
            shown(env, "ab")


def test_state_is_json() -> None:
    env = ConcatChat(telling("rules", "one", "two"), tokenizer=Tags())
    shown(env, "a")
    other = env.spawn()
    other.set_state(json.loads(json.dumps(env.get_state())))
    assert other.step("b") == env.step("b")


def test_bad_tokenizers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="apply_chat_template"):
        ConcatChat(telling("rules"), tokenizer=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="accepted keyword arguments: tokenizer"):
        wrap(telling("rules"), "concat_chat")
    monkeypatch.setitem(sys.modules, "transformers", None)
    env = wrap(telling("rules"), f"concat_chat(tokenizer={str(tmp_path)!r})")
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[train\]'"):
        env.reset()


def test_tokenizer_from_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'train'")
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'train'")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    tokenizer.save_pretrained(tmp_path / "bare")
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path / "chat")
    env = wrap(telling("rules", "one"), f"concat_chat(tokenizer={str(tmp_path / 'chat')!r})")
    assert shown(env, "a") == ["<user>rules<assistant>", "<user>rules<assistant>a<user>one<assistant>"]
    typo = ConcatChat(telling("rules"), tokenizer=str(tmp_path / "chat"), template_kwargs={"typo": 1})
    with pytest.raises(ConfigError, match="typo: the chat template reads no such variable"):
        typo.reset()
    bare = wrap(telling("rules"), f"concat_chat(tokenizer={str(tmp_path / 'bare')!r})")
    with pytest.raises(UnsupportedTemplate, match="chat template"):
        bare.reset()
    absent = wrap(telling("rules"), f"concat_chat_on_reset(tokenizer={str(tmp_path / 'none')!r})")
    with pytest.raises(ModelError, match="cannot load a tokenizer"):
        absent.reset()
