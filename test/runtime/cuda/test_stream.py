"""Streams, events, captured graphs."""

from __future__ import annotations

import numpy as np
import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.cuda.samples import COUNT, add_kernel, floats

from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.stream import CapturedGraph, Event, Stream

NBYTES = 4 * COUNT


class Board:
    """A stream with host and device buffers of 64 floats."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.stream = Stream(cuda)
        self.given, self.result = HostBuffer(cuda, NBYTES), HostBuffer(cuda, NBYTES)
        self.x, self.y = DeviceBuffer(cuda, NBYTES), DeviceBuffer(cuda, NBYTES)
        self.given.view(np.float32, (COUNT,))[:] = np.arange(COUNT)
        self.launch = add_kernel(cuda).bind((1, 1, 1), (64, 1, 1), self.x.pointer, self.y.pointer, COUNT, 0.5)

    def frame(self) -> None:
        self.stream.copy_in(self.x.pointer, self.given, NBYTES)
        self.launch.run(self.stream)
        self.stream.copy_out(self.result, self.y.pointer, NBYTES)

    @property
    def answer(self) -> np.ndarray:
        return self.result.view(np.float32, (COUNT,))


@pytest.fixture
def board(cuda: Cuda) -> Board:
    return Board(cuda)


class TestAStream:
    def test_copies_parts_of_host_buffers(self, board: Board) -> None:
        board.stream.zero(board.x.pointer, NBYTES)
        board.stream.copy_in(board.x.pointer + 16, board.given, 8, offset=40)
        board.stream.copy(board.y.pointer, board.x.pointer, NBYTES)
        board.stream.copy_out(board.result, board.y.pointer + 16, 8, offset=4)
        board.stream.synchronize()
        assert floats(board.y.pointer)[[0, 3, 4, 5, 6]].tolist() == [0, 0, 10, 11, 0]
        assert board.answer[1:3].tolist() == [10, 11]

    def test_copies_parts_of_a_matrix_and_nothing_beside_them(self, board: Board) -> None:
        """Of 4 rows of 16 floats; the description of a part is the stream's own and used again."""
        expected = np.zeros((4, 16), np.float32)
        board.stream.zero(board.x.pointer, NBYTES)
        for rows, columns in (
            (slice(1, 3), slice(3, 8)),
            (slice(0, 1), slice(0, 1)),
            (slice(3, 4), slice(9, 16)),
        ):
            part = slice(4 * columns.start, 4 * columns.stop)
            board.stream.copy_part_in(board.x.pointer, board.given, 64, rows, part)
            expected[rows, columns] = np.arange(64).reshape(4, 16)[rows, columns]
        board.stream.copy_out(board.result, board.x.pointer, NBYTES)
        board.stream.synchronize()
        assert np.array_equal(board.answer.reshape(4, 16), expected)

    @pytest.mark.parametrize(
        ("pitch", "rows", "columns"),
        [
            (64, slice(3, 5), slice(0, 4)),
            (64, slice(-1, 1), slice(0, 4)),
            (64, slice(2, 2), slice(0, 4)),
            (64, slice(0, 1), slice(60, 65)),
            (64, slice(0, 1), slice(-4, 4)),
            (64, slice(0, 1), slice(4, 4)),
            (0, slice(0, 1), slice(0, 4)),
        ],
    )
    def test_copies_no_part_beyond_the_matrix_or_the_buffer(
        self, fake: FakeGpu, board: Board, pitch: int, rows: slice, columns: slice
    ) -> None:
        with pytest.raises(ValueError, match=r"give a (larger one|part of the matrix)"):
            board.stream.copy_part_in(board.x.pointer, board.given, pitch, rows, columns)
        assert fake.calls("cuMemcpy2DAsync") == []

    def test_copies_from_and_to_pinned_memory_alone(self, board: Board) -> None:
        pageable = np.zeros(COUNT, np.float32)
        with pytest.raises(TypeError, match="ndarray would make the host wait; use a HostBuffer"):
            board.stream.copy_in(board.x.pointer, pageable, NBYTES)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ndarray would make the host wait; use a HostBuffer"):
            board.stream.copy_part_in(board.x.pointer, pageable, 64, slice(0, 1), slice(0, 4))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="int would make the host wait"):
            board.stream.copy_out(board.result.pointer, board.x.pointer, NBYTES)  # type: ignore[arg-type]

    def test_takes_no_work_once_closed(self, board: Board) -> None:
        board.stream.close()
        board.stream.close()
        for use in (board.stream.synchronize, board.frame, lambda: board.launch.run(board.stream)):
            with pytest.raises(ValueError, match="was closed"):
                use()
        with pytest.raises(ValueError, match="was closed"):
            _ = board.stream.handle


