"""Every reader of JSON from outside answers hostile text with its own error, never with a RecursionError."""

from __future__ import annotations

import gc
import http.server
import json
import threading
from pathlib import Path

import pytest

from gem_chat._calls.reading import json_call
from gem_core import EnvSpec
from gem_core.errors import ConfigError, DataError, GemError, TraceError, WrongServer
from gem_core.rollout._options import read_object
from gem_core.tasks import read_task
from gem_core.trainers import read_tasks
from gem_envs._databases.folder import _task
from gem_envs._terminal.folder import _rewards
from gem_envs.data._columns import _decoded
from gem_envs.data._file_rows import FileRows
from gem_envs.tools._http import HttpClient
from gem_envs.tools.mcp._config import read_servers
from gem_envs.tools.search._folders import read_facts
from gem_lab._cli._arguments import parse_kwargs
from gem_lab._run_folders import read_json_lines
from gem_lab.consistency import Record
from gem_lab.consistency._learning import LearningRun
from gem_lab.eval._folder import read_config, read_summary
from gem_lab.repro import Recipe

HOSTILE = {
    "unclosed lists": "[" * 100_000,
    "unclosed objects": '{"a":' * 100_000,
    "900 lists": "[" * 900 + "]" * 900,
    "200 objects": '{"a":' * 200 + "1" + "}" * 200,
    "5000 digits": '{"a": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_is_refused_with_an_error_of_the_package(name, tmp_path):
    gc.collect()  # finalizers of earlier tests would run, and fail, deep in the decoder's recursion
    text = HOSTILE[name]
    for file in ("config.json", "summary.json", "index.json", "meta.json", "rows.jsonl", "rows.json"):
        (tmp_path / file).write_text(text + "\n")
    attacks = [
        (lambda: read_config(tmp_path), ConfigError),
        (lambda: read_summary(tmp_path), ConfigError),
        (lambda: Record.read(tmp_path / "config.json"), TraceError),
        (lambda: LearningRun.from_line(text), TraceError),
        (lambda: read_servers(tmp_path / "config.json"), DataError),
        (lambda: read_facts(tmp_path, "bm25", 1), DataError),
        (lambda: _task(tmp_path, None), DataError),
        (lambda: len(FileRows("x", [tmp_path / "rows.jsonl"], ".jsonl")), DataError),
        (lambda: len(FileRows("x", [tmp_path / "rows.json"], ".json")), DataError),
        (lambda: list(read_tasks(tmp_path / "rows.jsonl", read_task)), ConfigError),
        (lambda: Recipe.load(tmp_path / "config.json"), ConfigError),
        (lambda: read_json_lines(tmp_path / "rows.jsonl"), ValueError),
    ]
    for attack, error in attacks:
        with pytest.raises(error):
            attack()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_text_is_refused_with_an_error_of_the_package(name):
    text = HOSTILE[name]
    for attack in (
        lambda: EnvSpec.from_json(text),
        lambda: read_task({"env_id": "x", "seed": 0, "env_kwargs": text}),
        lambda: read_object(text, "option"),
        lambda: parse_kwargs([text]),
    ):
        with pytest.raises(GemError):
            attack()
    assert _rewards(text) == {}
    assert not isinstance(_decoded(text), list)
    call, _ = json_call('{"name": "t", "arguments": ' + text + "}", 0, None)
    assert call.error


@pytest.mark.parametrize("text", ["1e999", "[1, -1e999]", '{"a": NaN}'])
def test_a_model_cannot_send_numbers_that_are_not_finite(text):
    call, _ = json_call('{"name": "t", "arguments": {"a": ' + text + "}}", 0, None)
    assert call.error


def test_a_server_that_answers_with_hostile_text_is_a_wrong_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = HOSTILE[self.path.strip("/?").replace("_", " ")].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = HttpClient(f"http://127.0.0.1:{server.server_port}", retries=0)
    try:
        for name in HOSTILE:
            with pytest.raises(WrongServer, match="did not answer with JSON"):
                client.get("/" + name.replace(" ", "_"), {})
    finally:
        client.close()
        server.shutdown()
        server.server_close()


def test_files_of_json_are_read_with_the_bounded_reader():
    """Each `json.loads` of the package is listed here with the reason why its text is not from outside."""
    own = {
        "gem_core/_util/foreign_json.py", "gem_core/trainers/_failures.py", "gem_core/trainers/_plugin.py",
        "gem_chat/_histories.py", "gem_chat/_tool_turns.py",
        "gem_envs/_rg", "gem_envs/_service", "gem_envs/_terminal/tasks",
        "gem_envs/_terminal/pytest_verdict.py", "gem_envs/graders", "gem_envs/sandbox", "gem_envs/serving",
        "gem_envs/tools/mcp/_session.py", "gem_envs/tools/mcp/_transport.py",
        "gem_envs/tools/mcp/_env_server.py", "gem_envs/tools/mcp/_limited.py",
        "gem_envs/tools/search/_server.py", "gem_bridges/openenv", "gem_lab/_checker",
        "gem_lab/_cli/_openenv.py", "gem_lab/_conform", "gem_lab/consistency/_learning_page.py",
        "gem_lab/exam/_store.py", "gem_lab/repro/_settings.py", "gem_lab/repro/_yaml.py", "gem_lab/train",
    }  # fmt: skip
    root = Path(__file__).parents[2]
    files = [
        path.relative_to(root).as_posix()
        for path in root.glob("gem_*/**/*.py")
        if "json.loads(" in path.read_text()
    ]
    assert len(files) > 10
    assert [file for file in files if not any(file == one or file.startswith(f"{one}/") for one in own)] == []


def test_the_standard_library_fails_on_these_texts():
    with pytest.raises(RecursionError):
        json.loads(HOSTILE["unclosed lists"])
