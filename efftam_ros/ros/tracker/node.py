"""The lifecycle node `efftam_tracker`: transitions, parameters, services and diagnostics."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import BackendError, InputError, PipelineLostError
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.core.targets import TargetSet
from efftam_ros.messages.fields import Outcome
from efftam_ros.ros.common.nodes import (
    ReportingNode,
    Throttle,
    ThrottledLog,
    diagnostics,
    reported,
    steady_timer,
)
from efftam_ros.ros.common.parameters import changed, read_parameters
from efftam_ros.ros.tracker.diagnostics import Setup, Statistics
from efftam_ros.ros.tracker.frame_buffer import Command, FrameBuffer
from efftam_ros.ros.tracker.loop import Exchange
from efftam_ros.ros.tracker.parameters import PARAMETERS, NodeConfig
from efftam_ros.ros.tracker.publishing import Outputs
from efftam_ros.ros.tracker.receiving import Selections
from efftam_ros.ros.tracker.session import Session
from efftam_ros.runtime.backends import DEFAULT_BACKEND, backend_of
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.runtime.preprocess import reserve_workspace
from efftam_ros.srv import ClearTarget, SelectTarget, SteerTarget

if TYPE_CHECKING:
    from efftam_ros.core.contract import Pipeline

    # The type of `open_pipeline`, and of the functions that tests use in its place.
    PipelineFactory = Callable[[NodeConfig], Pipeline]

NODE_NAME = "efftam_tracker"
ENDING = ReasonCode.NODE_ENDS.reason()


class TrackerNode(ReportingNode):
    """Tracks targets in the images of a topic.

    | transition | creates | releases |
    |---|---|---|
    | configure | publishers, services, the loop's thread, in which the back end opens the bundle | |
    | activate | subscriptions | |
    | deactivate | | subscriptions (after the current frame), the targets |
    | cleanup, shutdown | | publishers, services, back end, the loop's thread |
    """

    def __init__(self, pipeline_factory: PipelineFactory = open_pipeline, **kwargs: Any) -> None:
        super().__init__(NODE_NAME, **kwargs)
        PARAMETERS.declare(self)
        self._pipeline_factory = pipeline_factory
        self._read_parameters()
        self._statistics = Statistics()
        self._setup = Setup()
        self._warn = Throttle(lambda text: self.get_logger().warning(text))
        self._made = ExitStack()  # releases what `on_configure` created
        self._targets: TargetSet | None = None
        self._outputs: Outputs | None = None
        self._session: Session | None = None
        self._accepted = 0
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._diagnostics_timer = steady_timer(
            self, self._config.diagnostics_period, self.publish_diagnostics
        )
        self.add_on_set_parameters_callback(self._on_set_parameters)

    def start(self) -> None:
        super().start()
        if self.fault and self._targets is None and not self.lost:
            self.get_logger().error(
                "the node stays unconfigured: correct the fault above, then configure the node (ros2"
                " lifecycle set) or restart it"
            )

    def close(self) -> None:
        """Finish the current frame, release all resources and destroy the node.

        If the device is `lost`, the network is not released, and the reason is logged.
        """
        self._deactivate(ReasonCode.DEVICE_LOST.reason(fault=self.lost) if self.lost else ENDING)
        if self.lost:
            # The network is not closed: its library may abort when it frees memory on a lost device.
            self.get_logger().fatal(self.lost)
        else:
            self.release()
        self.destroy_timer(self._diagnostics_timer)
        self.destroy_node()

    def internal_error(self, error: Exception) -> None:
        """Store an unforeseen error of a callback, so that diagnostics report it. `run_node` calls this."""
        self._statistics.failed(f"{type(error).__name__}: {error}")

    @property
    def renewal(self) -> str:
        """Why this process should become another DDS participant; empty if it should not. See `run_node`."""
        return "" if self._session is None else self._session.renewal

    @property
    def fault(self) -> str:
        """Why the last transition failed; empty if it succeeded."""
        return self._setup.fault

    @property
    def lost(self) -> str:
        """Why this process can't use the GPU any more; empty as long as it can."""
        return self._statistics.lost

    # Lifecycle transitions

    def failed(self, error: Exception) -> TransitionCallbackReturn:
        if isinstance(error, PipelineLostError):
            self._fail(str(error))
            self._statistics.failed(f"{type(error).__name__}: {error}", for_good=True)
            return TransitionCallbackReturn.FAILURE
        if not isinstance(error, (InputError, BackendError)):
            self._fail(f"{type(error).__name__}: {error}")
            return super().failed(error)
        fault = str(error)
        if isinstance(error, BackendError) and self._config.backend != DEFAULT_BACKEND:
            fault += f"; or start with backend:={DEFAULT_BACKEND}, which runs everywhere"
        self._fail(fault)
        self.get_logger().error(fault)
        return TransitionCallbackReturn.FAILURE

    def _fail(self, fault: str) -> None:
        self._setup = replace(self._setup, fault=fault)

    def transition_ended(self) -> None:
        self.publish_diagnostics()

    @reported
    def on_configure(self, state: LifecycleState) -> None:
        try:
            self._configure()
        except BaseException:
            self.release()
            raise

    def _configure(self) -> None:
        self._setup = Setup()
        self._read_parameters()
        config = self._config
        # One thread opens, uses and closes the pipeline. GPU libraries keep state per thread (the current
        # device, captured graphs, library handles). Another thread would have to create this state again,
        # during its first frame.
        self._thread = ThreadPoolExecutor(1, "efftam_loop")
        self._made.callback(self._thread.shutdown)
        pipeline = self._thread.submit(self._pipeline_factory, config).result()
        self._made.callback(lambda: self._thread.submit(pipeline.close).result())
        reserve_workspace()
        self._targets = open_targets(pipeline, self._tracker_config)
        self._outputs = Outputs(self, config.publish_detections)
        self._made.callback(self._outputs.close)
        for service, name, answer in (
            (SelectTarget, "~/select_target", _select),
            (ClearTarget, "~/clear_target", _clear),
            (SteerTarget, "~/steer_target", _steer),
        ):
            made = self.create_service(service, name, partial(self._answered, answer))
            self._made.callback(self.destroy_service, made)
        self._report_configured(pipeline)
        if pipeline.notice:
            self.get_logger().warning(pipeline.notice)

    def _report_configured(self, pipeline: Pipeline) -> None:
        config, outputs, view = self._config, self._outputs, self._tracker_config.view
        spec = pipeline.spec
        assert outputs is not None
        self._setup = Setup(
            "inactive",
            {
                "bundle": spec.name,
                "back end": config.backend,
                "precision": backend_of(config.backend).resolved(config.precision),
                "policy": self._tracker_config.policy,
                "camera motion from": self._tracker_config.camera_motion,
                "view": spec.default_view if view == "bundle" else view,
                "memory per target (MB)": f"{1e-6 * pipeline.target_bytes:.1f}",
                **outputs.views.facts,
            },
        )
        self.get_logger().info(f"configured: bundle {spec.name} on {config.backend}")
        if self.get_namespace() == "/":
            self.get_logger().info(
                "topics are in the root namespace (/bbox, /velocity, ...); if other nodes share the ROS"
                " graph, give the tracker a namespace: namespace:=NAME, or -r __ns:=/NAME"
            )

    @reported
    def on_activate(self, state: LifecycleState) -> None:
        assert self._targets is not None
        assert self._outputs is not None
        log = ThrottledLog(self.get_logger())
        self._statistics = Statistics(log.warn)
        config = self._config
        buffer = FrameBuffer(config.selection_buffer, config.selection_buffer_bytes, config.image_timeout)
        exchange = Exchange(buffer, self._outputs, self._statistics, log)
        self._session = Session(self, self._targets, exchange, config, self._accepted, self._thread)
        topic = self._session.image_topic
        self._setup = Setup("active", self._setup.values | {"image topic": topic})
        self.get_logger().info(f"active: images from {topic}")

    @reported
    def on_deactivate(self, state: LifecycleState) -> None:
        self._deactivate(ReasonCode.NODE_DEACTIVATED.reason())
        self.get_logger().info("inactive: no images are received until the node is activated")

    @reported
    def on_shutdown(self, state: LifecycleState) -> None:
        self._deactivate(ENDING)
        self.release()
        self._setup = Setup("finalized")

    @reported
    def on_error(self, state: LifecycleState) -> None:
        fault = self.fault
        self._deactivate(ReasonCode.NODE_FAULT.reason(fault=fault))
        self.release()
        self._fail(fault)

    def _deactivate(self, reason: Reason) -> None:
        if self._session is not None:
            self._session.close(reason)
            self._accepted, self._session = self._session.selections.accepted, None
            assert self._targets is not None
            # The loop has ended, possibly before it applied the newest settings.
            self._targets.reconfigure(self._tracker_config)
            self._targets.clear()
            self._setup = replace(self._setup, lifecycle="inactive")

    def release(self) -> None:
        self._made.close()
        self._targets = self._outputs = None
        self._setup = Setup()

    # Methods for parameters

    def _read_parameters(self) -> None:
        self._config = read_parameters(self, NodeConfig)
        self._tracker_config = read_parameters(self, TrackerConfig)

    def _on_set_parameters(self, parameters: list[Any]) -> SetParametersResult:
        changes = {parameter.name: parameter.value for parameter in parameters}
        reasons = PARAMETERS.refusals(changes, configured=self._targets is not None)
        if reasons:
            return SetParametersResult(successful=False, reason="; ".join(reasons))
        before = self._config
        self._config = changed(self._config, changes)
        self._tracker_config = changed(self._tracker_config, changes)
        if self._config.diagnostics_period != before.diagnostics_period:
            self.destroy_timer(self._diagnostics_timer)
            period_s = self._config.diagnostics_period
            self._diagnostics_timer = steady_timer(self, period_s, self.publish_diagnostics)
        if self._session is not None:
            self._session.reconfigure(self._config, self._tracker_config)
        elif self._targets is not None:
            self._targets.reconfigure(self._tracker_config)
        return SetParametersResult(successful=True)

    # Methods for the services

    def _answered(self, act: Callable[[Selections, Any, Any], object], request: Any, response: Any) -> Any:
        """Carry out a service's command by ``act`` and return the response.

        If the command is refused, the response gives the reason and has ``success`` false.
        """
        try:
            if self._session is None:
                reason = ReasonCode.NODE_INACTIVE.reason()
                assert self._outputs is not None  # the outputs exist as long as the services exist
                asked = getattr(request, "selection", request)
                command = Command(getattr(asked, "header", None), asked.target_id)
                self._outputs.publish_result(command, Outcome.REFUSED, reason)
                self._warn("selection", f"command refused: {reason}")
                raise InputError(reason)
            act(self._session.selections, request, response)
            response.success = True
        except InputError as refusal:
            _fill(response, Reason.of(refusal, ReasonCode.COMMAND_REFUSED))
        return response

    # Methods for diagnostics

    def publish_diagnostics(self) -> None:
        """Publish diagnostics. Also called after every transition, so that a failure is reported at once."""
        verdict = self._statistics.verdict(time.monotonic(), self._setup, self._config.image_timeout)
        device = self._setup.values.get("back end", "")
        self._diagnostics.publish(
            diagnostics(self, "tracking", verdict.level, verdict.message, verdict.values, device)
        )


def _fill(response: Any, reason: Reason) -> None:
    response.message, response.reason_code = str(reason), int(reason.code)


def _select(selections: Selections, request: Any, response: Any) -> None:
    command, note = selections.select(request.selection)
    response.selection, response.target_id = command.number, command.target_id
    _fill(response, note)


def _clear(selections: Selections, request: Any, response: Any) -> None:
    selections.clear(Command(None, request.target_id))


def _steer(selections: Selections, request: Any, response: Any) -> None:
    selections.steer(request.target_id)
