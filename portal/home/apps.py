"""Django's description of this app."""

from django.apps import AppConfig


class HomeConfig(AppConfig):
    name = "portal.home"
    label = "home"
    verbose_name = "Home pages"
