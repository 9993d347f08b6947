"""Addresses of signing in and out."""

from django.urls import path

from portal.auth import keeping, views
from portal.auth.oidc import views as oidc

app_name = "auth"
urlpatterns = [
    path("auth/login", views.SignIn.as_view(), name="login"),
    path("auth/logout", views.SignOut.as_view(), name="logout"),
    path("auth/signed-in", views.signed_in_page, name="signed-in"),
    path("auth/signed-out", views.signed_out, name="signed-out"),
    path("auth/resend", keeping.resend, name="resend"),
    path("auth/oidc/login", oidc.ToProvider.as_view(), name="oidc-login"),
    path("auth/oidc/callback", oidc.Callback.as_view(), name="oidc-callback"),
    path("auth/oidc/backchannel-logout", oidc.backchannel_logout, name="oidc-backchannel-logout"),
]
