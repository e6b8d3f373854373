"""The main job as a story: every step shows what is, and checks it.

What belongs here: what a person sees of `ascend-sandbox demo` and `up`. Facts
are read back from where they are true (API server, kubelets, plugins), never
from what a step has asked for; `checks` says what is wrong with them, purely.
No rule of the product is used to check the product: names of chips are read and
rings are drawn by a few lines of our own.

The way through: `story` runs the steps in `steps/`; each step acts through
`cluster`, reads `facts`, has them judged by `checks` and drawn by `picture`.
"""
