"""The story of `make demo`.

Each step acts on the cluster, prints what is true, checks it.

Belongs here: what a person sees of `ascend-sandbox demo` and `up`. Facts are read from
where they are true (API server, kubelets, plugins), never from the request of a step.
No rule of the product checks the product.

Begin with `story`, which runs the modules of `steps`. They act through `cluster`, read
and check through `sandbox.inspect`, and draw chips with `picture`.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""
