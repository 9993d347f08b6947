"""A manifest that somebody hands in: read, typed, and held against the tenant's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.cel import SelectorError, compile_selector
from portal.kernel.problems import Invalid
from tenants.manifest import (
    Document,
    FieldError,
    Manifest,
    ManifestInvalid,
    ManifestRules,
    broken_rules,
    parse_manifest,
    to_yaml,
)
from tenants.models import Tenant

ManifestSource = str | Mapping[str, Any] | Document | Manifest


def manifest_accept(tenant: Tenant, source: ManifestSource) -> Manifest:
    """The manifest, with the tenant's namespace and cost code filled in.

    Raises:
        Invalid: with every fault (``errors``: pointer, detail, line, column).
    """
    try:
        manifest = source if isinstance(source, Manifest) else parse_manifest(source, check=check_selector)
    except ManifestInvalid as error:
        raise _invalid(error.errors) from error
    faults: list[FieldError] = []
    if manifest.namespace and manifest.namespace != tenant.slug:
        faults.append(
            FieldError(
                "/metadata/namespace",
                f"namespace {manifest.namespace!r} names another tenant than {tenant.slug!r}; write {tenant.slug}, or "
                "leave it out.",
            )
        )
    faults += broken_rules(manifest, rules_of(tenant))
    cost_code = manifest.cost_code or tenant.cost_code
    if tenant.cost_code_required and not cost_code:
        faults.append(FieldError("/spec/costCode", f"tenant {tenant.slug} must name a cost code; add spec.costCode."))
    if faults:
        raise _invalid(faults)
    return replace(manifest, namespace=tenant.slug)


def rules_of(tenant: Tenant) -> ManifestRules:
    """What the tenant may run."""
    registries = tenant.image_registries
    return ManifestRules(
        registries=None if registries is None else tuple(registries),
        allow_remote_code=tenant.allow_remote_code,
        pin_digests=tenant.pin_image_digests,
        free_shares=tenant.free_shares,
    )


def check_selector(expression: str) -> tuple[int, int, str] | None:
    """Type a CEL selector as Kubernetes' own compiler would; None, or (line, column, sentence)."""
    try:
        compile_selector(expression)
    except SelectorError as error:
        return error.line, error.column, f"the selector is not valid: {error.detail}"
    return None


def source_text(source: ManifestSource, manifest: Manifest) -> str:
    """The text to keep beside the spec: as it was handed in, or the normalised one where there was no text."""
    return source if isinstance(source, str) else to_yaml(manifest)


def _invalid(errors: list[FieldError]) -> Invalid:
    first = str(errors[0])
    more = f" And {len(errors) - 1} more." if len(errors) > 1 else ""
    return Invalid(f"The manifest can't be accepted: {first}{more}", errors=[error.as_json() for error in errors])
