"""The default profile: strict. Only a loopback address may be served without TLS, and only when told so."""

from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.settings import env
from portal.settings.base import *  # a profile is the base with a few lines changed
from portal.settings.base import (
    AIF_OIDC_BACKCHANNEL_URL,
    AIF_OIDC_CLIENT_ID,
    AIF_OIDC_CLIENT_SECRET,
    AIF_OIDC_ISSUER,
    AIF_PUBLIC_URL,
    AIF_TOKEN_PEPPER,
    ALLOWED_HOSTS,
)

if not ALLOWED_HOSTS:
    raise ImproperlyConfigured("Set AIF_ALLOWED_HOSTS: the host names people use, comma-separated.")
if len(AIF_TOKEN_PEPPER) < 32:
    raise ImproperlyConfigured("AIF_TOKEN_PEPPER is shorter than 32 characters.")

LOOPBACK = {"127.0.0.1", "localhost", "[::1]", "::1"}

if AIF_OIDC_ISSUER:
    if not AIF_OIDC_CLIENT_ID or not AIF_OIDC_CLIENT_SECRET:
        raise ImproperlyConfigured("AIF_OIDC_ISSUER needs AIF_OIDC_CLIENT_ID and AIF_OIDC_CLIENT_SECRET.")
    for _name, _address in (
        ("AIF_OIDC_ISSUER", AIF_OIDC_ISSUER),
        ("AIF_OIDC_BACKCHANNEL_URL", AIF_OIDC_BACKCHANNEL_URL),
    ):
        _parts = urlsplit(_address)
        _local = env.flag("AIF_LOOPBACK") and _parts.hostname in LOOPBACK
        if not _parts.hostname or not (_parts.scheme == "https" or (_parts.scheme == "http" and _local)):
            raise ImproperlyConfigured(f"{_name}={_address}: use https://…; codes and secrets go there.")

if env.flag("AIF_LOOPBACK"):
    # `portal.cli up` on one machine: plain HTTP, and nothing but loopback names are served.
    _host = urlsplit(AIF_PUBLIC_URL).hostname or ""
    if not {_host, *ALLOWED_HOSTS} <= LOOPBACK:
        raise ImproperlyConfigured("AIF_LOOPBACK serves without TLS, so only 127.0.0.1 and localhost are allowed.")
    SECURE_SSL_REDIRECT = False
    SESSION_COOKIE_SECURE = False
    CSRF_COOKIE_SECURE = False
    SECURE_HSTS_SECONDS = 0
    SECURE_HSTS_INCLUDE_SUBDOMAINS = False
    SECURE_HSTS_PRELOAD = False
