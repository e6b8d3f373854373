"""Where a server and its chips are in the networks that join servers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What stands for a number that the server type does not have.
UNKNOWN = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Of one chip."""

    #: in the parameter plane; "" when it is not known
    ip: str = ""
    #: its number within the SuperPoD
    super_device_id: int = UNKNOWN


#: Nobody has said.
_NOWHERE = Address()


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Of one server."""

    #: -1: it could belong to one and does not
    super_pod_id: int = UNKNOWN
    #: which server of it
    server_index: int = UNKNOWN
    #: {physical id: address}; a chip that is missing has none
    chips: Mapping[int, Address] = field(default_factory=dict)

    def of(self, chip: int) -> Address:
        """The address of a chip, all unknown if nobody said it."""
        return self.chips.get(chip, _NOWHERE)
