"""Addresses of signing in and out."""

from django.urls import path

from portal.auth import views

app_name = "auth"
urlpatterns = [
    path("auth/login", views.SignIn.as_view(), name="login"),
    path("auth/logout", views.SignOut.as_view(), name="logout"),
]
