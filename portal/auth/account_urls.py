"""Addresses of a person's own pages."""

from django.urls import path

from portal.auth import account, tokens

app_name = "accounts"
urlpatterns = [
    path("account/roles/", account.own_roles, name="roles"),
    path("platform/people/<str:username>/", account.person, name="person"),
    path("account/tokens/", tokens.tokens, name="tokens"),
    path("account/tokens/<uuid:token_id>/revoke", tokens.token_revoke, name="token-revoke"),
]
