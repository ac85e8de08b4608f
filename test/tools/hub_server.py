"""A hub on localhost: HEAD and GET of /REPO/resolve/REVISION/FILE with ETag, commit, ranges and faults on
demand."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """``files`` by "repository/file"; ``requests``: their methods; ``cut_after`` bytes the next answers break
    off, one entry per answer; ``announce`` a hash that does not fit the content."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.announce, self.url = files, "", f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: list[str] = []
        self.cut_after: list[int] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, place = self.server, re.fullmatch(r"/(.+)/resolve/[^/]+/([^/?]+)(\?.*)?", self.path)
        hub.requests.append(self.command)
        content = hub.files.get(f"{place[1]}/{place[2]}") if place else None
        first = int(re.sub(r"bytes=(\d+)-.*", r"\1", self.headers.get("Range", "bytes=0-")))
        part = (content or b"")[first:]
        self.send_response(404 if content is None else 206 if first else 200)
        headers = {"X-Error-Code": "EntryNotFound"}
        if content is not None:
            announced = hub.announce or hashlib.sha256(content).hexdigest()
            span = f"bytes {first}-{len(content) - 1}/{len(content)}"
            headers = {"ETag": f'"{announced}"', "X-Repo-Commit": COMMIT, "Content-Range": span}
        for name, value in (headers | {"Accept-Ranges": "bytes", "Content-Length": str(len(part))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and hub.cut_after:
            part, self.close_connection = part[: hub.cut_after.pop(0)], True
        if self.command == "GET":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Hub]:
    with Hub(files) as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
