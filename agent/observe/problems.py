"""Lasting problems of a node, and the table of how people and programs are told.

Each problem has one row: its log line, its events, its sentence of `/readyz`, its key
in the status document, and its metric. A problem is told once, and again only if its
sentence changes; its end is told, too.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, unique
from functools import partial

from prometheus_client import Gauge

from agent.observe.metrics import Metrics
from kube.errors import ApiError, ConflictError, KubeError
from kube.events import Recorder, Regarding
from service import clock

log = logging.getLogger(__name__)

#: Time without an answer after which people are told: what restarts is back before.
#: Unit: seconds.
UNANSWERED_S = 15.0
#: The same for a process on a chip without a pod: those of a pod end one by one, and
#: the driver is read each second. Unit: seconds.
STAYS_S = 3.0
#: Statuses with which the API server refuses a request until a person changes
#: something: a right, a policy, a quota, the namespace, the name.
REFUSED = frozenset({400, 403, 404, 405, 413, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one problem is told; "" and () for a way that is not used.

    In texts, `{problem}` is what the detecting module says, `{text}` the sentence.
    """

    #: The sentence for people: log, event, status.
    text: str = "{problem}"
    #: Log lines at its begin and its end.
    log: tuple[str, str] = ("", "")
    level: int = logging.ERROR
    #: Reasons of the events at its begin and its end.
    events: tuple[str, str] = ("", "")
    #: Sentence at its end; `{end}` is what the detecting module says then.
    end: str = ""
    #: The same while another thing has the same problem; `{of}` is the thing.
    end_of_one: str = ""
    #: Sentence of `/readyz`; "": the agent is ready all the same.
    ready: str = ""
    #: Key in the status document. The first row with a problem fills it.
    status: str = ""
    #: Metric that is 1 during the problem: attribute of `Metrics`, value of its label.
    gauge: tuple[str, ...] = ()
    #: How long it lasts before it is told. Unit: seconds.
    after_s: float = 0.0
    #: Whether another sentence is no news.
    is_announced_once: bool = False
    #: Whether one sentence tells of all things that have it.
    is_joint: bool = False
    #: Log key of the thing that has it; "" where the sentence names it.
    key: str = ""


#: Of a problem that is told once it has lasted, and once whatever is said of it then.
_lasting = partial(Row, after_s=UNANSWERED_S, is_announced_once=True)


