"""What all tests share."""

import asyncio

# Before Python 3.12 the first look at "the current loop" makes one that nobody
# closes; its warning would then fail whichever test runs when it is collected.
asyncio.set_event_loop(None)
