"""Sign-in through an OpenID Connect provider (Keycloak): ``mozilla-django-oidc`` with what it leaves out.

The flow (state, nonce, PKCE) is the library's; which tokens are believed, who a person is, what becomes of errors, how
long a session lasts and how it ends are ours. Off while ``AIF_OIDC_ISSUER`` is not set.
"""
