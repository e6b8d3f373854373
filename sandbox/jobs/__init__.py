"""A Job controller that makes and counts pods as Kubernetes' own does.

Belongs here: Indexed and NonIndexed Jobs, retries and their back-off, the policy of pod
failures, when a pod is replaced, suspension, a Job's status and its finalizer. Does not
belong here: what the API server itself does to a Job (`apiserver/jobs.py`), and what
becomes of pods whose Job is deleted (`apiserver/deletion.py`).

`sync` is one pure step: a Job, its pods and the time in, an ordered list of writes out.
`controller` carries them out, one Job after the other, on what the API server shows at
that moment. Events and `backoffLimitPerIndex` are not here.

Source: Kubernetes v1.36.3, `pkg/controller/job`.
Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""

from sandbox.jobs.controller import JobController

__all__ = ["JobController"]
