"""Messages read and written in their serialised form are those that rclpy makes of the same bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from efftam_ros.msg import BoundingBox, GimbalStatus, TargetVelocity, VehicleHeading
from geometry_msgs.msg import QuaternionStamped, TwistStamped
from hypothesis import given
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message

from efftam_ros.core.errors import InputError
from efftam_ros.ros.common.cdr import Reader, Writer
from efftam_ros.ros.gimbal.conversions import ATTITUDE_FIELDS, ESTIMATE_FIELDS, VEHICLE_FIELDS
from efftam_ros.ros.mavlink.tracker_topics import STATUS_FIELDS

pytestmark = pytest.mark.ros

READ = {
    TargetVelocity: ESTIMATE_FIELDS,
    BoundingBox: STATUS_FIELDS,
    QuaternionStamped: ATTITUDE_FIELDS,
    VehicleHeading: VEHICLE_FIELDS,
    TwistStamped: ("twist.angular",),
}
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NUMBERS = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "boolean": st.booleans(),
    "uint8": st.integers(0, 255),
    "uint32": st.integers(0, 2**32 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "string": texts,
}


def filled(draw, message):
    """The message with something in each of its fields."""
    for name, kind in message.get_fields_and_field_types().items():
        if kind in NUMBERS:
            setattr(message, name, draw(NUMBERS[kind]))
        elif "[" in kind:
            count = int(kind[kind.index("[") + 1 : -1])
            setattr(message, name, draw(st.lists(NUMBERS["double"], min_size=count, max_size=count)))
        else:
            filled(draw, getattr(message, name))
    return message


def basic(message):
    """All basic fields in order, as `Writer.write` takes them."""
    found = []
    for name, kind in message.get_fields_and_field_types().items():
        value = getattr(message, name)
        if kind in NUMBERS:
            found.append(value)
        elif "[" in kind:
            found += list(value)
        else:
            found += basic(value)
    return found


def value_at(record, path: str):
    for name in path.split("."):
        record = getattr(record, name)
    return record


def same(record, message) -> bool:
    if hasattr(message, "get_fields_and_field_types"):
        return all(same(getattr(record, f), getattr(message, f)) for f in record._fields)
    return record == message


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_is_read_is_what_was_sent(kind, data):
    message = filled(data.draw, kind())
    record = Reader(kind, *READ[kind]).read(serialize_message(message))
    for path in READ[kind]:
        assert same(value_at(record, path), value_at(message, path))


def test_arrays_are_read_whole():
    message = TargetVelocity(covariance=[float(i) for i in range(16)], predicted_azimuth=0.25)
    record = Reader(TargetVelocity, "covariance", "predicted_azimuth").read(serialize_message(message))
    assert record.covariance == tuple(range(16))
    assert record.predicted_azimuth == 0.25
    assert record._fields == ("covariance", "predicted_azimuth")


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_is_written_is_read_by_rclpy(kind, data):
    message = filled(data.draw, kind())
    assert deserialize_message(Writer(kind).write(*basic(message)), kind) == message


@given(data=st.data())
def test_a_writer_of_the_other_byte_order_is_understood(data):
    message = VehicleHeading(yaw=0.5, yaw_rate=-2.0)
    message.header.frame_id = data.draw(texts)
    little = serialize_message(message)
    text = len(message.header.frame_id.encode()) + 1
    at = 16 + text + (-(12 + text) % 8)
    swapped = b"\0\0\0\0" + little[4:8][::-1] + little[8:12][::-1] + little[12:16][::-1] + little[16:at]
    swapped += little[at : at + 8][::-1] + little[at + 8 : at + 16][::-1]
    record = Reader(VehicleHeading, "header", "yaw", "yaw_rate").read(swapped)
    assert (record.header.frame_id, record.yaw, record.yaw_rate) == (message.header.frame_id, 0.5, -2.0)


@given(cut=st.integers(0, 200), noise=st.binary(max_size=64), at=st.integers(4, 100))
def test_damaged_bytes_are_refused_or_read_and_nothing_else(cut, noise, at):
    whole = serialize_message(TargetVelocity(reason="the target is lost"))
    reader = Reader(TargetVelocity, *ESTIMATE_FIELDS)
    for damaged in (whole[:cut], noise, whole[:at] + noise + whole[at + len(noise) :]):
        with suppress(InputError):
            assert reader.read(damaged)._fields
    with pytest.raises(InputError, match=f"{min(cut, len(whole) - 1)} bytes|encoding"):
        reader.read(whole[:-1][:cut])


def test_an_unknown_encoding_is_named():
    whole = serialize_message(VehicleHeading())
    with pytest.raises(InputError, match=r"0006.*RMW_IMPLEMENTATION"):
        Reader(VehicleHeading, "yaw").read(b"\0\6" + whole[2:])


def test_kinds_and_fields_that_cannot_be_read_are_refused():
    with pytest.raises(TypeError, match=r"GimbalStatus\.at_stop"):
        Reader(GimbalStatus, "phase")
    with pytest.raises(KeyError, match="roll"):
        Reader(VehicleHeading, "roll")
