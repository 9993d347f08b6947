"""Addresses below ``/api/v1/``."""

from django.urls import path

from portal.accounts.api import openapi, views

# The OpenAPI generator finds what is imported; here, so that workers need not load it.
assert openapi.TokenScheme.name

urlpatterns = [
    path("me", views.MeView.as_view(), name="api-me"),
    path("tokens", views.TokenListView.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", views.TokenView.as_view(), name="api-token"),
]
