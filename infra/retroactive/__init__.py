"""The past of a cluster from the history in its Prometheus. Pure: no Django, no network.

``questions`` (what is asked of a window of time) → ``reading`` (answers → what was seen of pods, and when the source
was scraped at all) → ``pods`` (sights of one pod from any number of windows, merged) → ``lives`` (evidence with the
stated error), and ``nodes`` (what nodes had in service).

Sources: kube-state-metrics (docs/metrics: pod-metrics.md, node-metrics.md), dcgm-exporter (etc/default-counters.csv),
HAMi (scheduler metrics, and those before 2.7).

An edge is exact where a metric tells its instant (scheduled, started, completed), else it lies between two scrapes:
what is proved is billed, and the rest is the stated error. Nothing depends on how the time is cut into windows.
"""
