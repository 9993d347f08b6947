"""Real Kubernetes control planes as plain processes on loopback, with fake GPU nodes: for tests and `make demo`.

A program of its own, like the simulator, whose fleet files it reads; it imports nothing of the product.
"""
