"""The MAVLink 2 message definitions of pymavlink."""

from __future__ import annotations

from typing import Any

try:
    # The versioned dialect speaks MAVLink 2 whatever the environment variable MAVLINK20 says.
    from pymavlink.dialects.v20 import common as mav
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("MAVLink needs pymavlink: pip install pymavlink") from error

# pymavlink has no types.
Message = Any

__all__ = ["Message", "mav"]
