"""A worker in a process of its own, for tests that kill or stop it: ``python -m tests.support.worker KIND...``.

It runs due items of the kinds until it is ended (``--once``: until it has run one). ``AIF_FAILPOINT`` names the step
at which it dies (see ``tenants.failpoints``); ``kube-written-N`` is one of its own: right after the N-th write to a
cluster, before anything of it is recorded.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import django


def main() -> None:
    """Work until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.testing")
    django.setup()
    _count_writes()
    from portal.kernel.models import WorkItem
    from portal.kernel.workqueue import run_item

    while True:
        due = WorkItem.objects.filter(kind__in=arguments.kinds, next_attempt_at__isnull=False)
        for pk in due.order_by("next_attempt_at", "id").values_list("pk", flat=True):
            before = WorkItem.objects.values_list("lease_token", flat=True).get(pk=pk)
            outcome = run_item(pk)
            if WorkItem.objects.values_list("lease_token", flat=True).get(pk=pk) != before and arguments.once:
                sys.stdout.write(f"outcome {type(outcome).__name__}\n")
                return
        time.sleep(0.05)


def _count_writes() -> None:
    point = os.environ.get("AIF_FAILPOINT", "")
    if not point.startswith("kube-written-"):
        return
    from infra.kube.client import KubeClient
    from tenants.failpoints import reached

    written = 0
    apply = KubeClient.apply

    def counting(self: KubeClient, *args: Any, **kwargs: Any) -> Any:
        nonlocal written
        result = apply(self, *args, **kwargs)
        written += 1
        reached(f"kube-written-{written}")
        return result

    KubeClient.apply = counting  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
