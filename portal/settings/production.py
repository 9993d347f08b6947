"""The default profile: strict. Only a loopback address may be served without TLS, and only when told so."""

from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.settings import env
from portal.settings.base import *  # a profile is the base with a few lines changed
from portal.settings.base import AIF_PUBLIC_URL, AIF_TOKEN_PEPPER, ALLOWED_HOSTS

if not ALLOWED_HOSTS:
    raise ImproperlyConfigured("Set AIF_ALLOWED_HOSTS: the host names people use, comma-separated.")
if len(AIF_TOKEN_PEPPER) < 32:
    raise ImproperlyConfigured("AIF_TOKEN_PEPPER is shorter than 32 characters.")

if env.flag("AIF_LOOPBACK"):
    # `portal.cli up` on one machine: plain HTTP, and nothing but loopback names are served.
    _host = urlsplit(AIF_PUBLIC_URL).hostname or ""
    if not {_host, *ALLOWED_HOSTS} <= {"127.0.0.1", "localhost", "[::1]", "::1"}:
        raise ImproperlyConfigured("AIF_LOOPBACK serves without TLS, so only 127.0.0.1 and localhost are allowed.")
    SECURE_SSL_REDIRECT = False
    SESSION_COOKIE_SECURE = False
    CSRF_COOKIE_SECURE = False
    SECURE_HSTS_SECONDS = 0
    SECURE_HSTS_INCLUDE_SUBDOMAINS = False
    SECURE_HSTS_PRELOAD = False
