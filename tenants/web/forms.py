"""Forms of a team's pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from infra.models import GPUType
from infra.shares import PARTS
from portal.kernel.forms import PortalForm
from tenants.manifest.parsing import MAX_REPLICAS
from tenants.models import Member
from tenants.selectors.deployments import PHASES
from tenants.web.simple_manifest import Wish

DEFAULT_IMAGE = "vllm/vllm-openai:v0.23.0"
OWN = "own"
"""The choice of a share with figures of its own: no profile is called so."""
SHARES = [("", "whole cards"), *((part.name, part.words) for part in PARTS.values())]
MAX_CARDS = 64
AUDITED = ("deployment", "member", "quota", "quota-request", "tenantcluster", "namespace_claim", "tenant", "api_token")


class DeployForm(PortalForm):
    """A model on one kind of card: what most deployments are. The rest is for the manifest itself."""

    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and dashes. It can't be changed later.")
    model = forms.CharField(
        required=False, max_length=500, help_text="As its repository names it. Becomes the argument --model=…"
    )
    image = forms.CharField(max_length=1024, initial=DEFAULT_IMAGE, help_text="The engine that serves the model.")
    args = forms.CharField(
        required=False, label="More arguments", widget=forms.Textarea(attrs={"rows": 3, "class": "mono"}),
        help_text="One on each line, for example --max-model-len=32768.",
    )  # fmt: skip
    replicas = forms.IntegerField(min_value=0, max_value=MAX_REPLICAS, initial=1)
    cards = forms.IntegerField(min_value=1, max_value=MAX_CARDS, initial=1, label="Cards per replica")
    share = forms.ChoiceField(choices=SHARES, required=False, label="Of each card")
    share_memory = forms.CharField(
        required=False, max_length=32, label="Memory of each share", help_text="Of one card, such as 20Gi or 25%."
    )
    share_cores = forms.IntegerField(
        required=False, min_value=1, max_value=100, label="Cores of each share",
        help_text="Percent of one card. Empty: as much as of its memory.",
    )  # fmt: skip
    product = forms.ChoiceField(required=False, label="GPU type", help_text="Those that your team has a quota for.")
    memory_gib = forms.IntegerField(
        required=False, min_value=1, max_value=99_999, label="Least memory of a card",
        help_text="Leave it empty for any.",
    )  # fmt: skip
    cost_code = forms.CharField(required=False, max_length=60)
    engine = forms.CharField(max_length=63, initial="engine", widget=forms.HiddenInput)

    def __init__(self, *args: Any, products: list[tuple[str, str]], cost_code: str = "", fixed_name: bool = False,
                 profiles: Sequence[str] = (), free_shares: bool = False, **kwargs: Any) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        share = self.fields["share"]
        assert isinstance(share, forms.ChoiceField)
        own = [(OWN, "memory and cores of its own")] if free_shares else []
        share.choices = [*SHARES, *((name, f"MIG slices {name}") for name in profiles), *own]
        if not free_shares:
            del self.fields["share_memory"], self.fields["share_cores"]
        product = self.fields["product"]
        assert isinstance(product, forms.ChoiceField)
        product.choices = [("", "any that fits"), *products]
        code = self.fields["cost_code"]
        code.help_text = f"Empty: the team's own, {cost_code}." if cost_code else "On the bill, beside each line."
        if fixed_name:
            self.fields["name"].widget.attrs["readonly"] = True
            self.fields["name"].help_text = "A deployment keeps its name."

    def clean(self) -> dict[str, Any]:
        """Figures go with a share of its own, and that with figures."""
        data = super().clean() or self.cleaned_data
        own = data.get("share") == OWN
        if own and not data.get("share_memory") and "share_memory" not in self.errors:
            self.add_error("share_memory", "State the memory of each share, such as 20Gi or 25%.")
        for name in () if own else ("share_memory", "share_cores"):
            if data.get(name):
                self.add_error(name, "Choose memory and cores of its own above, or leave this empty.")
        return data

    def wish(self) -> Wish:
        """The fields of a valid form."""
        data = self.cleaned_data
        own = data["share"] == OWN
        lines = [line.strip() for line in data["args"].splitlines()]
        return Wish(
            name=data["name"],
            image=data["image"],
            model=data["model"],
            args=tuple(line for line in lines if line),
            replicas=data["replicas"],
            cards=data["cards"],
            share="" if own else data["share"],
            share_memory=data["share_memory"] if own else "",
            share_cores=data["share_cores"] if own else None,
            product=data["product"],
            memory_gib=data["memory_gib"],
            cost_code=data["cost_code"],
            engine=data["engine"],
        )


def values_of(wish: Wish) -> dict[str, Any]:
    """What the form shows for a wish."""
    return {
        "name": wish.name, "model": wish.model, "image": wish.image, "args": "\n".join(wish.args),
        "replicas": wish.replicas, "cards": wish.cards, "share": OWN if wish.share_memory else wish.share,
        "share_memory": wish.share_memory, "share_cores": wish.share_cores, "product": wish.product,
        "memory_gib": wish.memory_gib, "cost_code": wish.cost_code,
        "engine": wish.engine,
    }  # fmt: skip


def products_of(types: list[GPUType]) -> list[tuple[str, str]]:
    """Choices of the form: kinds of cards that have the attribute by which a selector names them."""
    named = [(str((row.attributes.get("productName") or {}).get("string") or ""), row) for row in types]
    return [(name, f"{row.name} ({row.memory_mib / 1024:.0f} GiB)") for name, row in named if name]


class DeploymentFilter(PortalForm):
    """What the list of deployments is narrowed by; it lives in the address."""

    q = forms.CharField(
        required=False, max_length=63, label="Name contains", widget=forms.TextInput(attrs={"type": "search"})
    )
    phase = forms.ChoiceField(
        required=False, label="State", choices=[("", "any state"), *((phase, phase) for phase in PHASES)]
    )


class ScaleForm(PortalForm):
    """Another number of replicas."""

    replicas = forms.IntegerField(
        min_value=0, max_value=MAX_REPLICAS, help_text="0 stops it: nothing runs and nothing is held."
    )


class ImageForm(PortalForm):
    """Another image for every engine of the deployment."""

    image = forms.CharField(max_length=1024, help_text="Repository and tag, or digest.")


class DeleteForm(PortalForm):
    """The name, typed, so that nothing is deleted by a slip."""

    name = forms.CharField(
        label="Type its name to delete it", widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, *args: Any, expected: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = expected

    def clean_name(self) -> str:
        """Exactly the name."""
        name: str = self.cleaned_data["name"]
        if name != self.expected:
            raise forms.ValidationError(f"This is not its name. Type {self.expected} to delete it.")
        return name


class MemberForm(PortalForm):
    """A person and a role."""

    username = forms.CharField(
        max_length=150, label="User name", help_text="As they sign in. They must have signed in once."
    )
    role = forms.ChoiceField(choices=Member.Role.choices, initial=Member.Role.DEVELOPER)


class AuditFilter(PortalForm):
    """What the audit is narrowed by; it lives in the address."""

    q = forms.CharField(
        required=False, max_length=100, label="Who, what or which object",
        widget=forms.TextInput(attrs={"type": "search"}),
    )  # fmt: skip
    kind = forms.ChoiceField(
        required=False, label="Kind of object",
        choices=[("", "any kind"), *((kind, kind) for kind in AUDITED)],
    )  # fmt: skip
    outcome = forms.ChoiceField(
        required=False, choices=[("", "done or refused"), ("done", "done"), ("refused", "refused")]
    )
