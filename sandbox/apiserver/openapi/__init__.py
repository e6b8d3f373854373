"""What the API server knows of its objects' types: Kubernetes' own schemas.

What belongs here: the schemas as Kubernetes publishes them (`schemas.json`, one a
line, not edited), questions about them (`types`), the documents of `/openapi/v3` made
of them (`documents`) and the fields that a body may not have (`strictness`).

What does not: rules beyond types; those are in `validation`.

Source: Kubernetes v1.36.3, Apache License 2.0, as its API server serves them, cut down
by `tests/e2e/schemas.py` to the kinds that are served here.
"""
