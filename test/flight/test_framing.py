"""Frames out of any bytes."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder, Encoder

BEAT = mav.MAVLink_heartbeat_message(30, 8, 0, 0, 4, 3)


def frame(count: int = 0) -> bytes:
    encoder = Encoder(1, 100)
    for _ in range(count):
        encoder.encode(BEAT)
    return encoder.encode(BEAT)


def test_frames_are_mavlink_2_with_a_running_sequence():
    encoder = Encoder(1, 100)
    frames = [encoder.encode(BEAT) for _ in range(300)]
    assert {f[0] for f in frames} == {0xFD}
    assert [f[4] for f in frames] == [i % 256 for i in range(300)]


@given(st.binary(max_size=600))
@settings(max_examples=300, deadline=None)
def test_no_bytes_raise(data):
    for datagrams in (True, False):
        Decoder(datagrams).feed(data)


@given(junk=st.binary(max_size=40), pieces=st.integers(1, 9))
@settings(deadline=None)
def test_a_stream_is_found_again_after_any_bytes_however_it_is_cut(junk, pieces):
    # No length in the junk reaches beyond 280 bytes.
    data = junk + b"".join(map(frame, range(20)))
    decoder = Decoder(datagrams=False)
    size = -(-len(data) // pieces)
    found = [m.get_seq() for i in range(0, len(data), size) for m in decoder.feed(data[i : i + size])]
    assert found[-5:] == [15, 16, 17, 18, 19]
    assert not decoder._parser.buf  # what was read is not kept


@given(st.integers(0, len(frame()) - 1), st.integers(1, 255), st.booleans())
def test_a_flipped_byte_or_a_cut_loses_that_datagram_alone(place, flip, is_cut):
    broken = bytearray(frame(0))
    broken[place] ^= flip
    decoder = Decoder(datagrams=True)
    decoder.feed(bytes(broken[: place if is_cut else None]))
    assert [m.get_seq() for m in decoder.feed(frame(1))] == [1]


def test_mavlink_1_is_read():
    old = mav.MAVLink(None, 255, 190)
    found = Decoder(True).feed(BEAT.pack(old, force_mavlink1=True))
    assert [m.get_srcSystem() for m in found] == [255]


def test_a_frame_of_an_unknown_flag_is_passed_over():
    later = bytearray(frame(0))
    later[2] = 0x04
    assert len(Decoder(True).feed(bytes(later) + frame(1))) == 1


def test_messages_of_another_dialect_are_passed_over():
    unknown = struct.pack("<BBBBBBBHB", 0xFD, 1, 0, 0, 0, 1, 1, 0xFFF0, 0xAB) + b"\x01\x00\x00"
    assert [m.get_type() for m in Decoder(True).feed(unknown + frame())] == ["HEARTBEAT"]
