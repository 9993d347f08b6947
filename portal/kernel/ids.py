"""Identifiers: UUID version 7 (RFC 9562 §5.7), so that rows made later sort later and indexes grow at one end."""

import os
import time
import uuid


def uuid7() -> uuid.UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, 12 bits of the millisecond's fraction, 62 random bits.

    The fraction (RFC 9562 §6.2, method 3) keeps ids of one process nearly in order within a millisecond.
    """
    nanoseconds = time.time_ns()
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return uuid.UUID(int=(milliseconds << 80) | (0x7 << 76) | (fraction << 64) | (0b10 << 62) | random)
