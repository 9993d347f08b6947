"""Device selectors in CEL, with the answers of Kubernetes' DRA allocator. Pure: no Django, no I/O.

    selector = compile_selector('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0')
    selector.matches(Device.of("gpu.nvidia.com", capacity={"memory": "80Gi"}))   # → Match(true)

Where Kubernetes' versions differ, 1.37 leads (for what the recorded rows hold, 0.33 and 0.37 agree).
Deliberately stricter than Kubernetes: see `infra.cel.library` for functions that are not offered, and nesting deeper
than 32 levels is refused when compiling.
"""

from infra.cel.device import Device, Version
from infra.cel.rewrite import Reference
from infra.cel.selector import Answer, Match, Selector, SelectorError, compile_selector

__all__ = ["Answer", "Device", "Match", "Reference", "Selector", "SelectorError", "Version", "compile_selector"]