class TestAnEvent:
    def test_marks_work_that_the_host_can_wait_for(self, fake: FakeGpu, board: Board) -> None:
        event = Event(board.cuda)
        board.frame()
        board.stream.record(event)
        event.wait()
        assert board.answer[3] == 3.5
        assert [call.name for call in fake.host_waits()] == ["cuEventSynchronize"]

    def test_lets_the_host_sleep_and_takes_no_time_unless_asked(self, fake: FakeGpu, cuda: Cuda) -> None:
        Event(cuda)
        Event(cuda, timing=True)
        assert [call.summary for call in fake.calls("cuEventCreate")] == ["3", "1"]

    def test_measures_the_time_between_two_that_were_made_with_timing(self, board: Board) -> None:
        start, end = Event(board.cuda, timing=True), Event(board.cuda, timing=True)
        board.stream.record(start)
        board.frame()
        board.stream.record(end)
        end.wait()
        assert end.milliseconds_since(start) > 0
        for one, other in ((start, Event(board.cuda)), (Event(board.cuda), start)):
            with pytest.raises(ValueError, match="timing=True"):
                one.milliseconds_since(other)

    def test_can_be_asked_whether_it_has_passed_without_a_wait(self, fake: FakeGpu, board: Board) -> None:
        event = Event(board.cuda)
        board.frame()
        board.stream.record(event)
        asked = 1
        assert not event.has_passed
        while not event.has_passed:
            asked += 1
        assert asked >= 3  # two copies and a kernel come first
        assert board.answer[3] == 3.5
        assert list(fake.host_waits()) == []
        event.close()
        with pytest.raises(ValueError, match="was closed"):
            _ = event.has_passed

    def test_is_closed_once(self, cuda: Cuda) -> None:
        event = Event(cuda)
        event.close()
        event.close()
        with pytest.raises(ValueError, match="was closed"):
            event.wait()


class TestACapturedGraph:
    def test_runs_only_when_launched_each_time_with_what_the_memory_holds(self, board: Board) -> None:
        with board.stream.capture() as graph:
            board.frame()
        board.answer[:] = 0
        board.stream.synchronize()
        assert not board.answer.any()
        for first in (0, 100):
            board.given.view(np.float32, (COUNT,))[:] = first
            graph.launch(board.stream)
            board.stream.synchronize()
            assert (board.answer == first + 0.5).all()

    def test_is_uploaded_and_all_that_is_left(self, fake: FakeGpu, board: Board) -> None:
        held = fake.driver.functions.held
        with board.stream.capture():
            board.frame()
        assert fake.driver.functions.held == held + 1
        assert len(fake.calls("cuGraphUpload")) == 1

    def test_can_not_be_launched_before_its_capture_ends_or_once_closed(self, board: Board) -> None:
        with board.stream.capture() as graph, pytest.raises(ValueError, match="launch it after its capture"):
            graph.launch(board.stream)
        graph.close()
        graph.close()
        with pytest.raises(ValueError, match="launch it after its capture"):
            graph.launch(board.stream)

    def test_keeps_nothing_when_its_block_raises(self, fake: FakeGpu, board: Board) -> None:
        held = fake.driver.functions.held
        kept: list[CapturedGraph] = []

        def failing() -> None:
            with board.stream.capture() as graph:
                kept.append(graph)
                board.frame()
                raise KeyError("own")

        with pytest.raises(KeyError, match="own"):
            failing()
        assert fake.driver.functions.held == held
        board.frame()  # the stream works on
        board.stream.record(Event(board.cuda))
        board.stream.synchronize()
        with pytest.raises(ValueError, match="launch it after its capture"):
            kept[0].launch(board.stream)

    @pytest.mark.parametrize("step", ["cuStreamEndCapture", "cuGraphInstantiate", "cuGraphUpload"])
    def test_keeps_nothing_when_cuda_refuses_it(self, fake: FakeGpu, board: Board, step: str) -> None:
        held = fake.driver.functions.held
        fake.fail(step, 2)
        with pytest.raises(CudaError, match=f"{step} failed"), board.stream.capture():
            board.frame()
        assert fake.driver.functions.held == held
