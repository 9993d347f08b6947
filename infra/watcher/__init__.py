"""The watcher: what clusters say, as rows, in the order in which they say it.

::

    source     one resource of one API server: pages of a list, events of a watch (``infra.kube``, or a recording)
    follower   LIST once, then WATCH for ever from the last resourceVersion; only 410 lists again
    inbox      events between a follower and the committers; at most 200 ms old before they are written
    commit     one transaction: evidence, resourceVersion, WatchSpan, watermark, marks; fenced by the target's token
    pods, nodes  what a batch does to the rows
    targets    leases on ``WatchTarget``: any number of watchers share them
    process    ``manage.py watch``: threads, renewal, an orderly end

What is known is never lost: a batch is all or nothing, so a watcher that dies between an event and its commit resumes
before that event. What is not known is never made up: a pod that is missing from a list ended somewhere since the last
proof, and an answer that is no answer (silence, an error, another cluster's, an empty list) ends nothing.
"""
