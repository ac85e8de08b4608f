"""A hub on localhost: HEAD and GET of /REPO/resolve/REVISION/FILE with ETag, commit, ranges and faults on
demand."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """``files`` by "repository/file"; ``requests`` as (method, path, Range header); ``cut_after`` bytes the
    next answers break off, one entry per answer; ``announce`` a hash that does not fit the content."""

    files: dict[str, bytes]
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    cut_after: list[int] = field(default_factory=list)
    announce: str = ""
    url: str = ""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Hub]:
    hub = Hub(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            wanted = self.headers.get("Range", "")
            hub.requests.append((self.command, self.path, wanted))
            match = re.fullmatch(r"/(.+)/resolve/[^/]+/([^/?]+)(\?.*)?", self.path)
            content = hub.files.get(f"{match[1]}/{match[2]}") if match else None
            if content is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            first = int(re.fullmatch(r"bytes=(\d+)-.*", wanted)[1]) if wanted else 0
            part = content[first:]
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.send_header("ETag", f'"{hub.announce or hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if not body:
                return
            if hub.cut_after:
                self.wfile.write(part[: hub.cut_after.pop(0)])
                self.wfile.flush()
                self.close_connection = True
            else:
                self.wfile.write(part)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
