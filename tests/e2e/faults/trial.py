"""One fault, during churn, and what came of it.

Before: pods that stay, and pods that come and go. After: everybody who knows says the
same within ten seconds of the last component's return, the pods that stay have not
been touched, new ones run, and no chip has had two owners or none.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import kubernetes.client

from tests.e2e import running, truth
from tests.e2e.commands import until
from tests.e2e.faults import ours, witness
from tests.e2e.faults.audit import Audit, audit
from tests.e2e.faults.chronicle import Chronicle, Story, in_words
from tests.e2e.faults.churn import Churn
from tests.e2e.namespaces import Namespace
from tests.e2e.running import Container
from tests.e2e.stages import CannotError

#: From the return of the last component until everybody agrees.
SETTLED_WITHIN_S = 10.0
#: What a kubelet's rejection of a pod begins with.
_REJECTIONS = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "Admission")
RINGS = (range(4), range(4, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row of the table."""

    fault: str
    done: str
    #: short pods that ended well during the fault and after it
    succeeded: int = 0
    #: pods that the kubelet rejected, by reason; their owner made new ones
    rejected: dict[str, int] = field(default_factory=dict)
    #: what their users read
    texts: tuple[str, ...] = ()
    #: running pods that were ended by the fault: expected only where it says so
    ended: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    doubles: tuple[str, ...] = ()
    unconfirmed: int = 0
    settled_s: float = -1.0
    #: the last contradiction before everybody agreed
    last_told: str = ""
    #: what only this fault has to show
    remark: str = ""
    problem: str = ""


