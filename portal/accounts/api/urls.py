"""Addresses below ``/api/v1/``."""

from django.urls import path

from portal.accounts.api import views

urlpatterns = [
    path("me", views.MeView.as_view(), name="api-me"),
    path("tokens", views.TokenListView.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", views.TokenView.as_view(), name="api-token"),
]
