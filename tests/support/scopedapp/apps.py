from django.apps import AppConfig


class ScopedAppConfig(AppConfig):
    name = "tests.support.scopedapp"
    label = "scopedapp"
