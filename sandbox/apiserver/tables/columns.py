"""A column: its name, and what a cell of it says."""

import dataclasses

from sandbox.apiserver.objects import Object
from sandbox.apiserver.openapi import types


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        format: `name` for the column that is the object's name.
        is_wide: Whether it is shown only where more is asked for (`-o wide`).
        of: The type, and the field of it, whose description is the column's.
        text: The description, where there is no such field.
    """

    name: str
    type: str = "string"
    format: str = ""
    is_wide: bool = False
    of: tuple[str, str] = ("", "")
    text: str = ""

    def definition(self) -> Object:
        """Return the column as clients get it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": types.description(*self.of) if self.of[0] else self.text,
            "priority": int(self.is_wide),
        }


_METADATA = "apimachinery.pkg.apis.meta.v1.ObjectMeta"
NAME = Column(name="Name", format="name", of=(_METADATA, "name"))
AGE = Column(name="Age", of=(_METADATA, "creationTimestamp"))
# Of all that makes pods from a template.
CONTAINERS = Column(
    name="Containers",
    is_wide=True,
    text="Names of each container in the template.",
)
IMAGES = Column(
    name="Images",
    is_wide=True,
    text="Images referenced by each container in the template.",
)
