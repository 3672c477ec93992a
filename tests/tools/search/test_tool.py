from __future__ import annotations

import asyncio

import pytest

import gem_core
from gem_chat.tools import make_tools
from gem_core.errors import ConfigError
from gem_envs.tools.search import Hit
from gem_envs.tools.search._backends import close_searchers
from gem_envs.tools.search._tool import as_text
from tests.tools.search.stub import StubSearch


@pytest.fixture(autouse=True)
def _close():
    yield
    close_searchers()


def call(tool, **arguments):
    return asyncio.run(tool.call(arguments, tool.begin()))


def document(number, text="text", title="title"):
    return Hit({"id": str(number), "title": title, "text": text}, 1.0)


def test_a_model_searches_the_bundled_corpus(tmp_path, monkeypatch):
    pytest.importorskip("bm25s", reason="building an index needs the extra 'search'")
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path))
    (tool,) = make_tools("search(corpus='multihop:11', k=2)")
    result = call(tool, query="Who is the mayor?")
    assert result.ok
    assert result.metadata["hits"] == 2
    assert len(result.metadata["ids"]) == 2
    assert result.text.count("The mayor of") == 2
    assert call(tool, query="zzzz").text == "Nothing was found."


def test_an_empty_query_is_reported():
    (tool,) = make_tools("search(backend='server', url='http://127.0.0.1:9')")
    result = call(tool, query="  ")
    assert (result.ok, result.text) == (False, "The query is empty. Enter what to look for.")


def test_a_server_that_fails_is_reported():
    with StubSearch((404, {}, b"")) as server:
        (tool,) = make_tools(f"search(backend='server', url='{server.url}')")
        result = call(tool, query="cats")
    assert not result.ok
    assert "The search failed" in result.text
    assert "status 404" in result.text


def test_environments_share_one_search():
    found = {"result": [[{"id": "1", "text": "t"}]]}
    with StubSearch((200, {}, found)) as server:
        config = f"search(backend='server', url='{server.url}', cache=5)"
        for tool in [*make_tools(config), *make_tools(config)]:
            assert call(tool, query="cats").text == "[1] t"
        assert len(server.asked) == 1


def test_documents_are_shown_with_title_and_limit():
    assert as_text([document(1), document(2, "x" * 30, "")], 20) == f"[1] title\ntext\n\n[2] {'x' * 20} ..."


def test_wrong_options_show_when_the_tool_is_made(tmp_path):
    for config, kind, said in (
        ("search(k=0)", ConfigError, "k=0"),
        ("search(corpus='/none')", ConfigError, "does not exist"),
        ("search(backend='bm25', corpus='multihop', depth=3)", TypeError, "depth"),
    ):
        with pytest.raises(kind, match=said):
            make_tools(config)


@pytest.mark.parametrize(
    "config", ["search", "search(k=2)", "search(backend='server')", "search(backend='bm25')"]
)
def test_without_a_corpus_or_a_server_nothing_is_searched(config, monkeypatch):
    for value in (None, ""):
        monkeypatch.delenv("SEARCH_URL", raising=False) if value is None else monkeypatch.setenv(
            "SEARCH_URL", ""
        )
        with pytest.raises(ConfigError, match=r"SEARCH_URL|needs a corpus"):
            make_tools(config)


@pytest.mark.parametrize("preset", ["search_tool", "search_tool_no_int_reward"])
def test_presets_search_the_server_in_the_environment_variable(preset, monkeypatch):
    monkeypatch.delenv("SEARCH_URL", raising=False)
    with pytest.raises(ConfigError, match="set the environment variable SEARCH_URL"):
        gem_core.make("math:Arithmetic-v0-easy", wrappers=preset)
    documents = {
        "result": [[{"document": {"id": "1", "contents": "Ada\nShe wrote programs."}, "score": 1.0}]]
    }
    with StubSearch((200, {}, documents)) as server:
        monkeypatch.setenv("SEARCH_URL", f"{server.url}/retrieve")
        with gem_core.make("math:Arithmetic-v0-easy", wrappers=preset) as env:
            env.reset(seed=0)
            observation, *_, info = env.step("<search>Who was Ada?</search>")
    assert "She wrote programs." in observation
    assert info["use_tool"]
    assert len(server.asked) == 1
