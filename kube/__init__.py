"""The only code that talks to the Kubernetes API server.

Here belong credentials, the one HTTP session, list-watch, patches with UID, binding,
events. What the objects mean is decided elsewhere: `kube` decodes only the fields that
somebody reads and hands them on. It imports `service` and `scheduler_core.wire`.
"""
