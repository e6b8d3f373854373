"""The extender's traffic with the API server: informers, resync and writers.

Answers: how does a change of the cluster reach the cache, and a decision the cluster?
Belongs here: the watches (`informers`), the check of the cache against them (`resync`),
settings that may change (`live_settings`), requests that write (`writers`, `tor_share`)
and the annotation that makes schedulers retry (`wake`).
Does not belong here: the client and list-watch themselves (`kube`), the meaning of an
object (`cache.decode`), decisions.
Open first: `informers`.
Decision records: 2 (list-watch), 24 (a resync compares versions).
"""
