from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from gem_core._observations import readable_text
from gem_core.images import image_part, image_urls
from gem_lab.eval._viewer import write_page
from tests.eval.traces import EVIL, TEXTS, episode, several, turn


class Page(HTMLParser):
    """Parses a page like a browser: its elements, and the content of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.open = dict(attrs).get("id") or ""
            self.scripts[self.open] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.open = None

    def handle_data(self, data: str) -> None:
        if self.open is not None:
            self.scripts[self.open] += data

    def lines(self, name: str) -> list:
        return [json.loads(line) for line in self.scripts[f"data-{name}"].split("\n")]


def page_of(tmp_path, episodes, **options) -> Page:
    write_page(episodes, tmp_path / "page.html", **options)
    return Page((tmp_path / "page.html").read_text())


def test_summary_and_index(tmp_path):
    summary = write_page(several(), tmp_path / "page.html", title="run <1>", token_text=TEXTS.get)
    text = (tmp_path / "page.html").read_text()
    assert (summary.episodes, summary.turns) == (4, 4)
    assert summary.size == len(text.encode())
    assert "<title>run &lt;1&gt;</title>" in text
    (index,) = Page(text).lines("index")
    assert [entry["seed"] for entry in index["episodes"]] == [10, 11, 12, None]
    assert [entry["return"] for entry in index["episodes"]] == [1.0, -0.1, 0, 0.25]
    assert [entry["success"] for entry in index["episodes"]] == [True, False, False, False]
    assert index["about"]["has_vocabulary"] is True
    assert index["about"]["max_advantage"] == 1.5


def test_no_text_of_a_trace_becomes_markup(tmp_path):
    harmless = page_of(tmp_path, several()[:1])
    hostile = page_of(tmp_path, several(), title=EVIL, token_text=TEXTS.get)
    assert hostile.tags == harmless.tags
    assert hostile.lines("texts")[1] == [[EVIL, "é</script>__TURNS__", ""]]
    assert hostile.lines("turns")[1][0]["info"]["note"] == EVIL
    assert hostile.lines("vocabulary")[0]["6"] == "</script>"


def test_the_page_loads_nothing_and_runs_only_its_own_script(tmp_path):
    page = page_of(tmp_path, several())
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.scripts[""].encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy
    assert not any({"src", "href"} & set(attributes) for _, attributes in page.tags)


def test_return_to_go_uses_the_discount_of_the_episode_or_the_given_one(tmp_path):
    rewards = episode(turn(0.0), turn(1.0))
    with_gamma = episode(turn(0.0), turn(1.0), metadata={"gamma": 0.25})
    page = page_of(tmp_path, [rewards, with_gamma], gamma=0.5)
    to_go = [[entry["return_to_go"] for entry in line] for line in page.lines("turns")]
    assert to_go == [[0.5, 1.0], [0.25, 1.0]]


@pytest.mark.parametrize("said", ["fast", None, 7, [0.5]])
def test_metadata_named_gamma_that_is_not_a_discount_is_ignored(said, tmp_path):
    page = page_of(tmp_path, [episode(turn(0.0), turn(1.0), metadata={"gamma": said})], gamma=0.5)
    assert page.lines("turns")[0][0]["return_to_go"] == 0.5


def test_numbers_that_json_lacks_travel_as_text(tmp_path):
    strange = episode(turn(math.nan, logprobs=[-math.inf, -1.0], advantage=math.inf), turn(1.0))
    (turns,) = page_of(tmp_path, [strange]).lines("turns")
    assert (turns[0]["reward"], turns[0]["advantage"]) == ("nan", "inf")
    assert turns[0]["logprobs"] == ["-inf", -1.0]
    assert [entry["return_to_go"] for entry in turns] == [None, None]


def test_a_response_without_an_action_is_assembled_from_tokens(tmp_path):
    cut = turn(action="", finish_reason="length")
    assert page_of(tmp_path, [episode(cut)], token_text=TEXTS.get).lines("texts") == [
        [["Guess a number.", "\\boxed{7}é", ""]]
    ]
    assert page_of(tmp_path, [episode(cut)]).lines("texts") == [[["Guess a number.", "", ""]]]
    assert page_of(tmp_path, [episode(turn())]).lines("texts") == [[["Guess a number.", "\\boxed{7}é", None]]]


def test_images_inside_the_trace_are_shown_and_addresses_are_not_fetched(tmp_path):
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/image.png"}},
        {"type": "image_url", "image_url": {"url": "data:text/html,<script>"}},
    ]
    assert readable_text(parts) == "What is this?\n[image]\n[image]\n[image]"
    page = page_of(tmp_path, [episode(turn(observation=parts))])
    assert page.lines("turns")[0][0]["images"] == ["data:image/png;base64,AAAA"]


def test_the_last_observation_is_shown_as_an_image_and_not_as_digits(tmp_path):
    last = [{"type": "text", "text": "The end."}, image_part(b"GIF89a")]
    page = page_of(tmp_path, [episode(turn(info={"final_obs": last, "success": True}))])
    (entry,) = page.lines("turns")[0]
    assert entry["info"] == {"final_obs": "The end.\n[image]", "success": True}
    assert entry["final_images"] == image_urls(last)


def test_text_that_utf8_lacks_is_not_a_failure(tmp_path):
    page = page_of(tmp_path, [episode(turn(observation="half \ud83d of a pair"))], title="odd \udcff name")
    assert page.lines("texts")[0][0][0] == "half \ud83d of a pair"


def test_each_token_text_is_requested_once(tmp_path):
    asked = []
    write_page([episode(turn(), turn())], tmp_path / "page.html", token_text=lambda id: asked.append(id))
    assert sorted(asked) == [1, 2, 3, 4, 5]


def test_an_empty_trace_has_a_page(tmp_path):
    assert page_of(tmp_path, []).lines("index")[0]["episodes"] == []


def test_a_trace_that_breaks_while_it_is_read_leaves_no_page(tmp_path):
    def torn():
        yield from several()
        raise OSError("cannot read on")

    with pytest.raises(OSError, match="cannot read on"):
        write_page(torn(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_template_has_a_value_for_every_placeholder(tmp_path):
    write_page([], tmp_path / "page.html")
    outside = re.sub(r"<script.*?</script>", "", (tmp_path / "page.html").read_text(), flags=re.DOTALL)
    assert not re.search(r"__[A-Z]+__", outside)
