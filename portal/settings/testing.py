"""For the test suite. ``tests/support/db.py`` puts the clone database's address into AIF_DATABASE_URL."""

import os

os.environ.setdefault("AIF_SECRET_KEY", "testing-only-testing-only-testing-only-testing-only")
os.environ.setdefault("AIF_ENCRYPTION_KEYS", "dGVzdGluZy1vbmx5LXRlc3Rpbmctb25seS10ZXN0aW4=")
os.environ.setdefault("AIF_TOKEN_PEPPER", "testing-only-testing-only-testing")
os.environ.setdefault("AIF_DATABASE_URL", "postgresql://aif_app@127.0.0.1/aif_test_unset")
os.environ.setdefault("AIF_BROKER_URL", "memory://")

from portal.settings.base import *
from portal.settings.base import BASE_DIR, DATABASES, INSTALLED_APPS, STORAGES

ALLOWED_HOSTS = ["testserver", "127.0.0.1", "localhost"]
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = False
SECURE_HSTS_SECONDS = 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = False
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
STATIC_ROOT = str(BASE_DIR / "tests" / "data")  # WhiteNoise wants a folder; pages take their files from the finders
WHITENOISE_AUTOREFRESH = True  # else each test client reads the whole folder
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES["default"]["CONN_MAX_AGE"] = 0
DATABASES["default"]["TEST"] = {"NAME": DATABASES["default"]["NAME"]}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.scopedapp"]
