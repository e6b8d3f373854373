"""Read real chips through Huawei's library `libdcmi.so`, in a separate worker process.

A call of that library can hang for ever or crash the process that makes it. No code
inside that process can prevent it. So a worker process loads the library, and the agent
never does:

    agent                                       worker process
    `worker` receives messages    <- socket -   `__main__` sends messages
    `chip_states` keeps what was told           `reader` reads the state of each chip
    `rows` chooses the product rows             `library` calls the C functions
    `conversion` makes the reading
    `driver` returns the reading

`frames` encodes the messages. `progress` is a memory page that both processes map: the
worker writes its current call of the library there.

The worker imports no module of the agent outside this package. This saves memory on
every node.

Here: everything about libdcmi. Not here: the interface of drivers (`agent.devices`),
and levels of faults (`agent.health`). Open `driver` first for the agent's side,
`__main__` for the worker's. Decision record in docs/adr: 17 (the driver's library has a
process of its own).
"""
