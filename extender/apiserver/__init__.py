"""The extender's traffic with the API server: informers, resync and writers.

Answers: how does a change of the cluster reach the cache, and how does a decision
reach the cluster?
Belongs here: the watches (`informers`), the check that watches match the API server and
that the cache matches the watches (`resync`), settings from a ConfigMap
(`live_settings`), requests that write (`writers`, `tor_share`) and the annotation that
makes schedulers retry (`wake`).
Does not belong here: the client and list-watch themselves (`kube`), the meaning of an
object (`cache.decode`), decisions.
Open first: `informers`.
Decision records: 2 (list-watch), 24 (a resync compares versions).
"""
