"""What a cluster's exporters would tell of the pods on fake nodes: dcgm-exporter's and kube-state-metrics' texts."""
