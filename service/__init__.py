"""Parts of a server process: settings, logs, health endpoints, signals, clocks.

Here belongs code that several programs need and that works without chips. Parsers of
settings and YAML belong here, too. Code about chips or pods does not belong here, nor
does a client of the API server: see `scheduler_core` and `kube`. This package imports
no other package of the project, so each of them can import it.

Open `service/process.py` first: it runs the main coroutine and sets the exit code.
Decision records:
`docs/adr/0005-a-journal-before-each-answer-without-fsync.md` says why no answer may
wait for the disk; `Worker` is the thread that makes this possible.
"""
