"""What people are told: Kubernetes events and log lines about binds, jobs, settings."""

import logging

from extender.apiserver.writers import pod_regarding
from extender.cache.events import ClockJudged, Effect, ReportJudged
from extender.clocks import Clock
from extender.refusals import describe_clock
from extender.scheduling.decisions import LastDecision, LastDecisions
from extender.scheduling.reserve import Choice
from extender.volcano.protocol import Job
from kube.events import Recorder, Regarding
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)


class Announcer:
    """Records events and log lines; remembers why each pod got its node and chips."""

    def __init__(
        self,
        recorder: Recorder,
        decisions: LastDecisions,
        wall: Clock,
        *,
        is_mute: bool,
    ) -> None:
        """Start without anything recorded.

        Args:
            is_mute: Whether no events about settings are sent: in shadow mode, the
                extender writes nothing to the cluster.
        """
        self._recorder = recorder
        self._decisions = decisions
        self._wall = wall
        self._is_mute = is_mute

    def record_settings(self, config_map: Regarding, reason: str, text: str) -> None:
        """Record that settings were followed or refused; the log has it already."""
        if self._is_mute:
            return
        kind = "Warning" if reason.endswith("Unusable") else "Normal"
        self._recorder.record(config_map, reason=reason, message=text, type=kind)

    def carry_out(self, effect: Effect) -> None:
        """Tell that a node's report is unreadable or its clock differs, or no longer.

        Other effects are ignored.
        """
        if isinstance(effect, ClockJudged):
            self._record_clock(effect)
        if not isinstance(effect, ReportJudged):
            return
        extra = {"node": effect.node, "resource": effect.resource}
        if effect.problem:
            log.warning("NPU report not read", extra=extra | {"why": effect.problem})
        else:
            log.info("NPU report is read again", extra=extra)

    def _record_clock(self, effect: ClockJudged) -> None:
        node, reason, kind = effect.node, "NpuClockAgrees", "Normal"
        text = f"the clock of {node} agrees with the extender's"
        if effect.ahead_s:
            reason, kind = "NpuClockDiffers", "Warning"
            text = describe_clock(node, effect.ahead_s)
            log.warning("clock of a node differs", extra={"node": node, "why": text})
        else:
            log.info("clock of a node agrees again", extra={"node": node})
        if not self._is_mute:
            regarding = Regarding(kind="Node", name=node, uid=node)
            self._recorder.record(regarding, reason=reason, message=text, type=kind)

    def record_bound(self, pod: NpuPod, choice: Choice) -> None:
        """Log why a bound pod got its node and chips, and record it as an event.

        The reason is also kept as the last decision on the pod, for `/v1/explain`.
        """
        text = choice.sentence
        log.info("pod bound", extra={"pod": f"{pod.namespace}/{pod.name}", "why": text})
        self._decisions.put(pod.uid, LastDecision(at_s=self._wall.wall_s(), text=text))
        self._recorder.record(
            pod_regarding(pod), reason="AscendScheduled", message=text
        )

    def record_refused_job(self, job: Job, pod: NpuPod | None, text: str) -> None:
        """Log why a job of Volcano does not fit, and emit events with the reason.

        One event is on the PodGroup, and one on `pod`.

        Args:
            pod: A pod of the job; None if the cache has none.
        """
        log.info("job not taken up", extra={"group": job.name, "why": text})
        group = Regarding(
            kind="PodGroup",
            name=job.name,
            namespace=job.namespace,
            uid=job.group_uid,
        )
        for regarding in (group, *([pod_regarding(pod)] if pod else [])):
            self._recorder.record(
                regarding, reason="AscendNotEnqueued", message=text, type="Warning"
            )
