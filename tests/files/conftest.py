"""Storage servers on loopback, started once per run."""

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A server of the S3 protocol."""

    endpoint: str

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its name."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request) as response:
            assert response.status == 200
        return name

    def options(self) -> dict[str, str]:
        """How `open_files` reaches it."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": "test",
            "secret_access_key": "test",
            "region": "us-east-1",
            "allow_http": "true",
        }


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """moto's S3, one request at a time: it checks a put's condition and stores in two steps, and S3 does it in one."""
    moto_server = pytest.importorskip("moto.server")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = moto_server.create_backend_app("s3")
    lock = threading.Lock()

    def one_at_a_time(environ: dict[str, object], start_response: Callable[..., object]) -> Iterable[bytes]:
        with lock:
            return list(application(environ, start_response))

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield S3Server(endpoint=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="session")
def postgres_uri(postgres_server: str) -> str:
    """The URI of a real Postgres server of this process."""
    return postgres_server
