"""What somebody is about to deploy: the fields of the form, or a manifest as text; and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from portal.kernel.problems import Problem
from tenants.manifest import Manifest, ManifestInvalid, parse_manifest, to_yaml
from tenants.manifest.loading import MAX_BYTES
from tenants.models import GPUQuota, Tenant
from tenants.selectors.profiles import profiles_offered
from tenants.services.manifests import ManifestSource, manifest_accept
from tenants.web.forms import DeployForm, products_of, values_of
from tenants.web.simple_manifest import Wish, field_of, manifest_data, wish_of

FORM, TEXT = "form", "yaml"
STARTER = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {{name: qwen3-8b, namespace: {tenant}}}
spec:
  replicas: 1
  engines:
  - name: engine
    members: [{{role: Standalone}}]
    nodeSelector:
      devices:
      - name: gpu
        count: 1
        selectors:
        - cel: device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0
    template:
      spec:
        containers:
        - {{name: engine, image: "vllm/vllm-openai:v0.23.0", args: ["--model=Qwen/Qwen3-8B"]}}
"""


@dataclass
class Draft:
    """One state of the deploy page.

    Attributes:
        mode: ``form`` or ``yaml``: which of the two is shown.
        form: the fields, filled in as far as they were.
        text: the manifest as text; in the mode ``form`` what the valid fields become.
        faults: of the text: ``pointer``, ``detail``, and ``line`` and ``column`` where they are known.
        source: what to apply; None where it is known to be wrong.
    """

    mode: str
    form: DeployForm
    text: str = ""
    faults: list[dict[str, str]] = field(default_factory=list)
    source: ManifestSource | None = None

    def refuse(self, problem: Problem) -> None:
        """Show a refusal where it belongs: at the fields, or above the text."""
        self.source = None
        if self.mode == FORM:
            self.form.add_problem(problem, field_of)
        else:
            self.faults += problem.errors or [{"pointer": "", "detail": problem.detail}]

    @property
    def untouched(self) -> bool:
        """A form in which neither a name nor a model stands yet."""
        return self.mode == FORM and not (self.form.data.get("name") or self.form.data.get("model"))

    @property
    def sentences(self) -> list[str]:
        """All that is wrong, one sentence each, for the place where there are no fields."""
        if self.mode == TEXT:
            return [_place(fault) + fault["detail"] for fault in self.faults]
        labels = {bound.name: f"{bound.label}: " for bound in self.form}
        return [f"{labels.get(name, '')}{error}" for name, errors in self.form.errors.items() for error in errors]


def _place(fault: dict[str, str]) -> str:
    if "line" in fault:
        return f"Line {fault['line']}, column {fault['column']}: "
    return f"{fault['pointer']}: " if fault["pointer"].strip("/") else ""


def deploy_form(tenant: Tenant, data: QueryDict | None = None, *, initial: dict[str, Any] | None = None,
                fixed_name: bool = False) -> DeployForm:  # fmt: skip
    """The form with the kinds of cards that the tenant may hold. Inside an open scope."""
    quotas = GPUQuota.objects.filter(tenant=tenant, limit__gt=0).select_related("gpu_type").order_by("gpu_type__slug")
    products = products_of([quota.gpu_type for quota in quotas])
    return DeployForm(
        data, products=products, cost_code=tenant.cost_code, initial=initial, fixed_name=fixed_name,
        profiles=profiles_offered([quota.gpu_type_id for quota in quotas]), free_shares=tenant.free_shares,
    )  # fmt: skip


def new_draft(tenant: Tenant, mode: str) -> Draft:
    """An empty one."""
    return Draft(TEXT if mode == TEXT else FORM, deploy_form(tenant), STARTER.format(tenant=tenant.slug))


def draft_of(tenant: Tenant, manifest: Manifest, text: str, mode: str = "") -> Draft:
    """That of a deployment: as fields where they hold all of it, else (or on demand) as text."""
    wish = wish_of(manifest)
    form = deploy_form(tenant, initial=values_of(wish) if wish else None, fixed_name=True)
    shown = wish is not None and _offered(form, wish) and mode != TEXT
    return Draft(FORM if shown else TEXT, form, text or to_yaml(manifest))


def read_draft(tenant: Tenant, data: QueryDict, upload: Any = None, *, fixed_name: bool = False) -> Draft:
    """What was sent, checked. Inside an open scope.

    Args:
        upload: a file with the manifest; it takes the place of the text.
    """
    if data.get("mode") != TEXT:
        return _read_fields(tenant, data, fixed_name)
    draft = Draft(TEXT, deploy_form(tenant, fixed_name=fixed_name), data.get("manifest", "").replace("\r\n", "\n"))
    if upload:
        if upload.size > MAX_BYTES:
            draft.faults.append({"pointer": "", "detail": f"The file is larger than {MAX_BYTES // 1024} KiB."})
            return draft
        try:
            draft.text = upload.read().decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            draft.faults.append({"pointer": "", "detail": "The file is not text in UTF-8. Save it so, and try again."})
            return draft
    return _checked(draft, tenant, draft.text)


def _read_fields(tenant: Tenant, data: QueryDict, fixed_name: bool) -> Draft:
    draft = Draft(FORM, deploy_form(tenant, data, fixed_name=fixed_name))
    if not draft.form.is_valid():
        return draft
    return _checked(draft, tenant, manifest_data(draft.form.wish()))


def _checked(draft: Draft, tenant: Tenant, source: ManifestSource) -> Draft:
    try:
        manifest = manifest_accept(tenant, source)
    except Problem as problem:
        draft.refuse(problem)
        return draft
    if draft.mode == FORM:
        draft.text = to_yaml(manifest)
    draft.source = source
    return draft


def as_text(draft: Draft) -> Draft:
    """The same as text: the fields of a form become their manifest."""
    return draft if draft.source is None else Draft(TEXT, draft.form, draft.text, source=draft.text)


def as_fields(draft: Draft, tenant: Tenant, *, fixed_name: bool) -> Draft:
    """The same as fields; where they can't hold all of the text, it stays text and says so."""
    try:
        wish = wish_of(parse_manifest(draft.text))
    except ManifestInvalid as error:
        if not draft.faults:
            draft.faults += [one.as_json() for one in error.errors]
        return draft
    if wish is None or not _offered(draft.form, wish):
        sentence = "This manifest says more than the form has fields for. Edit it here."
        draft.faults.append({"pointer": "", "detail": sentence})
        return draft
    return Draft(FORM, deploy_form(tenant, initial=values_of(wish), fixed_name=fixed_name), draft.text)


def _offered(form: DeployForm, wish: Wish) -> bool:
    """Whether the form's choices hold what the wish says."""
    shown = values_of(wish)
    return all(
        shown[name] in [value for value, _ in form.fields[name].choices]  # type: ignore[attr-defined]
        for name in ("product", "share")
    )
