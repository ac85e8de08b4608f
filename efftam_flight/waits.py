"""Waiting times of the gimbal controller and the bridge, s. Both import this table, so that they can't
disagree. Times that users can set are fields of `ControlConfig` and `BridgeConfig`."""

from __future__ import annotations

# Sending of rates
TICK_S = 0.02  # period of controller and bridge, which work at 50 Hz
# Period at which an unchanged rate is repeated. PX4 stops the gimbal after 2 s without a rate, but some
# gimbals shake at each repetition.
KEEP_ALIVE_S = 0.2
ZERO_S = 0.1  # time between two zero rates of a stop sequence
CONTROLLER_SILENT_S = 0.3  # after this time without a rate of the controller, the bridge stops the gimbal
# If the link was cut during a motion, the last rate that the autopilot received may have been sent up to this
# time before the motion ended.
EARLIER_S = 1.0
NO_ATTITUDE_REPORT_S = 5.0  # a warning is logged if zero rates are sent for this long without any attitude

# Control of the gimbal
MANAGER_S = 3.0  # longest wait for the manager's report on who is in control, requested again every 2 s
ASK_AGAIN_S = 1.0  # time between two requests for control, and between two releases
MAX_REQUESTS = 5
GIVEN_S = 10.0  # steering ends if control was not granted within this time after `enable`

# Motion of the gimbal

# A gimbal whose angles do not change for this long stands. A gimbal that works responds to a rate in this
# time.
STANDS_S = 0.5
LAG_S = 0.15  # time that a slow gimbal takes to change to another rate
CREEP_S = 2.0  # after this time a motion is visible that is too slow to be seen in half a second
ATTITUDE_PAUSE_S = 0.6  # after a longer pause attitudes count as missing; slow links deliver two per second
GEOMETRY_S = 1.0  # rates stay small for this long, until the picture has shown that the gimbal moves it
STALL_REST_S = 1.0  # for this long no motion is commanded after the gimbal stalled
# Rates are limited until an attitude shows that the gimbal responds. After this time without any attitude
# they are not limited any more.
NO_ANSWER_EXPECTED_S = 3.0

# Silence
GIMBAL_SILENT_S = 0.5  # after this time without a message of the gimbal itself, the gimbal counts as silent
# After this time without a message that carries the autopilot's time, rates are zero: it may be restarting.
AUTOPILOT_PAUSE_S = 0.5
AUTOPILOT_SILENT_S = 3.0  # after this time without any message of the autopilot, nothing is sent to it
BRIDGE_SILENT_S = 3.0  # after this time without a status of the bridge, the controller assumes that it ended
BRIDGE_STATUS_S = 1.0  # period of the bridge's status
