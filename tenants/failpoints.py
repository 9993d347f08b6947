"""Places at which a test may kill or stop the process, to prove that a kill at any point loses and doubles nothing."""

from __future__ import annotations

import os
import signal


def reached(step: str) -> None:
    """If the environment variable ``AIF_FAILPOINT`` names the step, kill this process (SIGKILL); if it is
    ``stop:`` and the step, stop it (SIGSTOP) until somebody continues it. Otherwise nothing."""
    wanted = os.environ.get("AIF_FAILPOINT")
    if wanted == step:
        os.kill(os.getpid(), signal.SIGKILL)
    elif wanted == f"stop:{step}":
        os.kill(os.getpid(), signal.SIGSTOP)
