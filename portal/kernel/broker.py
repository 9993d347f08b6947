"""The transport to Valkey or Redis, so that a worker outlives a broker that was killed while tasks ran.

Celery closes a lost connection twice. kombu's channel gives up half-way the first time (the broker does not answer) and
fails on the second with an error that nobody expects, since it then tries to give back, over a connection that is not
there, what was not acknowledged: the worker ends. The same error comes when a task that ran meanwhile ends and its
message is acknowledged.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

LOST = redis.get_redis_error_classes().connection_errors


class LastingChannel(redis.Channel):
    """kombu's own, that can be closed, and acknowledged to, when the broker is away."""

    def close(self) -> None:
        """Close it. Messages that can't be given back are handed out again by the broker (``visibility_timeout``)."""
        try:
            super().close()
        except LOST:
            if not self.closed:
                self.do_restore = False
                super().close()  # the second time it asks the broker nothing

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:
        """Acknowledge a message. One of a lost connection can't be: it comes once more, which does no harm."""
        if not self.closed:
            super().basic_ack(delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Give a message back. One of a lost connection comes again anyway."""
        if not self.closed:
            super().basic_reject(delivery_tag, requeue=requeue)


class Transport(redis.Transport):
    """With that channel."""

    Channel = LastingChannel


def use() -> None:
    """Have every connection to ``redis://`` and ``rediss://`` use it, the sockets among them."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
