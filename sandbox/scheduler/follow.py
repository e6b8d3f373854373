"""Changes that an event of a list-watch makes to known objects.

A module of its own: both schedulers of the sandbox follow their watches by it.
"""

from sandbox.apiclient import Changed, Event, Listed, Object


def changes(known: dict[str, Object], event: Event) -> list[tuple[Object, bool]]:
    """Return what an event changes: (object, whether it is gone)."""
    match event:
        case Changed(item=item, gone=gone):
            uid = item["metadata"]["uid"]
            known.pop(uid, None)
            if not gone:
                known[uid] = item
            return [(item, gone)]
        case Listed(items=items):
            listed = {item["metadata"]["uid"]: item for item in items}
            lost = [item for uid, item in known.items() if uid not in listed]
            known.clear()
            known.update(listed)
            return [(item, True) for item in lost] + [(item, False) for item in items]
