"""Django's description of the kernel: what every other app stands on."""

from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "portal.kernel"
    label = "kernel"
    verbose_name = "Kernel"

    def ready(self) -> None:
        """Register the system checks, the audit of system scopes and the kernel's own ticks."""
        from portal.kernel import audit, checks, scoping, workqueue

        assert checks and workqueue  # importing them registers checks and ticks
        scoping.on_system_scope(audit.system_scope_opened)
