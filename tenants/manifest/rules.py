"""What a tenant may run, beyond what a manifest may say: registries, code of the model's repository, serving modes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from infra.shares import PARTS
from tenants.manifest.tree import Container, FieldError, Manifest, ServingMode

# argparse takes any unambiguous beginning of an option, so the beginnings are refused as well.
_REMOTE_CODE = re.compile(r"(?<![\w-])--tru[a-z]*([-_][a-z]+)*", re.IGNORECASE)
_REMOTE_CODE_ENV = re.compile(r"TRUST_REMOTE_CODE", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ManifestRules:
    """A tenant's rules. ``registries``: prefixes such as ``ghcr.io`` or ``docker.io/vllm``; None: any registry.
    ``free_shares``: shares may state memory and cores of their own, beside the named parts and MIG profiles."""

    registries: tuple[str, ...] | None = None
    allow_remote_code: bool = False
    pin_digests: bool = False
    free_shares: bool = False


def broken_rules(manifest: Manifest, rules: ManifestRules) -> list[FieldError]:
    """Every rule that the manifest breaks; pointers are those of the normalised manifest."""
    errors: list[FieldError] = []
    if manifest.serving_mode is not ServingMode.UNIFIED:
        errors.append(
            FieldError(
                "/spec/template/spec/serving/mode",
                f"serving mode {manifest.serving_mode} is not served here yet: engines would run without sharing "
                "their caches. Use Unified.",
            )
        )
    if not rules.free_shares:
        errors += _free_shares(manifest)
    for pointer, container in _containers(manifest):
        errors += _image(f"{pointer}/image", container.image, rules)
        if not rules.allow_remote_code:
            errors += _remote_code(pointer, container)
    return errors


def _free_shares(manifest: Manifest) -> Iterator[FieldError]:
    for e, engine in enumerate(manifest.engines):
        for m, member in enumerate(engine.members):
            for d, device in enumerate(member.devices):
                if device.share is not None and device.share.memory:
                    yield FieldError(
                        f"/spec/template/spec/engines/{e}/members/{m}/nodeSelector/devices/{d}/share",
                        f"the share of {device.name} states memory of its own ({device.share.memory}); this tenant may "
                        f"use the profiles {', '.join(PARTS)}. Take one of them, or ask a platform-admin to allow free "
                        "figures.",
                    )


def image_registry(image: str) -> str:
    """The image's full repository with its registry: ``vllm/vllm-openai:v1`` → ``docker.io/vllm/vllm-openai``."""
    path = image.partition("@")[0]
    head, slash, rest = path.partition("/")
    if not slash or not ("." in head or ":" in head or head == "localhost"):
        head, rest = "docker.io", path if slash else f"library/{path}"
    repository, colon, tag = rest.rpartition(":")
    return f"{head}/{repository if colon and '/' not in tag else rest}"


def _containers(manifest: Manifest) -> Iterator[tuple[str, Container]]:
    for e, engine in enumerate(manifest.engines):
        for m, member in enumerate(engine.members):
            for c, container in enumerate(member.template.containers):
                yield f"/spec/template/spec/engines/{e}/members/{m}/template/spec/containers/{c}", container


def _image(pointer: str, image: str, rules: ManifestRules) -> Iterator[FieldError]:
    repository = image_registry(image)
    if rules.registries is not None and not any(
        repository == allowed.rstrip("/") or repository.startswith(allowed.rstrip("/") + "/")
        for allowed in rules.registries
    ):
        listed = ", ".join(rules.registries) or "none"
        yield FieldError(
            pointer, f"the image is from {repository}; this tenant may use {listed}. Push it there, or ask for more."
        )
    if rules.pin_digests and "@sha256:" not in image:
        yield FieldError(pointer, f"the image {image} has no digest; this tenant must pin images: add @sha256:….")


def _remote_code(pointer: str, container: Container) -> Iterator[FieldError]:
    for key, texts in (("command", container.command), ("args", container.args)):
        for index, text in enumerate(texts):
            if found := _REMOTE_CODE.search(text):
                yield _remote_code_error(f"{pointer}/{key}/{index}", found[0])
    for index, variable in enumerate(container.env):
        found = _REMOTE_CODE_ENV.search(variable.name) or _REMOTE_CODE.search(variable.value or "")
        if found:
            yield _remote_code_error(f"{pointer}/env/{index}", found[0])


def _remote_code_error(pointer: str, found: str) -> FieldError:
    return FieldError(
        pointer,
        f"{found} runs code from the model's repository on the card; this tenant may not. Leave it out, or ask a "
        "platform-admin to allow it.",
    )
