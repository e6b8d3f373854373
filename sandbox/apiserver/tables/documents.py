"""Answers in another form than objects: tables, and metadata alone."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.forms import MANY_METADATA, ONE_METADATA, TABLE, Form
from sandbox.apiserver.lists import Page, metadata_of_page
from sandbox.apiserver.objects import Entry, Object
from sandbox.apiserver.resources import EVENTS, PODS, Resource
from sandbox.apiserver.store import Store
from sandbox.apiserver.tables import ages, chips, cluster, jobs, pods
from sandbox.apiserver.tables.columns import AGE, NAME, Column

#: Returns the cells of an object beside its name and age.
Cells = Callable[[Object, float], list[Any]]

#: {kind: how its objects are drawn}
_LAYOUTS: Mapping[str, tuple[Sequence[Column], Cells]] = {
    "Pod": ((*pods.COLUMNS, *chips.COLUMNS), pods.cells),
    "Node": (cluster.NODE_COLUMNS, cluster.node),
    "Namespace": (cluster.NAMESPACE_COLUMNS, cluster.namespace),
    "ConfigMap": (cluster.CONFIG_MAP_COLUMNS, cluster.config_map),
    "Event": (cluster.EVENT_COLUMNS, cluster.event),
    "ServiceAccount": ((NAME, AGE), cluster.nothing),
    "Lease": (cluster.LEASE_COLUMNS, cluster.lease),
    "PodDisruptionBudget": (cluster.BUDGET_COLUMNS, cluster.budget),
    "Job": (jobs.COLUMNS, jobs.cells),
    "DaemonSet": (cluster.DAEMON_SET_COLUMNS, cluster.nothing),
    "Deployment": (cluster.DEPLOYMENT_COLUMNS, cluster.nothing),
}


class Drawing:
    """Turns the objects of one resource into one form."""

    def __init__(self, store: Store, resource: Resource, form: Form) -> None:
        """Draw for one request.

        Args:
            store: Has the clock, and the events that say why pods are where they are.
            resource: Whose objects are drawn.
            form: What they are turned into.
        """
        self._store = store
        self._resource = resource
        self._form = form
        self._columns, self._cells_of = _LAYOUTS[resource.kind]
        self._has_header = False

    def page(self, listed: Page) -> bytes:
        """Return one page of a list.

        Raises:
            StatusError: A list cannot be shown as one object's metadata.
        """
        metadata = metadata_of_page(listed)
        if self._form.kind == TABLE:
            return _bytes(self._table(metadata, listed.entries))
        if self._form.kind == ONE_METADATA:
            raise statuses.not_acceptable(
                "you requested PartialObjectMetadata, but the requested object is a "
                f"list ({self._internal}List)"
            )
        items = [self._metadata(entry) for entry in listed.entries]
        return _bytes(self._framed(MANY_METADATA, metadata=metadata, items=items))

    def one(self, entry: Entry) -> bytes:
        """Return one object; the header of its table only the first time.

        That is what a watch sends: one table for each event.

        Raises:
            StatusError: One object cannot be shown as a list.
        """
        if self._form.kind == ONE_METADATA:
            return _bytes(self._metadata(entry))
        if self._form.kind == MANY_METADATA:
            raise statuses.not_acceptable(
                "you requested PartialObjectMetadataList, but the requested object is "
                f"not a list ({self._internal})"
            )
        version = entry.document["metadata"].get("resourceVersion", "")
        return _bytes(self._table({"resourceVersion": version}, [entry]))

    @property
    def _internal(self) -> str:
        """The type of one object, as the real server has it in memory."""
        group = self._resource.group.partition(".")[0] or "core"
        return f"*{group}.{self._resource.kind}"

    def _table(self, metadata: Object, entries: Iterable[Entry]) -> Object:
        header = [column.definition() for column in self._columns]
        columns, self._has_header = None if self._has_header else header, True
        told = self._told()
        return self._framed(
            TABLE,
            metadata=metadata,
            columnDefinitions=columns,
            rows=[self._row(entry, told) for entry in entries],
        )

    def _told(self) -> Mapping[str, str]:
        if self._resource is not PODS:
            return {}
        entries = self._store.entries(EVENTS).values()
        return chips.reasons(entry.document for entry in entries)

    def _row(self, entry: Entry, told: Mapping[str, str]) -> Object:
        document = entry.document
        row: Object = {"cells": list(self._cells(document, told))}
        if self._resource is PODS and (conditions := pods.conditions(document)):
            row["conditions"] = conditions
        match self._form.included:
            case "Object":
                row["object"] = document
            case "None":
                row["object"] = None
            case _:
                row["object"] = self._metadata(entry)
        return row

    def _cells(self, document: Object, told: Mapping[str, str]) -> Iterator[Any]:
        metadata, now_s = document["metadata"], self._store.now_s()
        more = chips.cells(document, told) if self._resource is PODS else []
        others = iter([*self._cells_of(document, now_s), *more])
        for column in self._columns:
            if column is NAME:
                yield metadata.get("name", "")
            elif column is AGE:
                yield ages.since(metadata.get("creationTimestamp"), now_s)
            else:
                yield next(others)

    def _metadata(self, entry: Entry) -> Object:
        return self._framed(ONE_METADATA, metadata=entry.document["metadata"])

    def _framed(self, kind: str, **members: Any) -> Object:
        return {"kind": kind, "apiVersion": self._form.api_version, **members}


def _bytes(document: Object) -> bytes:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode()
