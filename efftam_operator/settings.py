"""Settings of the page's server with the limits of each value, and the rules on who may connect."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from efftam_operator.announce import ANY, own_addresses
from efftam_ros.core.config import CheckedSettings, expanded, setting
from efftam_ros.core.errors import InputError

TOKEN_BYTES = 16
SHORTEST_TOKEN = 16
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """Settings of the page's server. The fields without `setting` are limits that the user can't change."""

    address: str = setting(
        "127.0.0.1",
        "IP address that the page is served on; 127.0.0.1: only this computer can open it; 0.0.0.0: others"
        " can, too",
    )
    port: int = setting(8080, "port that the page is served on; 0: a free one", within=(0, 65535))
    token: str = setting(
        "",
        "password of the page, at least 16 characters; empty: on every address but 127.0.0.1 a new one at"
        " each start",
    )
    hosts: str = setting(
        "", "further host names under which the page may be opened, with commas between; empty: none"
    )
    certificate: str = setting("", "certificate for https, PEM file; empty: http")
    key: str = setting("", "key of the certificate, PEM file")
    on_operator_lost: str = setting(
        "keep",
        "whether all targets are kept or cleared when nobody has taken control for lease_s",
        choices=("keep", "clear"),
    )
    jpeg_quality: int = setting(70, "quality of the pictures' JPEG", within=(1, 100))
    lease_s: float = setting(
        10.0,
        "time without a message of the page in control after which control is free, s",
        within=(1.0, 3600.0),
    )
    answer_s: float = setting(
        3.0, "longest wait for the tracker's answer to a command, s", within=(0.1, 60.0)
    )
    silent_s: float = setting(
        1.0,
        "time without a message after which the tracker or the gimbal controller counts as silent, s; for a"
        " tracker that searches for a lost target three times as long; for the bridge it is always 1.5 s",
        within=(0.1, 60.0),
    )
    most_viewers: int = setting(16, "most pages open at a time", within=(1, 100))
    selections_per_s: float = 5.0
    messages_per_s: float = 200.0
    largest_message: int = 65536

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.certificate) != bool(self.key):
            raise InputError("https needs both certificate and key; give both or neither")
        for path in self.https:
            if not path.is_file():
                raise InputError(f"{path} is no file; https needs a certificate and its key as PEM files")

    @property
    def https(self) -> tuple[Path, ...]:
        """Paths of certificate and key; empty for http."""
        files = (self.certificate, self.key) if self.certificate else ()
        return tuple(expanded(file) for file in files)


class Access:
    """The rules on who may connect to a server that listens on ``address``.

    ``token``: "": none on a loopback address, a new one (128 bits) on any other address. ``hosts``: further
    host names, separated by commas, under which the page may be opened, also through a proxy that calls this
    server by another name or port.

    The owner of another site can let a host name point to this server, and so let the browser open its page
    as if it came from here (DNS rebinding). This is impossible with an IP address. So any IP address is
    accepted as a host, a name only if it is known.

    Raises InputError for a token that is too short, and for an address that is no IP address.
    """

    def __init__(self, address: str, token: str = "", hosts: str = "") -> None:
        if token and len(token) < SHORTEST_TOKEN:
            raise InputError(
                f"the token has {len(token)} characters; give at least {SHORTEST_TOKEN}, or no token for a"
                " new one"
            )
        own = ipaddress.ip_address("127.0.0.1") if address == "localhost" else _ip_address(address)
        if own is None:
            raise InputError(f"address is {address!r}; give an IP address of this machine, such as 127.0.0.1")
        self.address = address
        self.token = token or (None if own.is_loopback else secrets.token_hex(TOKEN_BYTES))
        self._given = {_host_name(name) for name in hosts.split(",")} - {""}
        self._names = {"localhost", socket.gethostname().lower(), *self._given}

    def token_refusal(self, given: str) -> str:
        """Return in one line why the token ``given`` is refused; empty if it is accepted."""
        if self.token is None or hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return ""
        if not given:
            return "this server wants a token; open the address that it printed, with #token=... at its end"
        return "wrong token; open the address that the server printed when it last started"

    def host_refusal(self, headers: Mapping[str, str]) -> str:
        """Return in one line why the Host of a request is refused; empty if it is accepted."""
        host = headers.get("Host", "")
        name = _split(f"//{host}").hostname or ""
        if name in self._names or _ip_address(name):
            return ""
        return (
            f"the request's Host is {host!r}; open the page by an IP address, or set hosts:={name or 'NAME'}"
        )

    def origin_refusal(self, headers: Mapping[str, str]) -> str:
        """Return in one line why the Origin of a web socket's request is refused; empty if it is accepted.

        The page that opens a socket must come from this server, or from a host in ``hosts``. A host in
        ``hosts`` may have any port: a proxy serves the page there.
        """
        origin, host = headers.get("Origin", ""), headers.get("Host", "")
        there = _split(origin)
        name = there.hostname or ""
        is_own = _place(there) == _place(_split(f"{there.scheme}://{host}"))
        if name and there.scheme and (name in self._given or is_own):
            return ""
        remedy = f"; behind a proxy set hosts:={name}" if name else ""
        return (
            f"the Origin is {origin or 'missing'}; only this server's own page ({host}) may connect{remedy}"
        )

    def urls(self, port: int, scheme: str = "http") -> list[str]:
        """Return the page's URLs, with the token if there is one."""
        hosts = own_addresses() if self.address in ANY else [self.address]
        token = f"#token={self.token}" if self.token else ""
        return [f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/{token}" for host in hosts]


def _split(url: str) -> SplitResult:
    """Return the parts of a URL; all are empty if the text is no URL."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _place(url: SplitResult) -> tuple[str, int | None]:
    """Return host and port of a URL. If the URL has no port, the scheme's port is returned; None: unknown."""
    try:
        port = url.port
    except ValueError:
        return "", None
    return url.hostname or "", port or {"http": 80, "https": 443}.get(url.scheme)


def _host_name(text: str) -> str:
    """Return the host name in a user's text, which may be a host or a URL; empty if there is none."""
    text = text.strip()
    return _split(text if "//" in text else f"//{text}").hostname or ""


def _ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the name as an IP address; None if it is not one."""
    with suppress(ValueError):
        return ipaddress.ip_address(name)
    return None
