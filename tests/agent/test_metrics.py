"""The names under which an operator finds the agent's figures."""

from prometheus_client import CollectorRegistry, generate_latest

from agent.observe.metrics import Metrics


def test_two_agents_in_one_process_have_their_own_figures() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    Metrics(one).driver_stale.set(1)
    Metrics(other)

    assert one.get_sample_value("ascend_agent_driver_stale") == 1
    assert other.get_sample_value("ascend_agent_driver_stale") == 0


def test_requests_are_counted_as_the_client_names_them() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)

    metrics.count_request("PATCH", "configmaps", 200)

    labels = {"verb": "PATCH", "resource": "configmaps", "code": "200"}
    assert registry.get_sample_value("ascend_agent_api_requests_total", labels) == 1


def test_every_name_is_the_agents_and_has_a_sentence() -> None:
    registry = CollectorRegistry()
    Metrics(registry)

    lines = generate_latest(registry).decode().splitlines()

    helps = [line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP")]
    assert all(name.startswith("ascend_agent_") for name, _ in helps)
    assert all(text for _, text in helps)
