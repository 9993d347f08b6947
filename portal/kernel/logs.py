"""Logs as JSON lines, with the request's id, and without what looks like a secret."""

import json
import logging
import re
import traceback
from datetime import UTC, datetime
from typing import Any

from portal.kernel.actors import current_request_id

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "request"}
_SECRET = re.compile(
    r"(aif_[a-z]{2,8}_[a-z0-9]{8}_)[A-Za-z0-9_-]{20,}"  # our tokens
    r"|(\b[Bb]earer\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|(://[^\s:/@]*:)[^\s@/]+(?=@)"  # passwords in URLs
    r"|(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?=-----END)"
    r"|((?:client-key-data|password|secret|token)[\"']?\s*[:=]\s*[\"']?)[^\s\"',}]{6,}"
)


def scrub(text: str) -> str:
    """``text`` with secrets replaced by ``***``; the last net, code must not log them to begin with."""
    return _SECRET.sub(lambda match: next(group for group in match.groups() if group is not None) + "***", text)


class JSONFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, request_id, what was passed as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": scrub(record.getMessage()),
        }
        if request_id := current_request_id():
            line["request_id"] = request_id
        for key, value in record.__dict__.items():
            if key not in _STANDARD:
                line[key] = value if isinstance(value, int | bool | None) else scrub(str(value))
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = scrub("".join(traceback.format_exception(*record.exc_info)))
        return json.dumps(line, ensure_ascii=False, default=str)
