"""Frames out of any bytes."""

from __future__ import annotations

import struct

from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_ros.flight.mavlink.dialect import mav
from efftam_ros.flight.mavlink.framing import Decoder, Encoder

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


@given(junk=st.binary(max_size=40), pieces=st.integers(1, 7))
@settings(deadline=None)
def test_a_stream_finds_every_frame_however_it_is_cut(junk, pieces):
    data = junk + frame(0) + frame(1) + frame(2)
    # Enough behind them that no length in the junk can reach beyond.
    data += b"\0" * 300
    decoder = Decoder(datagrams=False)
    size = -(-len(data) // pieces)
    found = [m for i in range(0, len(data), size) for m in decoder.feed(data[i : i + size])]
    assert [m.get_seq() for m in found][-3:] == [0, 1, 2]


@example(10, 0xFD)  # looks like the start of a frame that reaches into the next
@given(st.integers(0, len(frame()) - 1), st.integers(1, 255))
def test_a_flipped_byte_loses_that_frame_alone(place, flip):
    broken = bytearray(frame(0))
    broken[place] ^= flip
    found = Decoder(datagrams=True).feed(bytes(broken) + frame(1))
    assert 1 in [m.get_seq() for m in found if m.get_type() == "HEARTBEAT"]


def test_a_cut_off_datagram_does_not_swallow_the_next():
    decoder = Decoder(datagrams=True)
    assert decoder.feed(frame()[:-4]) == []
    assert len(decoder.feed(frame())) == 1


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
