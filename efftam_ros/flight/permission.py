"""Whether the controller may steer: who enabled it, who controls the gimbal, whether that is heard."""

from __future__ import annotations

from efftam_ros.flight.control_config import Phase
from efftam_ros.flight.values import Control


class Permission:
    """Off until somebody enables it, and again after control was lost.

    ``gimbal_alive``: whether the gimbal itself sends messages; its manager may go on without it.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.gimbal_alive = True
        self._control = Control.UNKNOWN
        self._held = False  # since it was enabled
        self._taken_away = False

    def enable(self, enabled: bool) -> None:
        self.enabled, self._taken_away = enabled, False
        self._held = self._control is Control.HELD

    def hear(self, control: Control) -> bool:
        """Who controls the gimbal now; True when that ends steering, until it is enabled again."""
        self._control = control
        self._held = self._held or control is Control.HELD
        if not (self.enabled and self._held and control in (Control.OTHER, Control.NOBODY)):
            return False
        self.enabled, self._taken_away = False, True
        return True

    def refusal(self) -> tuple[Phase, str] | None:
        """Why nothing may be steered, with what the controller does then; None when it may."""
        if self._taken_away:
            who = "another component" if self._control is Control.OTHER else "nobody"
            return (
                Phase.CONTROL_LOST,
                f"the gimbal is now controlled by {who}; enable steering to take it back",
            )
        if not self.enabled:
            return Phase.OFF, ""
        if self._control is Control.SILENT:
            return Phase.HOLDING, "the autopilot is silent; check its link"
        if self._control in (Control.OTHER, Control.NOBODY):
            return Phase.HOLDING, "the gimbal's manager has not given control yet"
        if not self.gimbal_alive:
            return Phase.HOLDING, "the gimbal is silent; check its power and its link"
        return None
