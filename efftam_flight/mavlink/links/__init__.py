"""Links that carry MAVLink: UDP, TCP and serial lines."""
