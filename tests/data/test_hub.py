from __future__ import annotations

import io
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler

import pytest

import gem_core
from gem_core.errors import ConfigError, DataError
from gem_envs.data import _hub, open_rows
from gem_envs.data._open import _opened
from tests.data.hub_server import serving
from tests.support.servers import StubServer

pytest.importorskip("huggingface_hub", reason="needs the extra 'data'")
arrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = [{"problem": f"{n} + 1", "answer": str(n + 1)} for n in range(100)]


def table(rows, **kwargs):
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), buffer, **kwargs)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)  # new in 0.30
    monkeypatch.setattr(_hub, "_ANSWER", 2.0)
    monkeypatch.setattr("gem_envs.data._open._opened", {})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server(monkeypatch):
    repositories = {
        "team/sums": {
            "README.md": b"# Sums",
            "data/train-00000-of-00002.parquet": table(ROWS[:60]),
            "data/train-00001-of-00002.parquet": table(ROWS[60:]),
            "data/test-00000-of-00001.parquet": table(ROWS[:3]),
        },
        "team/lines": {"train.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode()},
        "team/broken": {"train.parquet": b"PAR1 nothing"},
        "team/private": 401,
        "team/gated": 403,
    }
    with serving(repositories) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def test_a_split_is_downloaded_once(server):
    rows = open_rows("team/sums", "train")
    assert (len(rows), rows[0], rows[99]) == (100, ROWS[0], ROWS[99])
    assert len(open_rows("team/sums", "test")) == 3
    assert not any(
        "test-00000" in r for r in server.requests[: server.requests.index(server.requests[0]) + 1]
    )
    before = server.sent
    _opened.clear()
    assert open_rows("team/sums", "train")[5] == ROWS[5]
    assert server.sent == before


def test_other_formats(server):
    assert open_rows("team/lines")[7] == ROWS[7]


def test_an_environment_on_a_hub_dataset(server):
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    env = gem_core.make("math:GSM8K", dataset_name="team/sums", split="test")
    env.reset(options={"index": 2})
    assert env.step(r"\boxed{3}")[1] == 1.0


def test_streaming_reads_only_what_is_requested(server):
    wide = [{"problem": f"{n}", "answer": "x" * 20_000 + str(n)} for n in range(400)]
    server.repositories["team/wide"] = {
        "train.parquet": table(wide, row_group_size=10, compression="none", use_dictionary=False)
    }
    rows = open_rows("team/wide", streaming=True)
    assert rows[217] == wide[217]
    assert 0 < server.sent < 7_000_000 < len(server.repositories["team/wide"]["train.parquet"])


def test_without_a_connection_the_cache_serves(server, monkeypatch):
    open_rows("team/sums", "train")
    _opened.clear()
    monkeypatch.setattr("gem_envs.data._open._opened", {})
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # no server listens there
    assert open_rows("team/sums", "train")[5] == ROWS[5]
    with pytest.raises(DataError, match="not on this machine"):
        open_rows("team/sums", "test")


def test_unreachable_is_reported_in_one_line_that_says_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="connect once to download it, or set dataset_name= to") as error:
        open_rows("team/sums")
    assert "\n" not in str(error.value)


def test_a_hub_that_never_answers_is_abandoned(server, monkeypatch):
    monkeypatch.setattr(_hub, "PATIENCE", 0.5)
    server.stalls.set()
    with pytest.raises(DataError, match="TimeoutError"):
        open_rows("team/sums")


def test_an_address_that_drops_all_packets_is_abandoned(monkeypatch):
    monkeypatch.setattr(_hub, "PATIENCE", 0.5)
    with socket.socket() as listening:  # accepts connections but never answers
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(DataError, match="cannot be reached"):
            open_rows("team/sums")


def test_mistakes_in_the_name_are_reported(server):
    with pytest.raises(DataError, match="the hub has no dataset 'team/none'"):
        open_rows("team/none")
    with pytest.raises(ConfigError, match=r"unknown split 'dev' of .*\. Available: test, train"):
        open_rows("team/sums", "dev")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        open_rows("team/broken")


@pytest.mark.parametrize("name", ["team/private", "team/gated"])
def test_a_dataset_that_this_account_may_not_read_is_not_looked_for_in_the_cache(server, name):
    with pytest.raises(DataError, match=f"no dataset '{name}' that this account can read.*HF_TOKEN"):
        open_rows(name)


def test_a_broken_remote_file_is_named(server):
    with pytest.raises(DataError, match=r"datasets/team/broken@\w+/train\.parquet"):
        list(open_rows("team/broken", streaming=True))


def test_only_rows_on_this_machine_are_cheap_to_scan(server):
    assert open_rows("team/sums", "train").is_local
    assert not open_rows("team/sums", "train", streaming=True).is_local


def test_the_proxy_of_the_client_library_is_named(server, monkeypatch):
    """It takes the proxy for a hub on this machine, too, unless NO_PROXY lists it."""
    import huggingface_hub

    def fresh():
        for name in ("close_session", "reset_sessions"):  # since 1.0, and before
            getattr(huggingface_hub.utils, name, lambda: None)()

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(502)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    asked = []
    with StubServer(("127.0.0.1", 0), Refuses) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{proxy.server_port}"
        monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@{address}")
        fresh()
        assert len(open_rows("team/lines", "train")) == 100
        assert not asked
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.delenv("no_proxy", raising=False)
        fresh()
        with pytest.raises(
            DataError, match=rf"reached through the proxy http://{address} \(list 127.0.0.1 in"
        ):
            open_rows("team/sums", "train")
        assert any(path.startswith(f"{server.url}/api/datasets/team/sums") for path in asked)
        proxy.shutdown()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    fresh()