@unique
class Subject(Enum):
    """The table. Of several reasons not to be ready, `/readyz` says the first."""

    #: The kubelet's directory is not ours yet.
    DIRECTORY = Row(ready="{text}")
    #: The driver shows no chips, or not all of them, since the agent has begun.
    START = Row(
        log=("chips not served yet", "chips are read"),
        events=("NpuNotServed", "NpuServed"),
        end="the chips are read, and the node is served as {end}",
        ready="driver: {text}",
        status="driverProblem",
        gauge=("driver_stale",),
    )
    #: The driver was not asked yet.
    FIRST_READING = Row(text="the driver has not been read yet", ready="{text}")
    #: No chip can be read now.
    DRIVER = Row(
        log=("driver cannot be read", "driver is read again"),
        status="driverProblem",
        gauge=("driver_stale",),
    )
    #: The same for long: `DRIVER` has its status and its metric.
    READINGS = Row(
        events=("NpuUnreadable", "NpuReadable"),
        end="the chips are read again",
        ready="{text}",
        is_announced_once=True,
    )
    #: Single chips cannot be read: each has a condition of its own.
    CHIPS = Row(
        log=("chips cannot be read", "all chips are read again"),
        status="driverProblem",
    )
    #: Of the needs in `Need`, as the next row.
    API_SERVER = _lasting(
        text="the API server does not answer all that the agent needs: {problem}",
        log=("API server does not answer", "API server answers again"),
        events=("NpuApiServerSilent", "NpuApiServerAnswers"),
        end="the API server answers again",
        ready="{text}",
        status="apiServerProblem",
        gauge=("api_server_unanswered",),
        is_joint=True,
    )
    API_ACCESS = _lasting(
        text="the API server refuses what the agent needs; apply "
        "daemonset/base/agent/access.yaml of this release, or change the policy that "
        "the refusal names: {problem}",
        log=("API server refuses what the agent needs", "API server refuses no more"),
        events=("NpuApiServerRefuses", "NpuApiServerAllows"),
        end="the API server refuses the agent nothing any more",
        ready="{text}",
        status="apiAccessProblem",
        gauge=("api_server_refused",),
        is_joint=True,
    )
    #: Of one pod: the events are the pod's. Of all pods it is a `Need`.
    POD_ANNOTATIONS = _lasting(
        text="the API server does not take a pod's annotations, so nobody can read "
        "which chips it has; exempt the agent's account from the policy or webhook "
        "that the answer names, or shorten the pod's annotations: {problem}",
        events=("NpuNotAnnotated", ""),
        status="apiAccessProblem",
        gauge=("api_server_refused",),
    )
    #: Of a `Need`: the node is served all the same, and all else is told.
    EVENTS = _lasting(
        log=("events not written", "events written again"),
        status="eventsProblem",
        gauge=("api_server_unanswered",),
    )
    #: Neither API server nor kubelet has listed the node's pods.
    PODS = Row(text="the pods of this node are not known yet", ready="{text}")
    #: Of one resource.
    POD_RESOURCES = _lasting(
        text="the kubelet's pod-resources do not say which pod has which chips, so no "
        "pod is annotated and no chip released: {problem}",
        log=("pod-resources do not answer", ""),
        events=("NpuPodsUnknown", "NpuPodsKnown"),
        end="it is known again which pod has which chips",
        ready="{text}",
        status="podResourcesProblem",
        gauge=("pod_resources_unanswered",),
    )
    #: Each single failure has its log line: `Announcer.journal_written`.
    JOURNAL = _lasting(
        text="the journal on disk lacks holds, so the next agent can find these only "
        "through the kubelet and the pods' annotations: {problem}",
        events=("NpuJournalOld", "NpuJournalWritten"),
        end="the journal has all holds again",
        ready="{text}",
        status="journalProblem",
        gauge=("journal_old",),
    )
    #: The chips are those of other rows of the product table.
    PRODUCT_ROW = Row(
        text="the node is served by the wrong product row: {problem}",
        log=("other product row", "right product row"),
        level=logging.WARNING,
        events=("NpuProductChanged", "NpuServed"),
        end="the chips are those of the product row again",
        ready="the node is served by the wrong product row: {problem}; the agent "
        "begins anew when all chips are read, after --survey-wait-s at the latest",
    )
    #: Another program serves a resource of this node to the kubelet.
    RIVAL_PLUGIN = Row(
        log=("rival", "rival has gone"),
        events=("NpuRival", "NpuRivalGone"),
        end="nobody else serves this node's kubelet any more",
        end_of_one="nobody else serves {of} any more",
        ready="{text}; waiting until it has gone",
        gauge=("rival", "device-plugin"),
    )
    #: Another program writes the node's ConfigMap.
    RIVAL_WRITER = Row(
        log=("rival", "rival has gone"),
        events=("NpuRival", "NpuRivalGone"),
        end="nobody else serves this node's configmap any more",
        ready="{text}",
        gauge=("rival", "report-writer"),
    )
    #: The API server refuses the node's ConfigMap, or no ConfigMap can have its name.
    REPORT = Row(
        log=("report refused", ""),
        events=("NpuReportRefused", "NpuReportWritten"),
        end="the node's ConfigMap is written again",
        ready="{text}",
        status="reportProblem",
        gauge=("api_server_refused",),
    )
    #: What cannot be used of the fault configuration; all else is in force.
    FAULT_CONFIG = Row(
        log=("fault configuration", ""),
        events=("NpuFaultConfigUnusable", "NpuFaultConfigUsable"),
        end="all of the fault configuration is used again",
        status="faultConfigProblem",
        gauge=("fault_config_unusable",),
    )
    #: Labels of the Node contradict the chips; the chips count.
    LABEL = Row(
        log=("label contradicts the chips", ""),
        level=logging.WARNING,
        events=("NpuLabelWrong", "NpuLabelRight"),
        end="no label of the node contradicts the chips any more",
        status="labelProblem",
    )
    #: Processes keep a chip from being free that no pod has any more.
    STRAY_PROCESSES = Row(
        log=("chip still in use", "chip no longer in use"),
        level=logging.WARNING,
        events=("NpuStillInUse", "NpuNoLongerInUse"),
        end="no process keeps chip {of} from being free any more",
        after_s=STAYS_S,
        is_announced_once=True,
        key="chip",
    )
    #: Names under `ManuallySeparateNPU`, of one resource; those before stay in force.
    SEPARATED = Row(
        text="{problem}. No chip is separated or released until it is right",
        log=("separated chips cannot be read", ""),
        events=("NpuSeparationUnreadable", ""),
    )


