"""Options of the commands that serve the operator's page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efftam_ros.operator.settings import Settings


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --address, --port and --token."""
    group = parser.add_argument_group("the page's server")
    group.add_argument(
        "--address", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this computer only)"
    )
    group.add_argument("--port", type=int, default=8080, help="port (default 8080); 0: a free one")
    group.add_argument(
        "--token", help="token that a page must send (default: a new one if the address is not local)"
    )


def page_settings(args: argparse.Namespace) -> Settings:
    """Build Settings from `add_page_arguments`. Raises InputError when the port is out of range."""
    from efftam_ros.operator.settings import Settings

    return Settings(address=args.address, port=args.port, token=args.token)
