"""The ModelDeployment manifest: text or data ↔ one immutable tree, and what of it this portal takes on."""

from tenants.manifest.dumping import from_spec, to_data, to_spec, to_yaml
from tenants.manifest.loading import Document, load_document, load_documents
from tenants.manifest.parsing import API_VERSION, KIND, parse_manifest
from tenants.manifest.rules import ManifestRules, broken_rules
from tenants.manifest.tree import FieldError, Manifest, ManifestInvalid

__all__ = [
    "API_VERSION",
    "KIND",
    "Document",
    "FieldError",
    "Manifest",
    "ManifestInvalid",
    "ManifestRules",
    "broken_rules",
    "from_spec",
    "load_document",
    "load_documents",
    "parse_manifest",
    "to_data",
    "to_spec",
    "to_yaml",
]
