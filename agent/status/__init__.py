"""Show an agent's state to a person at the node: `ascend-agent status`.

Here: the status document as JSON and as text, and the socket that serves the document
to the command. Not here: the state itself; `agent.app` passes the ledger, the last
reading and the health of each product line. Not here either: metrics and events
(`agent.observe`).

Open `document` first: it computes the status document from values. `socket` then serves
it to root alone. No decision record covers this package.
"""
