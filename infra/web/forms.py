"""Forms of the fleet's pages."""

from __future__ import annotations

from django import forms

from infra.isolation import TITLES, Piece
from infra.models import Cluster, Site
from infra.services.clusters import DEFAULT_SYSTEM_NAMESPACES
from portal.kernel.forms import PortalForm


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


def _pairs(text: str, field: str) -> dict[str, str]:
    """``key=value`` a line (or separated by commas)."""
    found: dict[str, str] = {}
    for word in _words(text):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise forms.ValidationError(f"{field}: {word} is not of the form key=value.")
        found[key] = value
    return found


class HiddenAgain(forms.Textarea):
    """What was typed is not sent back with the page: it is a secret."""

    def format_value(self, value: object) -> str:
        """Empty, always."""
        return ""


class SiteForm(PortalForm):
    """A new site."""

    slug = forms.SlugField(max_length=40, label="Short name", help_text="lower-case letters, digits, dashes")
    name = forms.CharField(max_length=120, required=False, label="Name")


class ClusterDescription(PortalForm):
    """What is ours to say about a cluster."""

    name = forms.CharField(max_length=120, required=False, label="Name")
    site = forms.ModelChoiceField(Site.objects.none(), to_field_name="slug", label="Site")
    labels = forms.CharField(
        required=False, label="Labels", help_text="key=value, for clusterSelector; separated by spaces"
    )
    system_namespaces = forms.CharField(
        required=False,
        label="System namespaces",
        help_text="Their GPU time is overhead. Exact names, separated by spaces.",
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        site = self.fields["site"]
        assert isinstance(site, forms.ModelChoiceField)
        site.queryset = Site.objects.order_by("slug")

    def clean_labels(self) -> dict[str, str]:
        """As a mapping."""
        return _pairs(self.cleaned_data["labels"], "Labels")

    def clean_system_namespaces(self) -> list[str]:
        """As a list."""
        return _words(self.cleaned_data["system_namespaces"])


class ConnectForm(ClusterDescription):
    """A cluster to connect."""

    slug = forms.SlugField(max_length=40, label="Short name", help_text="lower-case letters, digits, dashes")
    mode = forms.ChoiceField(choices=Cluster.Mode.choices, initial=Cluster.Mode.OBSERVE, label="Mode")
    kubeconfig = forms.CharField(
        max_length=200_000,
        strip=False,
        label="Kubeconfig",
        widget=forms.Textarea(attrs={"rows": 14, "class": "manifest", "autocomplete": "off", "spellcheck": "false"}),
        help_text="With a token or a client certificate inside. It is encrypted, and never shown again.",
    )
    field_order = ["slug", "name", "site", "mode", "kubeconfig", "labels", "system_namespaces"]

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["system_namespaces"].initial = " ".join(DEFAULT_SYSTEM_NAMESPACES)


class PreflightForm(PortalForm):
    """A kubeconfig to be checked. It is not shown again."""

    mode = forms.ChoiceField(choices=Cluster.Mode.choices, initial=Cluster.Mode.OBSERVE, label="For mode")
    kubeconfig = forms.CharField(
        max_length=200_000,
        strip=False,
        label="Kubeconfig",
        widget=HiddenAgain(attrs={"rows": 14, "class": "manifest", "autocomplete": "off", "spellcheck": "false"}),
        help_text="It is used for this check alone: not stored, and not shown again.",
    )


class KubeconfigForm(PortalForm):
    """New credentials of a cluster."""

    kubeconfig = forms.CharField(
        max_length=200_000,
        strip=False,
        label="New kubeconfig of the same cluster",
        widget=forms.Textarea(attrs={"rows": 10, "class": "manifest", "autocomplete": "off", "spellcheck": "false"}),
    )


class AbandonForm(PortalForm):
    """Giving a cluster up needs its name, typed, and a reason."""

    confirm = forms.CharField(max_length=40, label="Type the cluster's short name")
    reason = forms.CharField(max_length=2000, label="Why", widget=forms.Textarea(attrs={"rows": 3}))


class SayForm(PortalForm):
    """What a platform-admin says of a piece of a cluster's isolation; an empty text takes it back."""

    piece = forms.ChoiceField(choices=[(piece.value, TITLES[piece]) for piece in Piece], label="Piece")
    how = forms.ChoiceField(
        choices=[("declared", "it is there; I tried it"), ("accepted", "it is missing, and that is accepted")],
        label="What you say",
    )
    text = forms.CharField(
        required=False, max_length=1000, label="What was tried, or why it is accepted",
        widget=forms.Textarea(attrs={"rows": 2}), help_text="At least ten characters.",
    )  # fmt: skip


class ManifestForm(PortalForm):
    """An InferenceClass or InferenceCluster manifest."""

    manifest = forms.CharField(
        max_length=200_000,
        label="Manifest",
        widget=forms.Textarea(attrs={"rows": 14, "class": "manifest", "spellcheck": "false"}),
        help_text="InferenceClass or InferenceCluster of modelplane.ai/v1alpha1; several are applied in order.",
    )
