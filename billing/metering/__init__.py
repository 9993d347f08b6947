"""From what was seen of pods and nodes to milliseconds of cards.

`holdings` (what a pod has of a node's cards) → `intervals` (when, in which phase, for whom) → `usage` (cut at
hours, rate changes and period edges) → `buckets` (where all the time of the cards went). These four are pure:
no Django.
"""
