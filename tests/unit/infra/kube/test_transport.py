"""The wire: TLS from memory, what is not followed, what is said when nobody answers."""

import socket
import ssl
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from infra.kube import errors, transport
from infra.kube.client import KubeClient
from infra.kube.errors import Call
from infra.kube.kubeconfig import Credentials
from infra.kube.transport import Request, Transport
from tests.support.answering import answering
from tests.support.pki import Authority, Pair
from tests.unit.infra.kube.recorded import Canned, Replay, canned, serve

CA = Authority()
TEXT = (("Content-Type", "text/plain"),)


class _Quiet(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust us is what some tests want."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        # The name in the client's certificate is the answer.
        peer = self.connection.getpeercert()
        name = dict(pair[0] for pair in peer["subject"])["commonName"] if peer else "nobody"
        body = f'{{"gitVersion": "{name}"}}'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def tls_server(tmp_path: Path) -> Generator[str]:
    pair = CA.issue("server")
    (tmp_path / "server.pem").write_text(pair.cert + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=CA.pem)
    server = _Quiet(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def _version(server: str, pair: Pair | None = None, ca: str | None = CA.pem, server_name: str | None = None) -> str:
    credentials = Credentials(
        server=server,
        ca_data=ca,
        client_cert=pair.cert if pair else None,
        client_key=pair.key if pair else None,
        server_name=server_name,
    )
    return str(KubeClient(credentials, name="eu-1").version()["gitVersion"])


def test_a_client_certificate_is_used_and_its_key_never_lies_on_the_disk(
    tls_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))  # any temporary file would fail
    assert _version(tls_server, CA.issue("portal-of-eu-1")) == "portal-of-eu-1"


def test_where_memory_files_are_unknown_the_file_is_private_and_goes(
    tls_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes: list[int] = []
    real = transport._as_file

    def spy(text: str) -> object:
        context = real(text)
        path = context.__enter__()
        modes.append(Path(path).stat().st_mode & 0o777)
        context.__exit__(None, None, None)
        return real(text)

    monkeypatch.setattr(transport, "_as_file", spy)
    before = set(tmp_path.iterdir())
    assert _version(tls_server, CA.issue("portal")) == "portal"
    assert modes == [0o600]
    assert set(tmp_path.iterdir()) == before


def test_a_server_of_another_authority_is_not_trusted(tls_server: str) -> None:
    for ca in (Authority("another").pem, None):
        with pytest.raises(errors.Unreachable) as caught:
            _version(tls_server, ca=ca)
        assert caught.value.cause == "tls"
        assert "certificate-authority-data" in caught.value.sentence


def test_the_name_in_the_server_s_certificate_is_checked(tls_server: str) -> None:
    assert _version(tls_server, server_name="localhost") == "nobody"
    with pytest.raises(errors.Unreachable) as caught:
        _version(tls_server, server_name="elsewhere.example.invalid")
    assert caught.value.cause == "tls"


def test_a_port_where_nobody_listens_and_a_name_that_nobody_knows() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(errors.Unreachable) as caught:
        _version(f"https://127.0.0.1:{port}")
    assert caught.value.cause == "refused"
    with pytest.raises(errors.Unreachable) as caught:
        _version("https://no-such-host.invalid")
    assert caught.value.cause == "dns"
    assert "eu-1" in caught.value.sentence
    assert "gone" in caught.value.sentence


@pytest.fixture
def silent_server() -> Generator[str]:
    """Accepts connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_says_nothing_is_a_timeout(silent_server: str) -> None:
    client = Transport(Credentials(server=silent_server), name="eu-1")
    with pytest.raises(errors.Unreachable) as caught:
        client.send(Request("GET", "/version", Call("eu-1", "get"), read_timeout=0.05))
    assert caught.value.cause == "timeout"


def test_a_watch_that_says_nothing_is_a_timeout(silent_server: str) -> None:
    client = KubeClient(Credentials(server=silent_server), name="eu-1")
    with pytest.raises(errors.Unreachable) as caught:
        list(client.watch("v1", "Pod", resource_version="1", inactivity_seconds=0.05))
    assert caught.value.cause == "timeout"


def test_a_watch_that_is_cut_in_the_middle_of_a_line_is_broken_not_over() -> None:
    whole = canned("api-watch-pods.jsonl")
    cut = Canned(200, whole.headers, whole.body[:-200])
    with serve(Replay(cut)) as replay, pytest.raises(errors.Unreachable) as caught:
        list(KubeClient(Credentials(server=replay.url), name="eu-1").watch("v1", "Pod", resource_version="1"))
    assert caught.value.cause == "broken"


def test_a_connection_that_breaks_is_told_as_such() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(errors.Unreachable) as caught:
            KubeClient(Credentials(server=f"http://127.0.0.1:{listener.getsockname()[1]}"), name="eu-1").version()
        thread.join()
    assert caught.value.cause == "broken"


def test_a_redirect_is_not_followed() -> None:
    away = Canned(302, (("Location", "http://127.0.0.1:9/version"),), b"")
    with serve(Replay(away)) as replay, pytest.raises(errors.Permanent) as caught:
        KubeClient(Credentials(server=replay.url, token="t"), name="eu-1").version()
    assert "redirect" in caught.value.sentence


@pytest.mark.parametrize(
    ("answer", "cls", "words"),
    [
        (Canned(200, (("Content-Type", "text/html"),), b"<html>welcome</html>"), errors.ApiMissing, "does not speak"),
        (Canned(404, (("Content-Type", "text/html"),), b"<html>nothing</html>"), errors.ApiMissing, "no API"),
        (Canned(401, TEXT, b"who?"), errors.Unauthorized, "rotate"),
        (Canned(403, TEXT, b"blocked"), errors.Forbidden, "before the API server"),
        (Canned(502, TEXT, b"bad gateway"), errors.Retryable, "HTTP 502"),
        (Canned(501, TEXT, b"not simulated"), errors.Permanent, "HTTP 501"),
        (Canned(405, TEXT, b"no"), errors.Permanent, "HTTP 405"),
    ],
)
def test_what_is_no_kubernetes_api_is_never_taken_for_an_absent_object(
    answer: Canned, cls: type[errors.KubeError], words: str
) -> None:
    with serve(Replay(answer)) as replay, pytest.raises(errors.KubeError) as caught:
        KubeClient(Credentials(server=replay.url), name="eu-1").get("v1", "Pod", "a", "b")
    assert type(caught.value) is cls
    assert words in caught.value.sentence


def test_answers_are_bounded() -> None:
    with serve(Replay(Canned(200, TEXT, b"x" * 5000), Canned(200, TEXT, b"y" * 5000))) as replay:
        client = KubeClient(Credentials(server=replay.url), name="eu-1")
        assert client.logs("ns", "pod", limit_bytes=1000) == "x" * 1000
        with pytest.raises(errors.Permanent, match="more than 1000 bytes"):
            client.service_proxy_get("monitoring", "prometheus", 9090, "/api/v1/query", {"query": "up"}, max_bytes=1000)
    paths = [path for _, path, _, _ in replay.seen]
    assert paths[0].startswith("/api/v1/namespaces/ns/pods/pod/log?")
    assert "limitBytes=1000" in paths[0]
    assert paths[1] == "/api/v1/namespaces/monitoring/services/prometheus%3A9090/proxy/api/v1/query?query=up"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_never_ends_is_left(method: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands behind a tenant's API server may send a byte now and then, and would keep the worker for good."""
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT", 0.1)
    with answering() as server:
        server.say("/x", status=status, body=b"x" * 100_000, pause=0.02)
        sender = Transport(Credentials(server=server.url), name="vc")
        request = Request(method, "/x", Call("vc", "look"), body={} if method == "POST" else None, read_timeout=0.3)
        with pytest.raises(errors.Unreachable) as caught:
            sender.send(request)
        assert caught.value.cause == "timeout"
        sender.close()
