"""Beat's scheduler with a sign of life: given from its own loop, so a clock that hangs is seen as one that died."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.beat import PersistentScheduler
from django.db import DatabaseError, connection

from portal.kernel import heartbeat

logger = logging.getLogger(__name__)


class Scheduler(PersistentScheduler):
    """Celery's own, and a row in the database now and then."""

    max_interval = 5
    """Seconds that it sleeps at most, so that the signs of life come in time whatever the schedule."""
    _told = float("-inf")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One turn of the loop; the seconds until the next."""
        if time.monotonic() - self._told >= heartbeat.EVERY_SECONDS:
            self._told = time.monotonic()
            self._tell()
        wait: float = super().tick(*args, **kwargs)
        return wait

    def close(self) -> None:
        """Ended in order: not to be missed."""
        super().close()
        try:
            heartbeat.forget("beat")
        except DatabaseError as error:
            logger.warning("the last sign of life could not be taken back", extra={"why": str(error)})
        finally:
            connection.close()

    def _tell(self) -> None:
        try:
            heartbeat.beat("beat")
        except DatabaseError as error:
            logger.warning("a sign of life could not be given", extra={"why": str(error)})
        finally:
            connection.close()  # the clock needs none in between
