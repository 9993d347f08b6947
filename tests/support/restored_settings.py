"""Production settings with the tests' own app, whose tables the tests' database has: for what is restored from it."""

from portal.settings.base import INSTALLED_APPS
from portal.settings.production import *  # noqa: F403  # a profile with one app more

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.scopedapp"]
