"""An HTTP server on the loopback, and an extender on it: what it answers is the test's, what it was asked is kept."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

Answer = Callable[[Any], Any]


@dataclass
class Server:
    """Answers by verb: a value is sent as JSON, bytes as they are, an int as a status; callables are asked first."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


@contextmanager
def http_server(answer: Callable[[str, bytes], tuple[int, bytes]]) -> Iterator[str]:
    """Serve on the loopback, and yield the URL; `answer` returns status and body for a path and the request's body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, body = answer(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client has closed the connection

        def do_GET(self) -> None:
            self.do_POST()

        @override
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()


@contextmanager
def extender(**answers: Any) -> Iterator[Server]:
    server = Server(answers=answers)

    def reply(path: str, body: bytes) -> tuple[int, bytes]:
        verb, question = path.rpartition("/")[2], json.loads(body)
        server.asked.append((verb, question))
        answer = server.answers[verb]
        if callable(answer):
            answer = answer(question)
        status = answer if isinstance(answer, int) else 200
        return status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    with http_server(reply) as url:
        server.url = f"{url}/scheduler"
        yield server


def names_of(question: Any) -> list[str]:
    """The nodes a question is about, by name or as objects."""
    if question["NodeNames"] is not None:
        return list(question["NodeNames"])
    return [one["metadata"]["name"] for one in question["Nodes"]["items"]]


def keeping(*names: str, **failed: str) -> Answer:
    """A filter that keeps the nodes named, and gives the reasons stated for others."""

    def answer(question: Any) -> Any:
        kept = [name for name in names_of(question) if name in names]
        return {"NodeNames": kept, "Nodes": {"items": [{"metadata": {"name": name}} for name in kept]}} | (
            {"FailedNodes": failed} if failed else {}
        )

    return answer
