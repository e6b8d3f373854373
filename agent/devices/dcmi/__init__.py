"""Real chips, asked through Huawei's `libdcmi.so`, in a process of their own.

A call into that library can hang for ever or take its process down, and nothing
inside the process can help it. So the library is loaded by a worker and never by
the agent:

    agent   `driver` <- frames over a socket pair -> `__main__`   worker
            `machine` says which server that is      `reader` asks chip by chip
                                                     `library` knows the C functions
            `progress`, a page both have mapped: which call is under way

The worker imports nothing of the agent beyond this package: it is there on every
node for ever, and each megabyte counts.
"""
