"""The table of waiting times of controller and bridge, s. Both sides read it, so that they can't disagree.
Values with a range for the user stand in `ControlConfig` and `BridgeConfig`.
"""

from __future__ import annotations

# Rates on the wire
TICK_S = 0.02  # controller and bridge work at 50 Hz
KEEP_ALIVE_S = 0.2  # a rate that holds is repeated: PX4 stops after 2 s without one, some gimbals shake
ZERO_S = 0.1  # between the zeros of a stop sequence
CONTROLLER_SILENT_S = 0.3  # without a rate of the controller for so long the bridge stops the gimbal
EARLIER_S = 1.0  # a link that was cut may have ended with a rate that was sent so long ago
NO_ATTITUDE_REPORT_S = 5.0  # zeros go on without any attitude for so long: that is reported

# Who is in control
MANAGER_S = 3.0  # the manager's answer on who is in control; it is asked for again every 2 s
ASK_AGAIN_S = 1.0  # between two requests for control, and between two releases
MAX_REQUESTS = 5
GIVEN_S = 10.0  # control is not given within so long after `enable`: steering ends

# The gimbal's own motion
STANDS_S = 0.5  # it stands whose angles stay for so long; a rate that is sent is answered within so long
LAG_S = 0.15  # a slow gimbal takes so long to turn by another rate
CREEP_S = 2.0  # by then a motion shows that is too slow to be seen in half a second
ATTITUDE_PAUSE_S = 0.6  # a slow link brings two attitudes a second: a longer pause is no sign
GEOMETRY_S = 1.0  # rates stay small for so long until the picture answers the gimbal's motion
STALL_REST_S = 1.0  # nothing is asked of a gimbal that stood against its rates
NO_ANSWER_EXPECTED_S = 3.0  # without an attitude for so long no answer of the gimbal is waited for

# Silence
GIMBAL_SILENT_S = 0.5  # the gimbal's own messages
AUTOPILOT_PAUSE_S = 0.5  # messages with the autopilot's time: it may have been restarted, rates become zero
AUTOPILOT_SILENT_S = 3.0  # any message of the autopilot: the link is broken, nothing is sent
BRIDGE_SILENT_S = 3.0  # the bridge's status, which comes once a second: the controller assumes that it ended
BRIDGE_STATUS_S = 1.0
