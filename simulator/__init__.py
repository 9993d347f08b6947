"""A simulated fleet: one process that speaks what a portal uses of the Kubernetes API, dcgm-exporter and
OpenCost, for several clusters. It stands alone: it imports nothing of the portal, and is started as a process.

    python -m simulator --state-dir DIR [--fleet FILE] [--clusters a,b] [--port-base N] [--fast]
"""
