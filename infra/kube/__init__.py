"""The only place, with the adapters, that speaks to a Kubernetes API.

- :mod:`infra.kube.kubeconfig`: a pasted kubeconfig → :class:`~infra.kube.kubeconfig.Credentials`, or a
refusal.
- :mod:`infra.kube.client`: :class:`~infra.kube.client.KubeClient`, one for each cluster.
- :mod:`infra.kube.errors`: what an answer means; :mod:`infra.kube.classify` decides it.
- :mod:`infra.kube.apply`: manifests made ready to apply (order, labels, digests, whose they are).
- :mod:`infra.kube.access`: the verbs that observe and manage mode need.

Nothing is imported here: ``kubernetes`` is large, and who only needs the errors should not load it.
"""
