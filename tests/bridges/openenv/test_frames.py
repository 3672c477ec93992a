import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.bridges.openenv import frames
from gem_core.bridges.openenv.frames import FrameError, FrameReader, encode_frame


def test_the_accept_key_matches_the_standard():
    assert frames.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(st.lists(st.binary(max_size=300), max_size=4), st.booleans(), st.integers(1, 400))
def test_messages_survive_any_chunking(payloads, masked, chunk):
    check_chunks(payloads, masked, chunk)


@pytest.mark.parametrize("chunk", [999, 65_536, 1 << 20])
@pytest.mark.parametrize("masked", [True, False])
def test_long_messages_survive_any_chunking(masked, chunk):
    check_chunks(
        [bytes(range(256)) * 256 + bytes(extra) for extra in (0, 1)] + [b"x" * 65_535], masked, chunk
    )


def check_chunks(payloads, masked, chunk):
    data = b"".join(encode_frame(payload, mask=masked) for payload in payloads)
    reader = FrameReader(masked=masked, max_size=1 << 17)
    messages = []
    for start in range(0, len(data), chunk):
        messages += reader.feed(data[start : start + chunk])
    assert messages == [(frames.TEXT, payload) for payload in payloads]


def fragment(payload, opcode, final):
    frame = bytearray(encode_frame(payload, opcode))
    if not final:
        frame[0] &= 0x7F
    return bytes(frame)


def test_fragments_are_joined_around_control_frames():
    reader = FrameReader(masked=False, max_size=100)
    data = fragment(b"one ", frames.TEXT, False) + encode_frame(b"?", frames.PING)
    data += fragment(b"two ", 0, False) + fragment(b"three", 0, True)
    assert reader.feed(data) == [(frames.PING, b"?"), (frames.TEXT, b"one two three")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (encode_frame(b"x" * 101), frames.TOO_BIG),
        (fragment(b"x" * 60, frames.TEXT, False) + fragment(b"x" * 60, 0, True), frames.TOO_BIG),
        (encode_frame(b"x", mask=True), frames.PROTOCOL_ERROR),
        (fragment(b"x", 0, True), frames.PROTOCOL_ERROR),
        (fragment(b"x", frames.TEXT, False) + fragment(b"x", frames.TEXT, True), frames.PROTOCOL_ERROR),
        (fragment(b"x", frames.PING, False), frames.PROTOCOL_ERROR),
        (bytes((0xC1, 1)) + b"x", frames.PROTOCOL_ERROR),
        (bytes((0x83, 1)) + b"x", frames.PROTOCOL_ERROR),
    ],
    ids=["long", "fragments", "mask", "no start", "two starts", "cut ping", "extension", "opcode"],
)
def test_broken_frames_are_rejected_with_their_code(data, code):
    with pytest.raises(FrameError) as error:
        FrameReader(masked=False, max_size=100).feed(data)
    assert error.value.code == code


def test_the_reason_of_a_close_frame_is_cut_at_a_character():
    payload = frames.encode_close(1000, "é" * 200)
    assert len(payload) <= 125
    assert set(payload[2:].decode()) == {"é"}
