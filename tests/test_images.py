from __future__ import annotations

import io

import pytest

from gem_core import render_observation
from gem_core._images import check_parts, open_image
from gem_core._observations import observation_text
from gem_core.errors import ConfigError, DataError
from gem_core.images import image_bytes, image_part, image_urls, text_part
from tests.support import PIXEL


def test_a_part_holds_the_image_itself():
    part = image_part(PIXEL)
    (url,) = image_urls([part, text_part("What is this?")])
    assert url.startswith("data:image/png;base64,iVBOR")
    assert image_bytes(url) == PIXEL
    assert image_urls("text") == []


@pytest.mark.parametrize(
    ("head", "kind"), [(b"\xff\xd8\xff\xe0", "jpeg"), (b"GIF89a", "gif"), (b"RIFF\0\0\0\0WEBP", "webp")]
)
def test_the_formats_that_models_take(head, kind):
    assert image_part(head)["image_url"]["url"].startswith(f"data:image/{kind};base64,")


@pytest.mark.parametrize(
    "data", [b"", b"<svg></svg>", b"%PDF-1.7", b"RIFF\0\0\0\0WAVE", b"\x89PNG", None, "iVBORw0KGgo"]
)
def test_data_that_is_not_an_image_is_rejected(data):
    with pytest.raises(DataError, match=r"image.*png") as caught:
        image_part(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            "not the data URL of an image",
        ),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, "damaged"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "not an image"),
        ({"type": "image_url"}, "not a content part"),
        ({"type": "image_url", "image_url": "data:"}, "not a content part"),
        ({"type": "video_url"}, "video_url"),
        ({"type": "text", "text": 3}, "text: expected a str"),
        ("text", "not a content part"),
    ],
)
def test_parts_that_cannot_be_shown(part, reason):
    check_parts([text_part("a"), image_part(PIXEL)])
    with pytest.raises(DataError, match=rf"part 1 of the observation.*{reason}"):
        check_parts([text_part("a"), part])


def test_prefix_and_suffix_go_around_the_parts_and_text_alone_rejects_them():
    shown = render_observation([image_part(PIXEL)], {"prefix": "before", "suffix": "after"})
    assert [part["type"] for part in shown] == ["text", "image_url", "text"]
    with pytest.raises(ConfigError, match="image_url"):
        observation_text(shown)


class TestDecoded:
    """Images as passed to a processor."""

    @pytest.fixture(autouse=True)
    def _pillow(self):
        pytest.importorskip("PIL", reason="needs the extra 'vision'")

    @staticmethod
    def url(image, kind="PNG"):
        file = io.BytesIO()
        image.save(file, kind)
        return image_urls([image_part(file.getvalue())])[0]

    def test_every_mode_becomes_rgb_on_white(self):
        from PIL import Image

        for mode, color in (("L", 0), ("RGB", (0, 0, 0)), ("1", 0), ("RGBA", (0, 0, 0, 255))):
            opened = open_image(self.url(Image.new(mode, (4, 3), color)))
            assert (opened.mode, opened.size, opened.getpixel((0, 0))) == ("RGB", (4, 3), (0, 0, 0))
        clear = open_image(self.url(Image.new("RGBA", (2, 2), (255, 0, 0, 0))))
        assert clear.getpixel((0, 0)) == (255, 255, 255)
        assert open_image(self.url(Image.new("RGB", (8, 8), (200, 200, 200)), "JPEG")).size == (8, 8)

    def test_a_file_that_is_cut_is_reported_in_one_line(self):
        for data in (PIXEL[:40], PIXEL[:8], b"\xff\xd8\xff" + b"x" * 100):
            with pytest.raises(DataError, match=rf"image of {len(data)} bytes cannot be decoded"):
                open_image(image_urls([image_part(data)])[0])
