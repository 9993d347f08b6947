"""Django's description of this app."""

from django.apps import AppConfig


class AuthConfig(AppConfig):
    name = "portal.auth"
    label = "portal_auth"
    verbose_name = "Sign-in"
