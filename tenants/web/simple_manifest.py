"""The few fields of the deploy form, as a manifest and back. Pure.

A manifest that says more than the form can hold is not taken apart: :func:`wish_of` answers None, and it is edited as
text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from tenants.manifest import API_VERSION, KIND, Manifest, parse_manifest

MODEL_ARGUMENT = "--model="
ANY_CARD = 'device.driver == "gpu.nvidia.com"'
_MEMORY = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{}Gi")) >= 0'
_ATTRIBUTES = 'device.attributes["gpu.nvidia.com"]'
_PRODUCT = f'"productName" in {_ATTRIBUTES} && {_ATTRIBUTES}.productName == {{}}'
_MEMORY_FORM = re.compile(re.escape(_MEMORY).replace(r"\{\}", r"([1-9][0-9]{0,4})"))
_PRODUCT_FORM = re.compile(re.escape(_PRODUCT).replace(r"\{\}", r'("(?:[^"\\]|\\.)*")'))

_ENGINE = "/spec/template/spec/engines/0/members/0"
_FIELDS = (
    ("/metadata/name", "name"),
    ("/metadata/namespace", None),
    ("/spec/replicas", "replicas"),
    ("/spec/costCode", "cost_code"),
    (f"{_ENGINE}/template/spec/containers/0/image", "image"),
    (f"{_ENGINE}/template/spec/containers/0/args", "args"),
    (f"{_ENGINE}/nodeSelector/devices/0/count", "cards"),
    (f"{_ENGINE}/nodeSelector/devices/0/share/memory", "share_memory"),
    (f"{_ENGINE}/nodeSelector/devices/0/share/cores", "share_cores"),
    (f"{_ENGINE}/nodeSelector/devices/0/share", "share"),
    (f"{_ENGINE}/nodeSelector/devices/0/selectors", "memory_gib"),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the form asks for.

    Attributes:
        model: becomes the first argument ``--model=…``; empty: no such argument.
        cards: cards (or shares of a card) for each replica.
        share: a named part of a card (``half``, ``quarter``, …) or a MIG profile; empty: whole cards, or a share with
            figures of its own.
        share_memory: memory of such a share, as a quantity or a percentage; empty: none.
        share_cores: its cores in percent; None: the memory's percentage.
        product: the driver's name of the kind of card; empty: any.
        memory_gib: the least memory of a card in GiB; None: any.
        engine: the engine's name, kept when a manifest is edited: another name would make its objects anew.
    """

    name: str
    image: str
    model: str = ""
    args: tuple[str, ...] = ()
    replicas: int = 1
    cards: int = 1
    share: str = ""
    share_memory: str = ""
    share_cores: int | None = None
    product: str = ""
    memory_gib: int | None = None
    cost_code: str = ""
    engine: str = "engine"


def manifest_data(wish: Wish) -> dict[str, Any]:
    """The manifest as data, in Modelplane's own shape (that of the pointers in errors)."""
    selectors = []
    if wish.product:
        selectors.append(_PRODUCT.format(json.dumps(wish.product, ensure_ascii=False)))
    if wish.memory_gib is not None:
        selectors.append(_MEMORY.format(wish.memory_gib))
    device: dict[str, Any] = {
        "name": "gpu",
        "count": wish.cards,
        "selectors": [{"cel": expression} for expression in selectors or [ANY_CARD]],
    }
    if wish.share:
        device["share"] = {"profile": wish.share}
    elif wish.share_memory:
        device["share"] = {"memory": wish.share_memory}
        if wish.share_cores is not None:
            device["share"]["cores"] = wish.share_cores
    container: dict[str, Any] = {"name": "engine", "image": wish.image}
    arguments = [f"{MODEL_ARGUMENT}{wish.model}"] if wish.model else []
    if arguments or wish.args:
        container["args"] = [*arguments, *wish.args]
    member = {
        "role": "Standalone",
        "nodeSelector": {"devices": [device]},
        "template": {"spec": {"containers": [container]}},
    }
    spec: dict[str, Any] = {
        "replicas": wish.replicas,
        "template": {"spec": {"engines": [{"name": wish.engine, "members": [member]}]}},
    }
    if wish.cost_code:
        spec["costCode"] = wish.cost_code
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": wish.name}, "spec": spec}


def wish_of(manifest: Manifest) -> Wish | None:
    """The form's fields of a manifest; None where they would lose anything of it."""
    if len(manifest.engines) != 1 or len(manifest.engines[0].members[0].devices) != 1:
        return None
    member = manifest.engines[0].members[0]
    device, container = member.devices[0], member.template.engine
    args = list(container.args)
    model = args.pop(0).removeprefix(MODEL_ARGUMENT) if args and args[0].startswith(MODEL_ARGUMENT) else ""
    product, memory = "", None
    for expression in device.selectors:
        if match := _MEMORY_FORM.fullmatch(expression):
            memory = int(match[1])
        elif match := _PRODUCT_FORM.fullmatch(expression):
            product = json.loads(match[1])
    wish = Wish(
        name=manifest.name,
        image=container.image,
        model=model,
        args=tuple(args),
        replicas=manifest.replicas,
        cards=device.count,
        share=device.share.profile if device.share else "",
        share_memory=device.share.memory if device.share else "",
        share_cores=device.share.cores if device.share else None,
        product=product,
        memory_gib=memory,
        cost_code=manifest.cost_code,
        engine=manifest.engines[0].name,
    )
    again = replace(parse_manifest(manifest_data(wish)), namespace=manifest.namespace)
    return wish if again == manifest else None


def field_of(pointer: str) -> str | None:
    """The form's field that a pointer into :func:`manifest_data` is about."""
    return next((name for prefix, name in _FIELDS if pointer == prefix or pointer.startswith(f"{prefix}/")), None)
