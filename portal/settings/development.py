"""For people who work on the portal: DEBUG, plain HTTP, templates and static files read each time."""

import os

os.environ.setdefault("AIF_SECRET_KEY", "development-only-development-only-development-only")
os.environ.setdefault("AIF_ENCRYPTION_KEYS", "ZGV2ZWxvcG1lbnQtb25seS1kZXZlbG9wbWVudC1vbmw=")
os.environ.setdefault("AIF_TOKEN_PEPPER", "development-only-development-only")
os.environ.setdefault("AIF_DATABASE_URL", "postgresql://aif_app@127.0.0.1/aif")
os.environ.setdefault("AIF_BROKER_URL", "redis://127.0.0.1:6379/0")

from portal.settings.base import *
from portal.settings.base import STORAGES, TEMPLATES

DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = False
SECURE_HSTS_SECONDS = 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = False
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
TEMPLATES[0]["OPTIONS"]["loaders"] = [
    "django.template.loaders.filesystem.Loader",
    "django.template.loaders.app_directories.Loader",
]
