"""What the API's views share: the actor, who may enter, input by serializer, pages by key."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, Serializer

from portal.kernel.actors import Actor, current_request
from portal.kernel.idempotency import Idempotent
from portal.kernel.pagination import KeysetPagination
from portal.kernel.problems import Forbidden, NotFound
from portal.kernel.problems.errors import Unauthorized

M = TypeVar("M", bound=Model)


class View(Idempotent):
    """A view that knows its actor; POST honours ``Idempotency-Key``.

    ``pagination_class`` is for the schema: an answer that is declared ``many=True`` is a page. A view that answers
    with a plain list sets it to ``None``.
    """

    pagination_class: ClassVar[type[KeysetPagination] | None] = KeysetPagination

    @property
    def actor(self) -> Actor:
        """Who asks (a person or a token).

        Raises:
            Unauthorized: nobody is signed in.
        """
        context = current_request()
        if context is None or context.actor is None:
            raise Unauthorized("Send a token, or sign in.")
        return context.actor

    def read(self, serializer: type[Serializer[Any]], *, partial: bool = False) -> dict[str, Any]:
        """The request's body, checked by ``serializer``; unknown fields are refused by name.

        Raises:
            ValidationError: each wrong field with its pointer (a 422).
        """
        body = serializer(data=self.request.data, partial=partial)
        body.is_valid(raise_exception=True)
        found: dict[str, Any] = body.validated_data
        return found

    def page(self, rows: QuerySet[M], serializer: type[BaseSerializer[M]], ordering: tuple[str, ...]) -> Response:
        """A page of ``rows``; ``ordering`` must end in something unique. Call it inside the scope of the rows."""
        paginator = KeysetPagination()
        paginator.ordering = ordering  # type: ignore[assignment]  # the library takes both
        found = paginator.paginate_queryset(rows, self.request, view=self)
        return paginator.get_paginated_response(serializer(found or [], many=True).data)  # type: ignore[arg-type]  # many=True takes a list


class PlatformView(View):
    """A view for platform roles. Others get the 404 of an address that does not exist.

    ``writers`` may change things (a platform-admin always may); any platform role may read.
    """

    writers: ClassVar[tuple[str, ...]] = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse before anything is read, and before an idempotency key is noted."""
        self.perform_authentication(request)
        self.check_permissions(request)
        actor = self.actor
        if not actor.is_platform():
            raise NotFound("There is nothing at this address, or it is not yours to see.")
        if request.method not in ("GET", "HEAD", "OPTIONS") and not actor.is_platform(*(self.writers or ("",))):
            raise Forbidden(f"{actor.label} may read this, not change it: it takes a platform-admin.")
        super().initial(request, *args, **kwargs)
