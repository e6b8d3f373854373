from prometheus_client import CollectorRegistry

from agent.observe.metrics import Metrics
from agent.observe.registration import Registration


def test_the_gap_of_each_registration_is_counted_from_the_first_loss() -> None:
    registry, now = CollectorRegistry(), 10.0
    standing = Registration(Metrics(registry), lambda: now)

    now = 12.0
    standing.registered()  # 2 s after the start
    now = 20.0
    standing.unregistered()
    now = 21.0
    standing.unregistered()  # a try in vain
    now = 26.0
    standing.registered()  # 6 s after the loss

    name = "ascend_agent_registration_gap_seconds"
    assert registry.get_sample_value(f"{name}_sum") == 8.0
    assert registry.get_sample_value(f"{name}_count") == 2
    assert registry.get_sample_value("ascend_agent_registrations_total") == 2
