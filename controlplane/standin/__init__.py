"""A stand-in for Flux and vCluster, for tests and the demonstration: `python -m controlplane.standin --help`.

It is neither of them. Neither can be built from the module registry, so this package plays their parts against real
API servers (or the simulator): it reads HelmReleases, writes the objects that vCluster's chart yields, their status and
the Secret with the tenant's kubeconfig, and copies pods between an API server that stands in for the tenant cluster and
the host's namespace. Names of fields, labels and annotations follow helm-controller (v2 API), vCluster's chart 0.36
and pkg/syncer; messages and shapes follow objects recorded from a real vCluster. What differs: docs/standin.md.
"""