@unique
class Need(Enum):
    """What the agent needs from the API server: (right to it, loss without it).

    The watches come first; a metric calls each by its name in lower case. All but
    `EVENTS` decide readiness.
    """

    PODS = ("list and watch pods", "no claim is seen")
    NODES = ("list and watch nodes", "address and labels of the Node are not seen")
    REPORTS = (
        "list and watch configmaps",
        "edits of the node's ConfigMap are not seen",
    )
    FAULT_CONFIG = (
        "list and watch configmaps",
        "edits of the fault configuration are not seen",
    )
    ANNOTATIONS = ("patch pods", "pods are not annotated")
    MARKS = ("patch nodes", "labels and annotations of the Node are not written")
    REPORT = ("create and patch configmaps", "the node's ConfigMap is not written")
    EVENTS = ("create and patch events", "events are not written")


#: A thing that has a problem; events of a `Regarding` are its own, and not the Node's.
_Thing = str | int | Regarding
#: (subject, thing that has it, or "")
_Key = tuple[Subject, _Thing]


class Problems:
    """Lasting problems of a node, and what was told of them.

    They stay when the agent begins anew, so that the end of each is told.
    """

    def __init__(self, metrics: Metrics, recorder: Recorder, *, node: str) -> None:
        self._metrics = metrics
        self._recorder = recorder
        # as the kubelet does: kubectl finds events by the name in the uid's place
        self._node = Regarding(kind="Node", name=node, uid=node)
        #: {key: its problem}
        self._problems: dict[_Key, str] = {}
        #: {the same: (since when it has had a problem, the newest)}; seconds, loop time
        self._since: dict[_Key, tuple[float, str]] = {}
        #: {the same: the last problem that was told, if its end was not}
        self._announced: dict[_Key, str] = {}
        #: what parts of the agent find when they are asked
        self._checks: list[Callable[[], str | None]] = []
        metrics.ready.set_function(lambda: self.why_not_ready() is None)
        self._set_gauges()

    def add_check(self, check: Callable[[], str | None]) -> None:
        """Add a check of readiness, made while neither table nor earlier ones object.

        Args:
            check: Returns why a part of the agent is not ready; None if it is.
        """
        self._checks.append(check)

    def tell(
        self, subject: Subject, problem: str, *, of: _Thing = "", end: str = ""
    ) -> None:
        """Take in whether there is a problem, and tell of it if that is news.

        Args:
            subject: Row of the table.
            problem: Why there is a problem; "" if there is none.
            of: The thing that has it, like a resource; "" where there is only one.
            end: What the table's text about the end has for `{end}`.
        """
        row, key = subject.value, (subject, of)
        if self._is_new(subject, problem, of):
            return
        if problem != self._problems.get(key, ""):
            self._problems[key] = problem
            if not problem:
                del self._problems[key]
            self._set_gauges()
        if row.is_joint:
            key, problem = (subject, ""), dict(self._present()).get(subject, "")
        before = self._announced.get(key, "")
        if problem == before or (problem and before and row.is_announced_once):
            return
        if problem:
            self._announced[key] = problem
            self._tell(row, 0, row.text.format(problem=problem), of)
        else:
            del self._announced[key]
            has_more = any(other is subject for other, _ in self._present())
            text = row.end_of_one if has_more else ""
            self._tell(row, 1, (text or row.end).format(of=of, end=end), of)

    def _is_new(self, subject: Subject, problem: str, of: _Thing) -> bool:
        """Whether a problem has not lasted for as long as its row says; note it."""
        after_s, key = subject.value.after_s, (subject, of)
        if not problem:
            self._since.pop(key, None)
        if not problem or not after_s:
            return False
        now_s = clock.loop_s()
        since_s, known = self._since.get(key, (now_s, ""))
        self._since[key] = since_s, problem
        if not known:
            loop = asyncio.get_running_loop()
            loop.call_later(after_s, self._tell_lasting, subject, of, since_s)
        return now_s + clock.EARLY_S - since_s < after_s

    def _tell_lasting(self, subject: Subject, of: _Thing, since_s: float) -> None:
        """Tell of a problem that has lasted for as long as its row says, if it has."""
        began_s, problem = self._since.get((subject, of), (0.0, ""))
        if problem and began_s == since_s:
            self.tell(subject, problem, of=of)

    def tell_need(self, need: Need, error: KubeError | None, *, of: str = "") -> None:
        """Take in whether the API server has given what the agent needs.

        Args:
            need: What the agent has asked for.
            error: Why it was not given; None if it was, or nothing has to be asked.
            of: The thing that has the need; "" where there is only one.
        """
        right, loss = need.value
        is_refused = isinstance(error, ApiError) and error.status in REFUSED
        # after a conflict the caller reads again: that is an answer
        is_lost = error is not None and not isinstance(error, ConflictError)
        lost = f"{loss} ({error})" if is_lost else ""
        if need is Need.EVENTS:
            self.tell(Subject.EVENTS, lost)
            return
        key = f"{need.name} {of}"
        self.tell(Subject.API_SERVER, "" if is_refused else lost, of=key)
        refused = f"{loss} without the right to {right} ({error})" if is_refused else ""
        self.tell(Subject.API_ACCESS, refused, of=key)

    def _tell(self, row: Row, side: int, text: str, of: _Thing) -> None:
        """Log, and emit an event; `side` is 0 for the begin and 1 for the end."""
        if row.log[side]:
            level = logging.INFO if side else row.level
            extra = {"reason": text, row.key: of}
            extra = {key: value for key, value in extra.items() if key and value != ""}
            log.log(level, row.log[side], extra=extra)
        if row.events[side]:
            about = of if isinstance(of, Regarding) else None
            self.record(row.events[side], text, "Normal" if side else "Warning", about)

    def record(
        self,
        reason: str,
        message: str,
        kind: str = "Warning",
        about: Regarding | None = None,
    ) -> None:
        """Emit an event of this type on an object; on the Node if that is None."""
        about = about or self._node
        self._recorder.record(about, reason=reason, message=message, type=kind)

    def begin_anew(self, reason: str) -> None:
        """Announce that the agent begins anew; forget problems and checks of its parts.

        Problems that were told and that the new parts do not have are told to have
        ended.

        Args:
            reason: What has contradicted the rows of the product table before.
        """
        # one that was not told yet may be of a part that will not be there to end it
        lasting = self._problems.keys()
        self._since = {key: s for key, s in self._since.items() if key in lasting}
        self._problems.clear()
        self._checks.clear()
        self._set_gauges()
        self._announced.pop((Subject.PRODUCT_ROW, ""), None)
        self._announced[Subject.START, ""] = reason
        log.warning("the agent begins anew", extra={"reason": reason})
        self.record("NpuProductChanged", f"the agent begins anew: {reason}")

    def why_not_ready(self) -> str | None:
        """Return the first sentence about why the agent is not ready; None if it is."""
        for row, problem in self._in_order():
            if row.ready:
                text = row.text.format(problem=problem)
                return row.ready.format(problem=problem, text=text)
        return next(filter(None, (check() for check in self._checks)), None)

    def status(self) -> Mapping[str, str | None]:
        """Return {key of the status document: sentence, None without a problem}."""
        found: dict[str, str | None] = {
            subject.value.status: None for subject in Subject if subject.value.status
        }
        for row, problem in reversed(self._in_order()):
            if row.status:
                found[row.status] = row.text.format(problem=problem)
        return found

    def _in_order(self) -> list[tuple[Row, str]]:
        """Return each problem with its row, in the order of the table."""
        present = self._present()
        return [
            (subject.value, problem)
            for subject in Subject
            for other, problem in present
            if other is subject
        ]

    def _present(self) -> list[tuple[Subject, str]]:
        """Return each problem; those of a joint row as one."""
        found: dict[_Key, list[str]] = {}
        for (subject, of), problem in self._problems.items():
            key = subject, "" if subject.value.is_joint else of
            found.setdefault(key, []).append(problem)
        return [(subject, "; ".join(texts)) for (subject, _), texts in found.items()]

    def _set_gauges(self) -> None:
        shown = {subject.value.gauge for subject, _ in self._present()}
        for name, *labels in {subject.value.gauge for subject in Subject} - {()}:
            gauge: Gauge = getattr(self._metrics, name)
            child = gauge.labels(*labels) if labels else gauge
            child.set((name, *labels) in shown)
