"""Django's description of this app."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "portal.demo"
    label = "demo"
    verbose_name = "Demonstration data"
