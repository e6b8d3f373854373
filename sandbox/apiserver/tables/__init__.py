"""What `kubectl get` shows: objects as rows of a table, drawn by the server.

What belongs here: the columns and cells of Kubernetes' own printers (`pods`,
`cluster`), two columns of ours behind those of pods (`chips`), and the
documents that carry them (`documents`).

What does not: which form a client asks for is in `forms`.

Source: Kubernetes v1.36.3, `pkg/printers/internalversion/printers.go`.
"""
