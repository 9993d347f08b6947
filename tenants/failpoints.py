"""Places at which a test may kill the process, to prove that a kill at any point loses and doubles nothing."""

from __future__ import annotations

import os
import signal


def reached(step: str) -> None:
    """Kill this process (SIGKILL) if the environment variable ``AIF_FAILPOINT`` names the step; else nothing."""
    if os.environ.get("AIF_FAILPOINT") == step:
        os.kill(os.getpid(), signal.SIGKILL)