class Load:
    """The pods of the whole matrix. Protects who of them stays, and how it was."""

    def __init__(self, namespace: Namespace) -> None:
        """Nothing runs until it is entered."""
        self.cluster = namespace.cluster
        self.namespace = namespace
        self.chronicle = Chronicle(namespace)
        self.churn = Churn(self.chronicle, namespace, at_once=5)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Follow the pods; those that come and go do not come yet."""
        witness.begin()
        self._stack.enter_context(self.chronicle)
        self._stack.enter_context(self.churn)
        self.churn.pause()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        self._stack.close()

    def leave(self) -> None:
        """Take all of its pods away, and wait until their chips are free."""
        self.churn.pause()
        self.cluster.heal()
        self.cluster.core.delete_namespace(self.namespace.name)
        self.namespace.wait_empty()
        truth.until_agreed(self.cluster)

    def have_staying(self) -> None:
        """Have those that stay run in one ring, and no others.

        If one of them is not there, or they are apart, all are made anew: a pod of four
        chips is to find a whole ring, and only in their order they leave one.
        """
        self.churn.pause()
        self.churn.wait_idle()
        pods = self.namespace.pods()
        for pod in pods:
            if (pod.metadata.labels or {}).get("part") != "stays":
                self.remove(pod.metadata.name)
        truth.until_agreed(self.cluster)
        if self._are_staying():
            return
        for pod in _staying():
            self.remove(pod["metadata"]["name"])
        truth.until_agreed(self.cluster)
        for pod in _staying():
            self.namespace.create_when_free(pod)
            self.namespace.wait_running(pod["metadata"]["name"])
        truth.until_agreed(self.cluster)
        if not self._are_staying():
            raise CannotError(f"not in one ring: {self.containers()}")

    def _are_staying(self) -> bool:
        found = self.containers().values()
        chips = {chip for each in found for chip in each.chips}
        wanted = sum(len(pod["spec"]["containers"]) for pod in _staying())
        return len(found) == wanted and any(chips == {*ring} for ring in RINGS)

    def remove(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""

        def deleted() -> bool:
            try:
                self.namespace.delete(name)
            except kubernetes.client.ApiException as error:
                if error.status != 404:
                    raise
            return True

        until(deleted, f"pod {name} deleted", within_s=60)
        left: list[Story] = []

        def gone() -> bool:
            left[:] = [each for each in self.chronicle.named(name) if not each.is_gone]
            return not left

        until(gone, lambda: f"gone: {'; '.join(map(in_words, left))}", within_s=120)

    def containers(self) -> dict[str, Container]:
        """Those of the pods that stay, as they are now."""
        return running.containers(self.namespace, running.STAYING)


class Trial:
    """A fault under way. Protects what was before it."""

    def __init__(self, load: Load, *, rejects_staying: bool) -> None:
        """Look at what there is before the fault."""
        self.load = load
        self.cluster = load.cluster
        self.agent = ours.agent(load.cluster)
        self.extender = ours.extender(load.cluster)
        self.remark = self.last_told = ""
        #: whether the fault is meant to end every container of the node
        self.ends_all = False
        self._rejects_staying = rejects_staying
        self._before = load.containers()
        self._known = {story.uid for story in load.chronicle.stories()}
        self._over = {story.uid for story in load.chronicle.stories() if story.is_over}
        self.settled_s = -1.0
        load.churn.go_on()
        load.churn.wait_succeeded(2)

    def recover(self) -> None:
        """Wait until every component is back, and then until everybody agrees.

        What is under way comes to its end, and is part of what has to agree. While a
        pod still comes or goes, as scheduler and kubelet tell it, nobody can: the time
        for it begins with the last such movement.

        Raises:
            CannotError: One of the two does not come in time.
        """
        for component in self.cluster.programs.all:
            component.wait_ready()
        for program in (self.agent, self.extender):
            program.wait_ready()
        connected_at = time.monotonic()
        self.load.churn.pause()
        truth.until_agreed(
            self.cluster,
            within_s=SETTLED_WITHIN_S,
            tell=self._note_told,
            since=lambda: max(connected_at, self.load.chronicle.moved_at),
        )
        self.settled_s = time.monotonic() - connected_at

    def _note_told(self, contradictions: list[str]) -> None:
        self.last_told = "; ".join(contradictions)

    def prove(self) -> None:
        """Show that new pods run, also one that needs what the fault may have lost."""
        churn = self.load.churn
        churn.go_on()
        churn.wait_succeeded(3)
        churn.pause()
        churn.wait_idle()
        whole = witness.pod("whole", witness.container("c0", 4, life="0"), labels={})
        self.wait_succeeded(self.load.namespace.create_when_free(whole))
        self.load.remove("whole")
        truth.until_agreed(self.cluster)

    def quiet(self) -> None:
        """Let short pods end and come no more, until their chips are free by all.

        A pod that has ended may have its chips for a moment yet.
        """
        self.load.churn.pause()
        self.load.churn.wait_idle()
        truth.until_agreed(self.cluster)

    def victim(self, name: str, chips: int = 1) -> str:
        """Create a pod that is to be met by the fault; returns its UID."""
        return self.load.namespace.create_when_free(
            witness.pod(
                name,
                witness.container("c0", chips, life="1"),
                labels={"part": "victim"},
            )
        )

    def wait_bound(self, uid: str) -> Story:
        """Wait until a pod has a node and a claim."""
        return self.load.chronicle.wait_uid(lambda story: bool(story.bound_claim), uid)

    def wait_over(self, uid: str) -> Story:
        """Wait until a pod runs no more, however it ended, and take it away."""
        story = self.load.chronicle.wait_uid(lambda story: story.is_over, uid)
        self.load.remove(story.name)
        return story

    def wait_succeeded(self, uid: str) -> Story:
        """Wait until a pod has run to its good end, and take it away."""
        story = self.wait_over(uid)
        if story.phase != "Succeeded":
            raise CannotError(f"it did not end well: {in_words(story)}")
        return story

    def outcome(self, fault: str, done: str, problem: str) -> Outcome:
        """What came of it."""
        stories = self.load.chronicle.stories()
        mine = [story for story in stories if story.uid not in self._known]
        stay = [
            story
            for story in stories
            if _part(story) == "stays" and story.uid not in self._over
        ]
        everyone = {story.uid: story for story in (*mine, *stay)}.values()
        rejected = [story for story in everyone if _rejection(story)]
        found: Audit = audit(mine, witness.lines())
        return Outcome(
            fault=fault,
            done=done,
            succeeded=sum(_part(s) == "churn" and s.phase == "Succeeded" for s in mine),
            rejected=dict(Counter(_reason(story) for story in rejected)),
            texts=tuple(sorted({_rejection(story) for story in rejected})),
            ended=tuple(sorted(_ended(story) for story in mine if _ended(story))),
            disturbed=tuple(self._disturbed(stay)),
            wrong=found.wrong,
            doubles=found.doubles,
            unconfirmed=len(found.unconfirmed),
            settled_s=round(self.settled_s, 1),
            last_told=self.last_told,
            remark=self.remark,
            problem=problem,
        )

    def _disturbed(self, stay: list[Story]) -> Iterator[str]:
        now = self.load.containers()
        rejected = {story.name for story in stay if _rejection(story)}
        told = {story.name: _told(story) for story in stay}
        for name, before in self._before.items():
            pod = name.split("/", maxsplit=1)[0]
            if self.ends_all or (self._rejects_staying and pod in rejected):
                continue
            if now.get(name) != before:
                yield f"{before} became {now.get(name)}, {told.get(pod)}"


class Table:
    """The rows so far. Protects the file that they are kept in."""

    def __init__(self, path: Path) -> None:
        """Begin a new table."""
        self._path = path
        self._path.write_text("", encoding="utf-8")
        self.rows: list[Outcome] = []

    def add(self, row: Outcome) -> None:
        """Keep a row, also for whoever reads the file while more are made."""
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")


@contextmanager
def trial(
    load: Load, table: Table, fault: str, done: str, *, rejects_staying: bool = False
) -> Iterator[Trial]:
    """Run a fault in the body, then let everything settle and compare.

    Args:
        load: The pods.
        table: Gets the row.
        fault: Its name.
        done: What is done, in words.
        rejects_staying: Whether the kubelet itself may reject running pods in it.
    """
    load.cluster.heal()
    load.have_staying()
    this = Trial(load, rejects_staying=rejects_staying)
    problem = ""
    try:
        yield this
        if this.settled_s < 0:
            this.recover()
        this.prove()
    except (CannotError, AssertionError, OSError) as error:
        problem = str(error)
        raise
    finally:
        load.churn.pause()
        row = this.outcome(fault, done, problem)
        table.add(row)
    assert (row.disturbed, row.wrong, row.doubles) == ((), (), ()), row
    assert this.ends_all or not row.ended, row


def _staying() -> list[dict[str, Any]]:
    always: dict[str, Any] = {"labels": running.LABELS, "restartPolicy": "Always"}
    first = [witness.container("init", 1, life="0.1")]
    # In this order they fill one ring, and the other stays whole.
    return [
        witness.pod(
            "stays-2", witness.container("c0", 1), witness.container("c1", 1), **always
        ),
        witness.pod("stays-1", witness.container("c0", 1), **always),
        witness.pod(
            "stays-3", witness.container("c0", 1), initContainers=first, **always
        ),
    ]


def _part(story: Story) -> str:
    return str(story.pod["metadata"].get("labels", {}).get("part", ""))


def _reason(story: Story) -> str:
    reason = _rejection(story).split(":", maxsplit=1)[0]
    return f"{_part(story)}: {reason}"


def _rejection(story: Story) -> str:
    """Why the kubelet rejected a pod; "" if it did not.

    One that it rejects when it starts anew runs already: it is ended properly, and
    may look as if it had come to a good end, though it is to run for ever.
    """
    if story.phase == "Succeeded" and story.pod["spec"]["restartPolicy"] == "Always":
        return "ended by a kubelet that started: it could not admit it again"
    return story.rejection


def _ended(story: Story) -> str:
    """Name a pod whose containers failed, though the kubelet had admitted it."""
    if story.phase != "Failed" or story.rejection.startswith(_REJECTIONS):
        return ""
    return f"{story.name}: {_told(story)}"


def _told(story: Story) -> str:
    """What the API server says of how a pod is, or was."""
    status = story.pod["status"]
    states = [
        f"{each['name']} {each['state']}"
        for each in status.get("containerStatuses", [])
    ]
    return f"{status.get('phase')} {status.get('reason', '')} {', '.join(states)}"
