"""Django's description of this app."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "billing"
    label = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        """Register the meter with the work queue, our prices with the pages below, and our metrics."""
        import billing.reconcilers  # noqa: F401
        from billing import metrics, prices, spending

        prices.register()
        spending.register()
        metrics.register()
