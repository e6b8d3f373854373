"""A Kubernetes API server in memory, for the sandbox and for tests.

What belongs here: what clients of a real API server notice: resource versions,
conflicts, watches, patches, selectors, paging, bindings, graceful deletion, and
the errors of each, word for word. Version 1.36 of Kubernetes is the reference;
`tests/contract/apiserver` holds the behaviours that both must show.

What does not: controllers (but for the end of a namespace, and of the pods of a
deleted Job), authorization, managed fields, server-side apply, and protobuf but for the
bodies of a few kinds (`protobuf`).

The way through: `paths` turns a URL into a target, `requests` carries one request
out on the `store`, which is pure and synchronous; `watches` fans its changes out,
`tables` draws what `kubectl get` shows, and only `routes` and `server` do I/O.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""

from sandbox.apiserver.server import ApiServer

__all__ = ["ApiServer"]
