"""Addresses of a server and its chips in the networks between servers.

A module of its own: two formats have these values, the node's inventory and the pod's
configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: number in the wire formats for an id that the server type does not have
UNKNOWN = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Network address of one chip."""

    #: IP in the parameter plane; "" when it is unknown
    ip: str = ""
    #: number of the chip within its SuperPoD
    super_device_id: int = UNKNOWN


#: address of a chip of which nothing is known
_NOWHERE = Address()


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Network ids of one server, and the addresses of its chips."""

    #: id of the server's SuperPoD; -1 if it could belong to one and does not
    super_pod_id: int = UNKNOWN
    #: number of the server within its SuperPoD
    server_index: int = UNKNOWN
    #: {physical id: address}; absent chips have no known address
    chips: Mapping[int, Address] = field(default_factory=dict)
    #: mask of the chips whose address is still waited for
    awaited: int = 0

    def of(self, chip: int) -> Address:
        """Return the address of a chip; all fields are unknown if there is none."""
        return self.chips.get(chip, _NOWHERE)

    def with_given(self, given: Mapping[int, Address]) -> "Addresses":
        """Return these addresses, with all that is known in `given` in their place."""
        merged = {}
        for chip, address in given.items():
            now, number = self.of(chip), address.super_device_id
            merged[chip] = Address(
                ip=address.ip or now.ip,
                super_device_id=now.super_device_id if number == UNKNOWN else number,
            )
        return replace(self, chips={**self.chips, **merged})
