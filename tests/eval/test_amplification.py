import io
import json
import struct
import zipfile
import zlib

import pytest

from gem_core import _images
from gem_core.errors import DataError, TraceError
from gem_lab.eval import read_inspect_log


@pytest.mark.parametrize("large", ["header.json", "samples/1_epoch_1.json", "both"])
def test_a_log_that_unpacks_to_far_more_is_refused(tmp_path, large):
    log = {"eval": {"task": "t", "model": "m"}}
    sample = {"id": 1, "epoch": 1, "messages": []}
    with zipfile.ZipFile(tmp_path / "a.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in (("header.json", log), ("samples/1_epoch_1.json", sample)):
            size = {name: 70 << 20, "both": 35 << 20}.get(large, 0)
            archive.writestr(name, json.dumps(value) + " " * size)
    with pytest.raises(TraceError, match="unpacks"):
        read_inspect_log(tmp_path / "a.eval")


def test_an_ordinary_log_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {"task": "t", "model": "m"}}))
        archive.writestr(
            "samples/1_epoch_1.json",
            json.dumps({"id": 1, "epoch": 1, "messages": [{"role": "assistant", "content": "a" * 10**6}]}),
        )
    assert len(read_inspect_log(tmp_path / "a.eval")) == 1


def test_a_text_that_a_log_stores_once_cannot_fill_the_memory(tmp_path):
    text, user = "x" * 10**6, {"role": "user", "content": "attachment://a"}
    sample = {"id": 1, "epoch": 1, "attachments": {"a": text}, "messages": [user] * 1000}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"eval": {"task": "t", "model": "m"}, "samples": [sample]}))
    with pytest.raises(TraceError, match="characters"):
        read_inspect_log(path)


def test_deep_logs_are_damaged(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"eval": {"task": "t", "model": "m"}, "samples": ' + "[" * 9000 + "]" * 9000 + "}")
    with pytest.raises(TraceError, match="within each other"):
        read_inspect_log(path)


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"x") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(8000, 8000), (1, 2**30), (2**20, 17), (100_000, 100_000)])
def test_an_image_with_too_many_pixels_is_not_decoded(size):
    pytest.importorskip("PIL", reason="decodes images")
    (url,) = _images.image_urls([_images.image_part(png(*size))])
    with pytest.raises(DataError, match="pixels"):
        _images.open_image(url)


def test_the_kept_images_have_a_size_in_bytes(monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="decodes images")
    monkeypatch.setattr(_images, "_opened", {})
    monkeypatch.setattr(_images, "_MOST_KEPT", 400_000)
    urls = []
    for color in range(8):
        file = io.BytesIO()
        image.new("RGB", (200, 200), (color, 0, 0)).save(file, "PNG")
        urls += _images.image_urls([_images.image_part(file.getvalue())])
        _images.open_image(urls[-1])
        assert _images.open_image(urls[0]).size == (200, 200)  # used again, so it stays
    assert list(_images._opened) == [urls[6], urls[7], urls[0]]
