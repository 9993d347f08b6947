"""The base of every form on a page: looks, and refusals of a service shown at the field that they are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.forms.utils import ErrorList
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from portal.kernel.problems import Problem

FieldOf = Callable[[str], str | None]
"""The field that a JSON pointer is about; None: the form as a whole."""


class FieldErrors(ErrorList):
    """Errors as a list with an id, so that a screen reader reads them with their field."""

    def render(self, *args: Any, **kwargs: Any) -> SafeString:
        if not self:
            return mark_safe("")
        field_id = getattr(self, "field_id", None)
        where = format_html(' id="{}_error"', field_id) if field_id else ""
        items = format_html_join("", "<li>{}</li>", ((str(message),) for message in self))
        return format_html('<ul class="errorlist"{}>{}</ul>', where, items)

    __str__ = render
    __html__ = render


class PortalForm(forms.Form):
    """Bootstrap's classes on the widgets, and no browser bubbles in the place of our sentences."""

    use_required_attribute = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("error_class", FieldErrors)
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            looks = _class_of(field.widget)
            if looks:
                field.widget.attrs["class"] = f"{field.widget.attrs.get('class', '')} {looks}".strip()

    def add_problem(self, problem: Problem, field_of: FieldOf | Mapping[str, str] | None = None) -> None:
        """Show a refusal: each of its errors at its field, the others (with their pointers) above the form.

        Args:
            field_of: the field of a pointer. By default ``/name`` is the field ``name``.
        """
        if not problem.errors:
            self.add_error(None, problem.detail)
        for error in problem.errors:
            pointer = error.get("pointer", "")
            if field_of is None:
                name: str | None = pointer.strip("/")
            else:
                name = field_of.get(pointer) if isinstance(field_of, Mapping) else field_of(pointer)
            if name in self.fields:
                self.add_error(name, error["detail"])
            else:
                self.add_error(None, f"{pointer}: {error['detail']}" if pointer.strip("/") else error["detail"])


def _class_of(widget: forms.Widget) -> str:
    if isinstance(widget, forms.CheckboxSelectMultiple | forms.RadioSelect | forms.HiddenInput):
        return ""
    if isinstance(widget, forms.CheckboxInput):
        return "form-check-input"
    return "form-select" if isinstance(widget, forms.Select) else "form-control"
