from __future__ import annotations

import errno
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import TraceError
from gem_core.images import image_part, image_urls
from gem_core.rollout import Episode, TraceWriter, Turn, read_traces
from gem_lab.eval._token_texts import read_token_texts


def episode(seed: int, response: str = "Zwölf") -> Episode:
    ids = [ord(character) for character in response]
    turn = Turn(
        [1, 2], ids, [-0.25] * len(ids), 0.1, "look", response, "stop", {"invalid": None}, advantage=-0.5
    )
    parts: Any = [{"type": "text", "text": "look"}]
    other = Turn([3], [4], None, 1.0, parts, "", "length", {"metrics": {"progress": 1.0}})
    return Episode("game:X", seed, [turn, other], True, False, "terminated", metadata={"group": 3})


def write(path: Path, *seeds: int, **options: Any) -> None:
    with TraceWriter(path, **options) as traces:
        for seed in seeds:
            traces.write(episode(seed))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "traces.jsonl"
    write(path, 0, 1)
    write(path, 2)
    assert list(read_traces(path)) == [episode(0), episode(1), episode(2)]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["schema_version"] for line in lines] == [3, 3, 3]
    assert "Zwölf" in lines[0]


def test_what_utf_8_cannot_hold_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with TraceWriter(path) as traces:
        traces.write(episode(0, "half of it: \ud83d"))
        traces.write(episode(1))
    assert list(read_traces(path)) == [episode(0, "half of it: \ud83d"), episode(1)]


def test_images_are_stored_once_at_the_end_of_a_line(tmp_path: Path) -> None:
    first, second = image_part(b"GIF89a" + b"1" * 900), image_part(b"GIF89a" + b"2" * 900)
    seen: list[Any] = [[first], [first, {"type": "text", "text": "and"}, second]]
    turns = [Turn([1], [2], None, 0.0, parts, "", "stop", {"final_obs": [first]}) for parts in seen]
    shown = Episode("vision:X", 0, turns, True, False, "terminated")
    path = tmp_path / "traces.jsonl"
    with TraceWriter(path) as traces:
        traces.write(shown)
        traces.write(episode(0))
    assert list(read_traces(path)) == [shown, episode(0)]
    line, plain = path.read_text().splitlines()
    record = json.loads(line)
    assert record["schema_version"] == json.loads(plain)["schema_version"] == 3
    assert "images" not in json.loads(plain)
    assert list(record)[-1] == "images"
    assert len(record["images"]) == 2
    for url in image_urls([first, second]):
        assert line.count(url) == 1
    (name, _) = record["images"]
    assert record["turns"][0]["observation"] == [{"type": "image_url", "image_url": {"url": name}}]
    assert seen[0] == [first], "the episode itself is left alone"


def test_a_record_that_lacks_an_image_is_rejected() -> None:
    parts: Any = [image_part(b"GIF89a")]
    record = Episode(
        "X", 0, [Turn([1], [2], None, 0.0, parts, "", "stop")], True, False, "terminated"
    ).to_dict()
    for images in ({"images": {}}, {}):
        del record["images"]
        record |= images
        with pytest.raises(TraceError, match=r"the image 'image:[0-9a-f]{16}' is missing"):
            Episode.from_dict(record)


def test_token_texts_travel_with_the_tokens(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    asked: list[int] = []

    def decode(ids: list[int]) -> str:
        asked.extend(ids)
        return chr(ids[0])

    write(path, 0, 1, decode=decode)
    assert len(asked) == len(set(asked)), "each id is decoded once"
    assert read_token_texts(path) == {id: chr(id) for id in {1, 2, 3, 4, *map(ord, "Zwölf")}}
    assert list(read_traces(path)) == [episode(0), episode(1)]
    write(tmp_path / "plain.jsonl", 0)
    assert read_token_texts(tmp_path / "plain.jsonl") == {}


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_an_incomplete_last_line_is_dropped_by_readers_and_removed_by_writers(
    tmp_path: Path, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "traces.jsonl"
    write(path, 0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    with caplog.at_level(logging.WARNING):
        assert list(read_traces(path)) == [episode(0)]
    assert "incomplete last line" in caplog.text
    assert str(path) in caplog.text
    write(path, 1)
    assert list(read_traces(path)) == [episode(0), episode(1)]


def test_a_file_with_one_incomplete_line_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"x" * 200_000)
    write(path, 1)
    assert list(read_traces(path)) == [episode(1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{not json", "line 2: not JSON"),
        (b"\xff\xfe", "line 2: not JSON"),
        (b"", "line 2: not JSON"),
        (b"[1]", "line 2: expected an object, not list"),
        (b'{"schema_version": 99}', "line 2: trace schema version 99 is not supported"),
        (b'{"schema_version": 1}', "line 2: not an episode"),
        (b'{"schema_version": 1, "turns": [{"unknown": 1}]}', "line 2: not an episode"),
    ],
)
def test_other_damage_names_the_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "traces.jsonl"
    write(path, 0)
    with open(path, "ab") as file:
        file.write(line + b"\n")
    write(path, 1)
    reader = read_traces(path)
    assert next(reader) == episode(0)
    with pytest.raises(TraceError, match=message) as caught:
        next(reader)
    assert str(path) in str(caught.value)


def test_damaged_token_texts_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text('{"token_text": {"x": "y"}}\n', encoding="utf-8")
    with pytest.raises(TraceError, match="line 1: token_text"):
        read_token_texts(path)


def test_writers_side_by_side_do_not_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    seeds = [range(number * 25, number * 25 + 25) for number in range(4)]
    threads = [threading.Thread(target=write, args=(path, *numbers)) for numbers in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(episode.seed or 0 for episode in read_traces(path)) == list(range(100))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_names_the_file() -> None:
    traces = TraceWriter("/dev/full")
    with pytest.raises(OSError, match="/dev/full") as caught:
        traces.write(episode(0))
    assert caught.value.errno == errno.ENOSPC
    traces.close()


def test_a_line_that_does_not_fit_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "traces.jsonl"
    real = os.write
    with TraceWriter(path) as traces:
        traces.write(episode(0))

        def short_of_space(file: int, data: bytes) -> int:  # the disk has space for 100 more bytes
            if len(data) < len(line):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(file, data[:100])

        line = path.read_bytes()
        monkeypatch.setattr(os, "write", short_of_space)
        with pytest.raises(OSError, match=r"traces\.jsonl"):
            traces.write(episode(0))
        monkeypatch.undo()
        assert path.read_bytes() == line
        traces.write(episode(1))
    assert list(read_traces(path)) == [episode(0), episode(1)]


def test_a_folder_that_cannot_be_made_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        TraceWriter(tmp_path / "file" / "traces.jsonl")


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    traces = TraceWriter(tmp_path / "traces.jsonl")
    traces.close()
    traces.close()
    with pytest.raises(ValueError, match="is closed"):
        traces.write(episode(0))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_vanishes_is_an_error(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "traces.jsonl"
    with TraceWriter(path) as traces:
        traces.write(episode(0))
        path.unlink()
        if replaced:
            path.touch()
        with pytest.raises(FileNotFoundError, match=r"traces\.jsonl"):
            traces.write(episode(1))
