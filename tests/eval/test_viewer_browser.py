"""The page in a real browser: Debian's chromium, headless, through ``--dump-dom``."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from gem_core.images import image_part, image_urls, text_part
from gem_lab.eval._viewer import write_page
from tests.eval.test_segments import GATEWAY, LOG, SHAPES
from tests.eval.test_segments import TEXTS as CHARACTERS
from tests.eval.traces import EVIL, TEXTS, episode, several, turn
from tests.support import PIXEL

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(
        not CHROMIUM, reason="no chromium: apt-get install chromium, or set CHROMIUM to a browser"
    ),
    pytest.mark.once,
]


@pytest.fixture
def browse(tmp_path):
    """Open the page at a URL fragment; return the document without its scripts."""

    def open_page(fragment: str = "") -> str:
        done = subprocess.run(
            [
                CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,900",
                "--enable-logging=stderr", "--dump-dom", f"file://{tmp_path / 'page.html'}#{fragment}",
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        document = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
        assert '<div id="failure" role="alert" hidden="">' in document
        return document

    return open_page


def section(document: str, id: str) -> str:
    """Return the text of the element with this id, without tags."""
    match = re.search(rf'<(\w+)[^>]* id="{id}".*?</\1>', document, re.DOTALL)
    assert match, id
    return html.unescape(re.sub(r"<[^>]+>", " ", match[0]))


def listed(document: str) -> list[int]:
    return [int(number) for number in re.findall(r'<tr data-number="(\d+)"', document)]


def test_ids_in_files_are_shown_without_their_folders(tmp_path, browse):
    envs = ("/some/where/hot_cold.py:HotCold", "game:GuessTheNumber-v0-easy")
    write_page([episode(turn(), env_id=env) for env in envs], tmp_path / "page.html")
    shown = re.findall(r'<td class="env" title="([^"]+)">([^<]+)</td>', browse())
    assert shown == [(envs[0], "hot_cold.py:HotCold"), (envs[1], envs[1])]
    write_page([episode(turn(), env_id=envs[0])], tmp_path / "page.html")
    assert ">HotCold</td>" in browse()


def test_an_episode_with_its_credit_and_tokens(tmp_path, browse):
    write_page(several(), tmp_path / "page.html", title="a run", token_text=TEXTS.get)
    document = browse("episode=0&tokens=1")
    pane = " ".join(section(document, "episode").split())
    assert "Episode 0: game:GuessTheNumber-v0-easy seed 10" in pane
    assert "Turn 1 reward 0 return-to-go +0.5 advantage \N{MINUS SIGN}0.5" in pane
    assert "Turn 2 reward +1 return-to-go +1 advantage +1.5" in pane
    assert "The number is higher than 5." in pane
    assert "discount 0.5" in pane
    assert "step 3" in pane
    assert '<span class="context" title="token 2">user </span>' in document
    assert (
        '<span class="response" title="token 4, log-prob \N{MINUS SIGN}0.5, p 0.607">\\boxed{7}</span>'
        in document
    )
    assert "var(--minus-bar) 31%" in document  # 12 % and a third of 58 %: the strongest advantage is 1.5
    assert "var(--plus-bar) 70%" in document
    assert listed(document) == [0, 1, 2, 3]
    facts = " ".join(section(document, "facts").split())
    assert facts == "episodes 4 mean return 0.287 success 25% mean turns 1 not trainable 1"
    strip = re.search(r'<svg class="strip".*?</svg>', document, re.DOTALL)
    assert re.findall("<title>(.*?)</title>", strip[0]) == ["turn 1: reward 0", "turn 2: reward +1"]


def test_hostile_texts_are_inert_and_found_by_the_search(tmp_path, browse):
    write_page(several(), tmp_path / "page.html", title=EVIL, token_text=TEXTS.get)
    document = browse("episode=1&q=ONERROR%3Dalert(1)%3E&tokens=1")
    assert listed(document) == [1]
    assert "onerror=alert(1)&gt;</mark>" in document
    assert "<title>broken" not in document
    assert "<img" not in document
    pane = section(document, "episode")
    assert "</script>" in pane
    assert "invalid length" in " ".join(pane.split())
    assert "(empty)" in pane


def test_filters_sorting_and_search_beyond_ascii(tmp_path, browse):
    write_page(several(), tmp_path / "page.html")
    assert listed(browse("sort=-return")) == [0, 3, 2, 1]
    assert listed(browse("q=%C3%84pfel")) == [3]
    document = browse("env=game%3AGuessTheNumber-v0-easy&success=no&sort=-seed&theme=dark&episode=2")
    assert listed(document) == [2, 1]
    assert 'data-theme="dark"' in document
    assert "it broke </script>" in section(document, "episode")


def test_a_person_clicks_and_types(tmp_path, browse):
    write_page(several(), tmp_path / "page.html", token_text=TEXTS.get)
    page = tmp_path / "page.html"
    actions = """
      const seen = {};
      const rows = () => [...document.querySelectorAll('#body tr')].map((row) => Number(row.dataset.number));
      const type = (text) => { q.value = text; q.dispatchEvent(new Event('input')); };
      const q = document.getElementById('q');
      type('code of'); seen.search = rows();
      type(''); document.querySelector('#body tr[data-number="3"]').click();
      seen.title = document.querySelector('#episode h2').textContent;
      document.getElementById('tokens').click();
      seen.tokens = document.querySelectorAll('#episode .tokens span').length;
      document.querySelector('#column-return button').click(); seen.rising = rows();
      document.querySelector('#column-return button').click(); seen.falling = rows();
      document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', bubbles: true }));
      q.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true })); // typed, not a command
      seen.selected = document.querySelector('#body tr[aria-selected="true"]').dataset.number;
      seen.address = location.hash;
      document.body.insertAdjacentHTML('beforeend', '<pre id="seen"></pre>');
      document.getElementById('seen').textContent = JSON.stringify(seen);
    """
    changed = re.sub(r"<meta http-equiv[^>]+>", "", page.read_text())  # it would block our script
    page.write_text(changed.replace("</body>", f"<script>{actions}</script></body>"))
    seen = json.loads(section(browse(), "seen"))
    assert seen["search"] == [3]
    assert seen["title"] == "Episode 3: game:Mastermind-v0"
    assert seen["tokens"] == 5
    assert seen["rising"] == [1, 2, 3, 0]
    assert seen["falling"] == [0, 3, 2, 1]
    assert seen["selected"] == "0"
    assert seen["address"] == "#sort=-return&tokens=1"


def test_markdown_and_formulas_are_shown_on_request(tmp_path, browse):
    pytest.importorskip("latex2mathml", reason="needs the extra 'view'")
    text = f"**So** \\(x^2\\) [good](https://x.org) [bad](javascript:alert(1)) {EVIL}"
    write_page([episode(turn(action=text), turn(action="plain"))], tmp_path / "page.html")
    document = browse("markdown=1&q=so")
    assert "<strong><mark>So</mark></strong>" in document
    assert '<math display="inline"><mrow><msup>' in document
    assert re.findall('<a href="([^"]*)"', document) == ["https://x.org"]
    assert "<img" not in document
    assert "<title>broken" not in document
    assert "onerror=alert(1)&gt;" in document
    assert "<strong>" not in browse("")


def text(document: str, selector: str) -> list[str]:
    """Return the texts of the table rows with an attribute."""
    found = re.findall(rf"<tr {selector}.*?</tr>", document, re.DOTALL)
    texts = [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in found]
    return [text.replace("\N{EN DASH}", "-") for text in texts]


def test_an_episode_of_one_row_has_no_tables(tmp_path, browse):
    write_page(several(), tmp_path / "page.html", token_text=TEXTS.get)
    document = browse("episode=0")
    assert [id for id in ("segments", "threads", "aside", "harness") if f'id="{id}"' in document] == []
    assert "row" not in section(document, "episode")


def test_rows_are_shown_with_their_turns_tokens_and_reasons(tmp_path, browse):
    write_page([SHAPES["observation rewritten"][0]], tmp_path / "page.html", token_text=CHARACTERS.get)
    document = browse()
    first, second = text(document, "data-row")
    assert first.endswith("1-2 35 37 7 the first turn")
    assert "3 86 1 0 the prompt differs from token 27 on ( turn 1 )" in second
    assert second.endswith("in the prompt of turn 1 : agent. Find the gem. <th → a pearl. <th")
    assert document.count('<rect x="') >= 3
    cards = " ".join(re.findall(r'<article class="turn">.*?</h3>(.*?)</div>', document, re.DOTALL))
    labels = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", cards)).split())
    assert re.findall(r"(?:begins )?row \d", labels) == ["begins row 1", "row 1", "begins row 2"]


def test_threads_are_shown_with_the_turns_they_belong_to(tmp_path, browse):
    write_page([SHAPES["sub-agent"][0]], tmp_path / "page.html", token_text=CHARACTERS.get)
    document = browse()
    assert text(document, "data-thread") == ["0 1, 4 - - main", "1 2-3 turn 1 turn 1 sub-agent"]
    assert document.count('<article class="turn side">') == 2
    assert "thread 1 sub-agent" in " ".join(section(document, "episode").split())


def test_hostile_texts_of_an_agent_are_inert(tmp_path, browse):
    metadata = {"gateway": {**GATEWAY, "unserved": [EVIL]}, "gateway_log": LOG, "harness_error": EVIL}
    hostile = replace(SHAPES["observation rewritten"][0], metadata=metadata)
    write_page([hostile], tmp_path / "page.html", token_text=lambda id: f"</script>{EVIL}")
    document = browse()
    assert "<img" not in document
    assert "<title>broken" not in document
    assert EVIL in text(document, "data-row")[1]
    assert [row.partition(" </script>")[0] for row in text(document, "data-aside")] == [
        "refused turn 1 not_found", "not sampled here turn 2 3 times", "lost the start 7 tokens",
    ]  # fmt: skip
    bar = " ".join(section(document, "harness").split())
    assert bar.startswith(
        "agent calls 3 answers recognized 1 of 2 rows 2 foreign answers 1 lost 1 refused 1 no effect </s"
    )
    assert "agent failed </script>" in bar
    assert "gateway" not in section(document, "episode")


def test_an_address_leads_to_a_step_a_turn_and_a_row(tmp_path, browse):
    many = (episode(turn(), turn(), seed=i, metadata={"step": i // 100}) for i in range(1000))
    write_page(many, tmp_path / "page.html")
    document = browse("step=3&episode=350")
    assert listed(document)[0] == 300
    assert "step 3 (100)" in section(document, "step")
    document = browse("episode=950&turn=2")
    assert 950 in listed(document)
    changed = (tmp_path / "page.html").read_text()
    script = """
      {
      const place = (node) => Math.round(node.getBoundingClientRect().top);
      const row = document.querySelector('tr[aria-selected="true"]');
      const seen = [place(row), place(document.querySelectorAll('.turn')[1]), innerHeight];
      document.getElementById('failure').insertAdjacentHTML('afterend', '<pre id="seen"></pre>');
      document.getElementById('seen').textContent = JSON.stringify(seen);
      }
    """
    changed = re.sub(r"<meta http-equiv[^>]+>", "", changed).replace(
        "</body>", f"<script>{script}</script></body>"
    )
    (tmp_path / "page.html").write_text(changed)
    row, card, height = json.loads(section(browse("episode=950&turn=2"), "seen"))
    assert 0 < row < height
    assert 0 <= card < height


def test_thousands_of_episodes_are_listed_on_demand(tmp_path, browse):
    many = (episode(turn(0.1 * (i % 7)), seed=i) for i in range(3000))
    write_page(many, tmp_path / "page.html", token_text=TEXTS.get)
    document = browse("")
    assert 200 <= len(listed(document)) <= 600
    assert "3000" in section(document, "facts")


def test_an_empty_trace_and_a_wrong_number_say_so(tmp_path, browse):
    write_page([], tmp_path / "page.html")
    assert "The trace contains no episodes." in section(browse(), "episode")
    write_page(several(), tmp_path / "page.html")
    assert "There is no episode 77." in section(browse("episode=77"), "episode")


def test_images_are_shown_with_their_turn(tmp_path, browse):
    first, last = image_part(PIXEL), image_part(PIXEL + b"\n")
    shown = turn(observation=[first, text_part("How long is x?")], info={"final_obs": [last]})
    write_page([episode(shown)], tmp_path / "page.html")
    document = browse("episode=0")
    assert re.findall(r'<img src="([^"]+)"', document) == image_urls([first, last])
    assert "How long is x?" in section(document, "episode")


def test_a_page_without_advantages_says_nothing_about_them(browse, tmp_path):
    write_page([episode(turn())], tmp_path / "page.html")
    assert "return-to-go" in browse()
    assert ">advantage" not in browse()
