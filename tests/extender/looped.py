"""State machines whose extender runs on a loop that a machine turns itself."""

import asyncio

from hypothesis.stateful import RuleBasedStateMachine

from tests.support.extender import World


class Looped(RuleBasedStateMachine):
    """A machine with a loop of its own, which ends with it, whatever else fails."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()

    def come_to_rest(self) -> None:
        """Look what is left once nothing changes any more."""
        raise NotImplementedError

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            self.loop.run_until_complete(self.world.stop())
            self.loop.close()
