"""Django's description of this app."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "billing"
    label = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        """Register the meter with the work queue, and our prices with the pages below."""
        import billing.reconcilers  # noqa: F401
        from billing import prices, spending

        prices.register()
        spending.register()
