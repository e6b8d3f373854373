"""Client of the Kubernetes API server, and of the kubelet's `/pods`.

Here belong credentials, the HTTP session, list-watch, and one module for each kind of
object that is read or written. The structs of `kube.objects` decode only fields that
the project reads. Rules about chips, pods or jobs do not belong here: `scheduler_core`,
`agent` and `extender` have them. This package imports `service` and
`scheduler_core.wire`.

Open `kube/reflector.py` first: agent and extender follow the cluster with its
`ListWatch`. Decision records:

- `docs/adr/0002-a-list-watch-of-our-own.md`: why it is not the official client's;
- `docs/adr/0024-a-sweep-compares-versions.md`: `kube/drift.py` and `kube/store.py`;
- `docs/adr/0020-a-term-of-leading-starts-with-nothing.md`: `kube/leases.py`, and the
  deadline of `pods.bind`;
- `docs/adr/0021-room-is-made-by-eviction.md`: `pods.evict` and its dry run;
- `docs/adr/0028-a-condition-behind-volcanos-own.md`: `kube/podgroups.py`.
"""
