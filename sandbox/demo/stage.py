"""What the steps of the story share."""

from dataclasses import dataclass, field

from sandbox.inspect import checks
from sandbox.inspect.checks import Problems
from sandbox.inspect.facts import Choice, Cluster
from sandbox.inspect.terminal import Terminal
from sandbox.world import World


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the closing table sums up. Owner: the steps, each adds what it saw."""

    #: pods that run, confirmed
    placed: int = 0
    #: pods that a kubelet has rejected
    rejected: int = 0
    #: pods that failed with their agent, as they had to, and were made again
    cut_off: int = 0
    #: pods that fitted nowhere and were told why
    pending: int = 0
    wrong_pairings: int = 0
    double_allocations: int = 0
    #: from the edit of a driver's file to the ConfigMap. Unit: seconds
    event_to_config_map_s: list[float] = field(default_factory=list)
    #: from there to the job of which a chip broke, with all its pods. Unit: seconds
    event_to_job_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running world, somebody who looks at it, and the notes taken so far."""

    world: World
    terminal: Terminal
    tally: Tally
    #: {pod uid: what bind wrote}; grows while the story runs
    choices: dict[str, Choice]

    def judge(self, cluster: Cluster, names: tuple[str, ...]) -> Problems:
        """Check pods that should run by now, count them, and tell what was found.

        Args:
            cluster: Afterwards.
            names: The pods that this step made.
        """
        pods = [pod for pod in cluster.pods if pod.name in names]
        pairing = checks.paired(cluster)
        self.tally.placed += sum(pod.phase == "Running" for pod in pods)
        self.tally.rejected += sum(pod.phase == "Failed" for pod in pods)
        self.tally.wrong_pairings += len(pairing.wrong)
        self.tally.double_allocations += len(pairing.doubled)
        problems = checks.served(pods) + pairing.problems + checks.agreed(cluster)
        if not problems:
            self.terminal.good(
                "every container has what its pod's annotations say, no chip has "
                "two owners, the ConfigMaps agree"
            )
        return problems
