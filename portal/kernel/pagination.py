"""Keyset pagination for lists of the API: stable while rows are added, equally fast on the last page."""

from rest_framework.pagination import CursorPagination


class KeysetPagination(CursorPagination):
    """Newest first by id (UUIDv7 sorts by time); ``?page_size=`` up to 200, ``?cursor=`` from the links."""

    ordering = "-id"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
