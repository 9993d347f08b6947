"""Fixtures of the story on real parts."""

from tests.browser.conftest import chromium, pytest_runtest_makereport
from tests.support.keycloak import keycloak, keycloak_server

__all__ = ["chromium", "keycloak", "keycloak_server", "pytest_runtest_makereport"]
