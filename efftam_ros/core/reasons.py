"""The table of reasons: why an answer is not valid, a command was refused, the gimbal is not steered.

The nodes publish a reason as a text for people and as a number for programs. Both come from one row here:

    ReasonCode.IMAGE_GAP.reason(gap_s=1.2, max_gap=1.0)

A number keeps its meaning in all releases. A new reason gets a new number.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ReasonCode(IntEnum):
    """A row of the table: number, text with places for values, meaning, and what the user can do.

    Numbers from 100 on are for the tracker's decisions, from 200 for images, from 300 for the node, from 400
    for commands, from 500 for the gimbal controller, from 550 for the gimbal's manager, from 600 for
    following by the autopilot, and from 700 for positions.
    """

    template: str
    meaning: str
    remedy: str

    def __new__(cls, number: int, template: str, meaning: str, remedy: str) -> ReasonCode:
        member = int.__new__(cls, number)
        member._value_ = number
        member.template, member.meaning, member.remedy = template, meaning, remedy
        return member

    def reason(self, **values: object) -> Reason:
        """Return the reason, with these values in its text. Raises KeyError if a value is missing."""
        text = self.template.format_map(values)
        return Reason(self, text or (self.name if self else ""))

    NONE = 0, "", "All is well.", ""
    OTHER = 1, "{text}", "A number that this release does not know.", "Update the package."

    NO_TARGET = (
        100,
        "no target is selected",
        "The state is IDLE.",
        "Select a target.",
    )
    NOT_CONFIRMED = (
        101,
        "the target is not confirmed yet",
        "The state is ACQUIRING: these are the first images after a selection or a return.",
        "Wait for the state TRACKING.",
    )
    LOST = (
        102,
        "the target is lost",
        "The state is LOST: the target was not found for longer than `lost_after`.",
        "Wait for its return, or select it again.",
    )
    NO_MOTION = (
        103,
        "the target's motion is not known",
        "There is no estimate to steer by.",
        "Wait for the next images.",
    )
    CENTER_OUTSIDE = (
        104,
        "the box's centre ({x:.0f}, {y:.0f}) px is outside the image of {width} x {height} px",
        "The target is leaving the image. Nobody can steer by a centre that is not seen.",
        "Turn the camera towards the target.",
    )
    CLEARED = (
        105,
        "the target was cleared",
        "A command or a restart of the loop ended the target.",
        "Select a target.",
    )
    CATCHING_UP = (
        106,
        "processing the images since the selected one: {behind_s:.2f} s behind the camera",
        "The selection named an older image. The tracker processes the images since then.",
        "Wait.",
    )
    NO_TURN = (
        107,
        "the target was not processed for {silence_s:.2f} s: too many targets; remove one",
        "More targets are selected than the computer can process in each image.",
        "Remove a target, or steer by this one.",
    )
    ABSENT = (
        120,
        "the network does not see the target (presence {presence:.2f})",
        "The presence is below `presence_threshold`.",
        "Wait; the target is searched for.",
    )
    EMPTY_MASK = (
        121,
        "the network's mask is empty",
        "The network reports the target as present and marks no pixel.",
        "Wait; if it stays, select the target again with a larger box.",
    )
    MOTION_GATE = (
        122,
        "detection rejected by the motion gate: Mahalanobis distance {distance:.1f}, at most {limit:g} is"
        " allowed (gate_mahalanobis)",
        "The detection lies where the target's motion cannot have taken it.",
        "Wait for `reacquire_frames` images, or raise `gate_mahalanobis`.",
    )
    UNCLEAR = (
        123,
        "detection rejected: predicted IoU {quality:.2f}, at least {least:.2f} is needed",
        "The target is seen much less clearly than usual; mostly something covers it.",
        "Wait until it is uncovered.",
    )
    UNLIKE_RETURN = (
        124,
        "detection rejected: it is too unlike the target to be the target's return",
        "The likeness is too low for a target that was missed.",
        "Wait, or select the target again.",
    )
    UNSURE_RETURN = (
        126,
        "no detection is certain enough to be the target's return; {search}",
        "The missed target is searched for, and something like it was seen.",
        "Wait, or select the target again.",
    )
    FOUND_AGAIN = (
        127,
        "the target was found again",
        "Several detections of the search agree.",
        "Wait for the state TRACKING.",
    )
    OTHER_TARGET = (
        128,
        "this detection belongs to target {target}; {own}",
        "Two targets are near each other, and only one of them was seen.",
        "Wait until both are seen.",
    )
    CHANGED = (
        129,
        "the followed object no longer looks like the selected one (likeness {likeness})",
        "The tracker had followed something else and gave it up. The likeness and its usual value are given.",
        "Wait for the return of the target, or select it again.",
    )
    NOT_FINITE = (
        130,
        "the network's output is not finite; run efftam verify",
        "A value is NaN or infinite: wrong weights, or a fault of the device.",
        "Run `efftam verify`.",
    )

    SUGGESTED = (
        131,
        "the lost target may be here",
        "A proposal that nobody requested: the most probable place of a lost target.",
        "Select the target there if it is the one.",
    )

    NOT_CONFIDENT = (
        132,
        "detection rejected: confidence {confidence:.2f}, at least {least:g} is required (least_confidence)",
        "The detection may be the target, but the probability is below the limit that you have set.",
        "Wait, or lower `least_confidence`.",
    )

    IMAGE_REFUSED = (
        200,
        "{fault}",
        "The image can't be used: encoding, size or stamp.",
        "Follow the text.",
    )
    SAME_STAMP = (
        201,
        "an image with the stamp {stamp_ns} ns was already processed; give each image its own stamp",
        "Two images have the same stamp.",
        "Stamp each image with its own time.",
    )
    STAMP_WENT_BACK = (
        202,
        "the image's stamp went back by {back_s:.3f} s",
        "A bag plays in a loop, or the camera's clock was set.",
        "Select the target again if it is not found.",
    )
    SIZE_CHANGED = (
        203,
        "the image's size changed from {before} to {now}",
        "The camera changed its resolution.",
        "Wait; the target is looked for in the new images.",
    )
    IMAGE_GAP = (
        204,
        "no image for {gap_s:.2f} s (max_gap is {max_gap:g} s)",
        "Images stopped for so long that the target's motion is not known any more.",
        "Check the camera and its transport.",
    )
    IMAGES_STOPPED = (
        205,
        "no image for {silence_s:.2f} s (image_timeout is {timeout_s:g} s)",
        "Images stopped.",
        "Check the camera and its transport.",
    )
    NO_USABLE_IMAGE = (
        206,
        "no image could be used for {silence_s:.2f} s: {fault}",
        "Images arrive, and all are refused.",
        "Follow the text.",
    )
    ANSWERED_LATE = (
        207,
        "this answer came {age_s:.2f} s after its image, and no newer image has arrived: {stale}",
        "Images stopped while the network was at work.",
        "Check the camera and its transport.",
    )
    STALLED = (
        208,
        "the network has not answered for {waiting_s:.2f} s, although images arrive",
        "The network hangs, or takes much longer than usual.",
        "Check the load and the temperature of the computer.",
    )
    NO_IMAGE = (
        209,
        "no image has arrived yet: {why}",
        "The image topic is silent.",
        "Check the camera and the topic's name.",
    )

    NODE_INACTIVE = (
        300,
        "the node is inactive; activate it first (ros2 lifecycle set)",
        "The node is configured and does not track.",
        "Activate the node.",
    )
    NODE_DEACTIVATED = (
        301,
        "the node was deactivated",
        "Somebody deactivated the node.",
        "Activate the node.",
    )
    NODE_ENDS = (
        302,
        "the node is shutting down",
        "The process ends.",
        "Start the node.",
    )
    NODE_FAULT = (
        303,
        "{fault}",
        "The node left its work because of an error.",
        "Follow the text; read the node's log.",
    )
    INTERNAL_ERROR = (
        304,
        "internal error {during}({fault}){advice}",
        "An error that nobody foresaw. Its traceback is in the log.",
        "Select the target again, and report the fault.",
    )
    DEVICE_LOST = (
        305,
        "{fault}",
        "The GPU failed permanently.",
        "Start the node again; the launch file does it by itself.",
    )

    COMMAND_REFUSED = (
        400,
        "{fault}",
        "The command can't be carried out: its numbers, its kind or its image.",
        "Follow the text.",
    )
    UNCLEAR_BOX = (
        401,
        "weak selection: the box does not clearly hold one object; check the mask, or draw a tighter box",
        "The selection was accepted, and may follow the wrong thing.",
        "Look at the mask; draw a tighter box if it is wrong.",
    )
    PART_OF_BOX = (
        402,
        "weak selection: only a part of what is in the box is followed; check the mask, or draw again",
        "The selection was accepted, and follows a part.",
        "Look at the mask; draw the box again if it is wrong.",
    )
    BLANK_BOX = (
        403,
        "weak selection: the box is as uniform as its surroundings; draw it around something that differs",
        "The selection was accepted, and there is nothing to recognise.",
        "Draw the box around something that differs from its surroundings.",
    )
    NOTHING_FOUND = (
        404,
        "the network finds nothing at {place}; draw a box instead",
        "The point lies on nothing that the network sees as an object.",
        "Draw a box.",
    )
    NO_SUCH_TARGET = (
        405,
        "there is no target {target}; {known}",
        "The command names a target that is not followed.",
        "Use one of the numbers in the text.",
    )
    TOO_MANY_TARGETS = (
        406,
        "{most} targets are followed already (max_targets); remove one: {known}",
        "No memory is left for another target.",
        "Remove a target, or raise `max_targets`.",
    )
    INVALID_TARGET_ID = (
        407,
        "target_id is {target}; give 0 to 254, or 255 for the next free one",
        "The number is not one of a target.",
        "Give another number.",
    )
    NONE_STEERED = (
        408,
        "target_id is 0, the steered target, but no target is steered; give a target's number; {known}",
        "0 stands for the steered target, and there is none.",
        "Name a target by its number.",
    )
    NOTHING_TO_CLEAR = (
        409,
        "there is no target to clear",
        "Nothing is followed.",
        "Nothing.",
    )
    SUPERSEDED = (
        410,
        "this {kind} was replaced by a newer one before it was carried out",
        "Another command came before this one was carried out.",
        "Nothing; the newer one counts.",
    )
    TARGET_TAKEN = (
        411,
        "this object is target {target} already (overlap {overlap:.2f}, at most {limit}); select another one,"
        " or remove target {target} first",
        "The selection marks an object that is followed already.",
        "Select another object.",
    )
    IMAGE_NOT_KEPT = (
        412,
        "{fault}",
        "The image that the command names is not in the buffer.",
        "Copy the stamp from an image's header, select on a newer image, or raise `selection_buffer`.",
    )
    NEAREST_IMAGE = (
        413,
        "no image has the given stamp; the nearest one, of {stamp}, is used ({offset_ms:.1f} ms away)",
        "The command was accepted on the nearest image that was kept.",
        "Nothing.",
    )

    STEERING_SWITCHED = (
        500,
        "steering by target {target} now",
        "Another target is steered by since a moment ago. The gimbal is steered.",
        "Nothing.",
    )
    CONTROL_LOST = (
        501,
        "gimbal control was lost: {who}; enable steering to take it back",
        "Another component or the pilot took the gimbal. Steering has ended.",
        "Enable steering again.",
    )
    CONTROL_NOT_GRANTED = (
        502,
        "gimbal control was not granted within {limit_s:g} s: {who}; enable steering again",
        "The gimbal's manager never granted control. Steering has ended.",
        "Check who controls the gimbal, then enable steering again.",
    )
    CONTROL_AWAITED = (
        503,
        "{who}; control was requested and is not granted yet",
        "Control was requested. No rates are sent before it is granted.",
        "Wait.",
    )
    MANAGER_UNREACHABLE = (
        504,
        "{who}; check the link to the autopilot, and that efftam_mavlink runs",
        "The gimbal's manager can't be asked for control.",
        "Check the link to the autopilot, and that efftam_mavlink runs.",
    )
    GIMBAL_SILENT = (
        505,
        "the gimbal is silent; check its power and its link",
        "The gimbal's manager still sends messages, the gimbal itself sends none.",
        "Check the gimbal's power and link.",
    )
    NO_ANSWER_YET = (
        506,
        "no answer of the tracker has arrived yet; check that it runs",
        "The controller waits for the first message on `velocity`.",
        "Start efftam_tracker.",
    )
    TRACKER_SILENT = (
        507,
        "no answer of the tracker for {silence_s:.1f} s; check that it runs",
        "The tracker stopped publishing.",
        "Check efftam_tracker.",
    )
    CLOCK_SET = (
        508,
        "the images' clock was set by {step_s:+.1f} s",
        "Earlier measurements are not used any more.",
        "Wait for the next answer of the tracker.",
    )
    NO_CALIBRATION = (
        509,
        "no bearing: the camera has no calibration; publish camera_info with K",
        "Without a calibrated camera the direction to the target is not known.",
        "Calibrate the camera and publish `camera_info`.",
    )
    BEARING_NOT_FINITE = (
        510,
        "the bearing is not finite: {azimuth}, {elevation} rad; check who publishes velocity",
        "A message on `velocity` holds numbers that can't be used.",
        "Check who publishes `velocity`.",
    )
    PICTURE_FROZEN = (
        511,
        "picture frozen: the gimbal turned by more than 2 degrees and the image did not move; check the"
        " camera and its encoder",
        "The camera sends the same picture again and again.",
        "Check the camera and its encoder.",
    )
    IMAGE_IN_FUTURE = (
        512,
        "the image's stamp lies {ahead_s:.2f} s in the future; compare the clocks",
        "Camera and controller use different clocks.",
        "Synchronise the clocks.",
    )
    ANSWER_OLD = (
        513,
        "the tracker's newest answer is for an image that is {age_s:.2f} s old; check the load",
        "The tracker answers too late to steer by.",
        "Check the load of the computer.",
    )
    UNSEEN = (
        514,
        "the target was not seen for {unseen_s:.1f} s",
        "The prediction is too old to steer by: rates are zero.",
        "Wait for the target's return.",
    )
    FADING = (
        515,
        "the target was not seen for {unseen_s:.1f} s: the rates are reduced to zero",
        "The prediction becomes too old to steer by.",
        "Wait for the target's return.",
    )
    GIMBAL_STALLED = (
        516,
        "the gimbal does not turn as commanded: check its power, mode and stops (ArduPilot moves its mount 9"
        " s after it booted)",
        "The gimbal was asked to turn and stood.",
        "Check the gimbal's power, mode and stops.",
    )
    AT_STOP = (
        517,
        "the gimbal is at its stop: {axes}",
        "The gimbal can't turn further towards the target.",
        "Move the vehicle.",
    )
    ATTITUDE_MISSING = (
        518,
        "no attitude of the gimbal arrives: steering by the image alone",
        "The gimbal's attitude does not arrive: steering by the image alone.",
        "Check `gimbal_attitude`.",
    )
    ATTITUDE_OLD = (
        519,
        "the gimbal's attitude is {age_s:.2f} s old: steering by the image alone",
        "The gimbal's attitude is older than `attitude_age`.",
        "Check the rate of `gimbal_attitude`.",
    )
    ATTITUDE_AHEAD = (
        520,
        "the gimbal's attitude is stamped {ahead_s:.2f} s ahead; compare the clocks: steering by the image"
        " alone",
        "Gimbal and images use different clocks.",
        "Synchronise the clocks, or set `attitude_offset`.",
    )
    HEADING_OLD = (
        521,
        "the vehicle's heading is {age_s:.2f} s old: steering by the image alone",
        "The heading that relates the gimbal to north is missing.",
        "Check `vehicle_heading`.",
    )
    CAMERA_ROLLED = (
        522,
        "the camera does not fit the gimbal: it seems to be rolled by {roll_deg:.0f} degrees, clockwise seen"
        " from behind; mount it upright or set camera_roll in both nodes",
        "The picture turns in another direction than the gimbal. Steering has ended.",
        "Mount the camera upright, or set `camera_roll`.",
    )
    NOT_VALID = (
        523,
        "the tracker's answer is not valid",
        "`velocity` has `valid` false and no reason of its own.",
        "Look at `state` and `age` in the topic `velocity`.",
    )

    NO_AUTOPILOT = (
        550,
        "no message of an autopilot has arrived",
        "The link is not connected, or the autopilot is off.",
        "Check the link.",
    )
    AUTOPILOT_SILENT = (
        551,
        "the autopilot is silent{duration}",
        "The link broke.",
        "Check the link.",
    )
    AUTOPILOT_RESTARTED = (
        552,
        "the autopilot was restarted",
        "Control was lost with the restart.",
        "Enable it again.",
    )
    NO_GIMBAL = (
        553,
        "the autopilot has found no gimbal yet",
        "The gimbal's manager reports no gimbal.",
        "Check the gimbal's set-up on the autopilot.",
    )
    NOBODY_IN_CONTROL = (
        554,
        "nobody is in control of the gimbal{ended}",
        "Control was released.",
        "Enable steering to take control.",
    )
    OTHER_IN_CONTROL = (
        555,
        "{name} is in control of the gimbal",
        "The manager names another component (system/component).",
        "Let the other component release control.",
    )
    TAKEN_BY_OTHER = (
        556,
        "{name} took control of the gimbal",
        "Another component commands the gimbal. Control was given back.",
        "Enable steering again when the other component is done.",
    )
    MANAGER_SILENT = (
        557,
        "the gimbal's manager has not reported for {limit_s:g} s who is in control",
        "The manager does not answer a request.",
        "Check the gimbal's set-up on the autopilot.",
    )
    BRIDGE_SILENT = (
        558,
        "the MAVLink bridge is silent",
        "efftam_mavlink ended.",
        "Start efftam_mavlink.",
    )

    FOLLOW_OFF = (
        600,
        "the parameter follow of efftam_mavlink is false",
        "Positions are not sent to the autopilot.",
        "Set `follow` to true and start the bridge again.",
    )
    FOLLOW_OTHER_TARGET = (
        601,
        "another target was selected",
        "Following has ended: it serves one selection.",
        "Enable it again.",
    )
    FOLLOW_MODE_CHANGED = (
        602,
        "the pilot chose another mode",
        "Following has ended.",
        "Enable it again.",
    )
    FOLLOW_DISARMED = (
        603,
        "the vehicle was disarmed",
        "Following has ended.",
        "Enable it again.",
    )
    FOLLOW_NO_POSITION = (
        604,
        "no position of the target for {silence_s:g} s; check that efftam_position runs",
        "efftam_position stopped. Following has ended.",
        "Check efftam_position.",
    )
    FOLLOW_UNSEEN = (
        605,
        "the target was not seen for {limit_s:g} s",
        "Predicted positions are sent to the autopilot for this time only. If positions were sent"
        " before, following has ended.",
        "Wait for the target's return, then enable it again.",
    )
    FOLLOW_NO_LATITUDE = (
        606,
        "latitude and longitude of the vehicle are not known; wait for its fix",
        "There is no fix.",
        "Wait for the vehicle's fix.",
    )
    FOLLOW_UNCERTAIN = (
        607,
        "the position is uncertain by {accuracy:.1f} m, but at most {limit:g} m is allowed: fly closer or"
        " higher, or set follow_accuracy",
        "The position is not good enough to fly by.",
        "Fly closer or higher, or raise `follow_accuracy`.",
    )

    POSITION_NO_TARGET = (
        700,
        "no target is followed",
        "The tracker's answer is not valid.",
        "Select a target.",
    )
    POSITION_NOT_MEASURED = (
        701,
        "the target has not been measured yet",
        "Only predicted boxes have arrived.",
        "Wait.",
    )
    POSITION_UNSEEN = (
        702,
        "the target was not measured for {age_s:.1f} s",
        "The predicted position is older than `coast`.",
        "Wait for the target's return.",
    )
    POSITION_NO_BEARING = (
        703,
        "the camera has no calibration: publish camera_info with K",
        "Without a calibrated camera the direction to the target is not known.",
        "Calibrate the camera and publish `camera_info`.",
    )
    POSITION_NO_ATTITUDE = (
        704,
        "the camera's attitude at the image's stamp is not known: check gimbal_attitude and vehicle_heading,"
        " and compare the clocks",
        "No attitude is near enough to the image's stamp.",
        "Check `gimbal_attitude`, `vehicle_heading` and the clocks.",
    )
    POSITION_NO_PLACE = (
        705,
        "the vehicle's position at the image's stamp is not known: wait for its fix, and compare the clocks",
        "No position of the vehicle is near enough to the image's stamp.",
        "Wait for the fix; compare the clocks.",
    )
    POSITION_NO_HEIGHT = (
        706,
        "no height above the ground is known: connect a range finder, or let the autopilot send its height"
        " above home",
        "Without a height the distance is not known.",
        "Connect a range finder, or send the height above home.",
    )
    POSITION_BELOW_TARGET = (
        707,
        "the camera is {height:.1f} m above the target: the height must be above 0; check its source",
        "The height is wrong, or the target is not on the ground.",
        "Check the source of the height.",
    )
    NEAR_HORIZON = (
        708,
        "too near the horizon: the target is {depression:.1f} degrees below it, at least {least:.0f} are"
        " needed; fly higher or closer",
        "The line of sight meets the ground too far away, or never.",
        "Fly higher or closer.",
    )


class Reason(str):
    """A reason: a text of one line, with the number for programs in ``code``. Empty if there is no reason."""

    code: ReasonCode

    def __new__(cls, code: ReasonCode, text: str) -> Reason:
        if bool(code) != bool(text):
            raise ValueError(f"a reason has a text and a code other than 0, or neither: {code!r}, {text!r}")
        reason = super().__new__(cls, text)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[ReasonCode, str]:  # type: ignore[override]
        return self.code, str(self)

    def with_detail(self, detail: str) -> Reason:
        """Return the same reason with ``detail`` appended to its text."""
        return Reason(self.code, f"{self}; {detail}")

    @classmethod
    def of(cls, error: Exception, otherwise: ReasonCode) -> Reason:
        """Return the reason that an error carries as its argument. For an error without one, return the
        error's text with the code ``otherwise``."""
        first = error.args[0] if error.args else ""
        return first if isinstance(first, Reason) else cls(otherwise, str(error) or type(error).__name__)

    @classmethod
    def read(cls, number: int, text: str) -> Reason:
        """Return the reason in a message with this number and text. A number that is unknown becomes
        OTHER."""
        return cls(_BY_NUMBER.get(number, ReasonCode.OTHER), text) if text else NO_REASON


_BY_NUMBER = {int(code): code for code in ReasonCode if code}
NO_REASON = Reason(ReasonCode.NONE, "")
