"""What was typed into a form is not lost because the session ended meanwhile.

The refused form comes back as a page that holds what was sent, encrypted and bound to the person. After signing in
(in another tab) it is shown once more as a form with a new CSRF token, and sent by the person. Files are not kept.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from portal.kernel import crypto
from portal.kernel.problems import BadRequest, Forbidden
from portal.kernel.web import actor_of

KEPT_SECONDS = 3600
_OWN = ("csrfmiddlewaretoken",)


def kept_page(request: HttpRequest, user_id: Any) -> HttpResponse:
    """403 with what was typed in it."""
    fields = [(name, value) for name, values in request.POST.lists() if name not in _OWN for value in values]
    kept = {
        "user": str(user_id),
        "path": request.get_full_path(),
        "fields": fields,
        "until": int(time.time()) + KEPT_SECONDS,
    }
    return _page(request, crypto.encrypt(json.dumps(kept).encode()).decode(), files=list(request.FILES))


def _page(request: HttpRequest, kept: str, **more: Any) -> HttpResponse:
    sign_in = f"{reverse('auth:login')}?{urlencode({'next': reverse('auth:signed-in')})}"
    context = {"kept": kept, "sign_in": sign_in, "minutes": KEPT_SECONDS // 60, **more}
    response = render(request, "auth/kept.html", context, status=403)
    response["Cache-Control"] = "no-store"
    return response


@csrf_exempt  # it changes nothing: it shows what only we can have encrypted, to the person who typed it
@require_POST
def resend(request: HttpRequest) -> HttpResponse:
    """The kept form, to be looked at and sent."""
    actor = actor_of(request)
    if actor is None:
        return _page(request, request.POST.get("kept", ""), still_out=True)
    try:
        kept = json.loads(crypto.decrypt(request.POST.get("kept", "").encode()))
    except (crypto.DecryptionError, ValueError) as error:
        raise BadRequest("What was kept of the form can't be read. Go back and send it anew.") from error
    if kept["user"] != str(actor.user_id):
        raise Forbidden("This form was filled in by somebody else. Sign in as that person to send it.")
    if kept["until"] < time.time():
        raise Forbidden("This form was kept for an hour, which is over. Fill it in anew.")
    response = render(request, "auth/resend.html", {"path": kept["path"], "fields": kept["fields"]})
    response["Cache-Control"] = "no-store"
    return response
