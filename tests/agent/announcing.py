"""An announcer at work, and what people and programs are told."""

from prometheus_client import CollectorRegistry

from agent.observe.announcer import Announcer
from agent.observe.metrics import Metrics
from agent.observe.problems import Problems
from kube.client import Client
from kube.credentials import from_url
from kube.events import Recorder
from tests.agent.node import NODE


class Announced:
    """An announcer whose events wait for an API server that never comes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self._recorder = Recorder(Client(from_url("http://127.0.0.1:1")), component="x")
        self.problems = Problems(self.metrics, self._recorder, node=NODE)
        self.announcer = Announcer(self.metrics, self.problems)

    @property
    def events(self) -> list[tuple[str, str]]:
        """(reason, message) of each."""
        return [(fact.reason, fact.message) for fact in self._recorder._pending]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"ascend_agent_{name}", labels)
