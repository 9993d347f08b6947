"""A worker in a process of its own, for tests that kill or stop it: ``python -m tests.support.worker KIND...``.

It runs due items of the kinds until it is ended (``--once``: until it has run one). ``AIF_FAILPOINT`` names the step
at which it dies (see ``tenants.failpoints``); ``kube-written-N`` is one of its own: right after the N-th write to a
cluster, before anything of it is recorded.

With ``--serve`` it reads steps from its standard input instead, one a line, and answers each with how a worker of
its own (a fork, so that a start costs nothing) ended: ``-9`` for a kill.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import django

LOOKED_AT = 8


def main() -> None:
    """Work until killed, or serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.testing")
    django.setup()
    if not arguments.serve:
        work(arguments.kinds, once=arguments.once)
        return
    import kubernetes.dynamic  # noqa: F401  # what each fork would load for itself, in seconds

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.environ["AIF_FAILPOINT"] = line.strip()
            work(arguments.kinds, once=False)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def work(kinds: list[str], *, once: bool) -> None:
    """Run what is due, again and again."""
    from django.db.models import Q
    from django.db.models.functions import Now

    from portal.kernel.models import WorkItem
    from portal.kernel.workqueue import run_item

    _count_writes()
    while True:
        free = Q(lease_until__isnull=True) | Q(lease_until__lt=Now())
        due = WorkItem.objects.filter(free, kind__in=kinds, next_attempt_at__lte=Now())
        # A few at a time: another worker takes what is not begun yet.
        some = list(due.order_by("next_attempt_at", "id").values_list("pk", flat=True)[:LOOKED_AT])
        for pk in some:
            if not once:
                run_item(pk)
                continue
            before = WorkItem.objects.values_list("lease_token", flat=True).get(pk=pk)
            outcome = run_item(pk)
            if WorkItem.objects.values_list("lease_token", flat=True).get(pk=pk) != before:
                sys.stdout.write(f"outcome {type(outcome).__name__}\n")
                return
        if not some:
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
