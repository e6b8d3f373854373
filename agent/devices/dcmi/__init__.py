"""Read real chips through Huawei's library `libdcmi.so`, in a separate worker process.

A call of that library can hang for ever or crash the process that makes it. No code
inside that process can prevent it. So a worker process loads the library, and the agent
never does:

    agent   `driver` <- frames over a socket pair -> `__main__`   worker
            `machine` finds the row of the server    `reader` asks chip by chip
            `conversion` makes the reading           `library` has the C functions
            `progress`, a page mapped by both: the call under way

The worker imports no module of the agent outside this package. It runs on every node
for ever, and each megabyte counts.

Here: everything about libdcmi. Not here: the interface of drivers (`agent.devices`),
and levels of faults (`agent.health`). Open `driver` first for the agent's side,
`__main__` for the worker's. Decision record in docs/adr: 17 (the driver's library has a
process of its own).
"""
