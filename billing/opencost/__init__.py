"""OpenCost: what it answers, what its units cost, and why its figures differ from ours.

``answers``, ``bodies``, ``unitcosts``, ``estimates`` and ``compare`` are pure (no Django): they read, compute and
classify. ``client`` asks.
"""
