"""Django's description of the kernel: what every other app stands on."""

from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "portal.kernel"
    label = "kernel"
    verbose_name = "Kernel"

    def ready(self) -> None:
        """Register the system checks, the audit of system scopes, the kernel's own ticks and metrics."""
        from portal.kernel import audit, checks, metrics, scoping, tasks
        from portal.kernel.metrics import queue

        registering = (checks, tasks)  # importing them is what counts
        assert all(registering)
        scoping.on_system_scope(audit.system_scope_opened)
        metrics.register("queue", queue.collect)
