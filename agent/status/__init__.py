"""Show an agent's state to a person at the node: `ascend-agent status`.

Here: the status document as JSON and as text, and the socket that serves the document
to the command. Not here: the state itself; `agent.app` passes the ledger, the driver's
last reading and the chips' health of each product line. Metrics and events are not here
either (`agent.observe`).

Open `document` first: it computes the status document from values. `socket` then serves
the document to the user of the agent, which is normally root. No decision record covers
this package.
"""
