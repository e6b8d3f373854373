"""Settings of the extender: command-line options, help texts, defaults and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from extender.cache.cache import AGENT_SILENT_S
from extender.gang import events
from kube.pods import BIND_S
from scheduler_core.placement.job_rules import Profile
from scheduler_core.topology.leaves import Version
from service import logs
from service.settings import at_least, one_of, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """ascend-extender: chooses nodes and chips for pods that ask for Ascend NPUs."""

    PREFIX: ClassVar[str] = "ASCEND_EXTENDER"

    listen: str = option(":8888", "address to serve on, host:port; port 0: any")
    address_file: Path | None = option(
        None, "file to write the address to, once the extender listens"
    )
    read_listen: str = option(
        "",
        "a second address, host:port, for clients that may only read: /v1, "
        "metrics and health; empty: none",
    )
    tls_certificate: Path | None = option(
        None, "certificate file of both addresses, read again when it changes"
    )
    tls_key: Path | None = option(None, "key file of that certificate")
    tls_client_ca: Path | None = option(
        None,
        "CA file; --listen then accepts only clients with a certificate of this CA",
    )
    api_server: str = option(
        "", "URL of the API server; empty: the cluster that this pod runs in"
    )
    service_account_dir: Path = option(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        "folder with token and ca.crt",
    )
    kubeconfig: Path | None = option(None, "kubeconfig file to use instead")
    self_maintain_available_card: bool = option(
        default=True,
        text="true: free chips follow from inventory, health and pods; "
        "false: the list in the device ConfigMap bounds them as well",
    )
    agent_silent_s: float = option(
        AGENT_SILENT_S,
        "seconds without a report of its agent after which a node gets no pods",
        check=at_least(1),
    )
    bare_nodes: bool = option(
        default=False,
        text="true: nodes without an agent get pods, by the Node's allocatable; only "
        "for clusters in which no node has an agent",
    )
    permit_s: float = option(
        events.Limits().permit_s,
        "seconds for which a bind waits for the other pods of its job; well below the "
        "scheduler's httpTimeout",
        check=at_least(1),
    )
    followers_s: float = option(
        events.Limits().followers_s,
        "seconds for which nodes are kept for pods that a controller makes only when "
        "other pods of their job are ready",
        check=at_least(1),
    )
    incomplete: str = option(
        "keep",
        "evict: the bound pods of a job that could not be bound as a whole within ten "
        "minutes are evicted, so that it starts again; keep: they keep running",
        check=one_of("keep", "evict"),
    )
    job_rules: str = option(
        Profile.SEED.value,
        "rules for jobs of several pods on an Atlas 800: seed (whole nodes only) or "
        "per-pod (any number of pods)",
        check=one_of(*(profile.value for profile in Profile)),
    )
    superpod_size: int = option(48, "nodes of a physical SuperPoD", check=at_least(1))
    reserve_nodes: int = option(
        2, "nodes of each SuperPoD that jobs leave free if they can", check=at_least(0)
    )
    nslb_version: str = option(
        Version.ONE.value,
        "how jobs share leaf switches: 1.0, or 2.0 (a few leaves by several jobs)",
        check=one_of(Version.ONE.value, Version.TWO.value),
    )
    tor_share_namespace: str = option(
        "",
        "namespace of the ConfigMap tor-share-cm, which shows how jobs use the leaf "
        "switches; empty: it is not written; only with 2.0",
    )
    shared_tor_num: int = option(
        2,
        "leaf switches of a job that others may share, 1 or 2; only with 2.0",
        check=at_least(1),
    )
    lease: str = option(
        "",
        "name of the Lease by which several extenders agree on the one that decides; "
        "empty: this is the only one",
    )
    lease_namespace: str = option("kube-system", "where that Lease is")
    lease_s: float = option(
        15.0,
        "seconds without a renewal after which another extender takes the lease; this "
        "one stops deciding two thirds of it after its last renewal",
        check=at_least(1),
    )
    bind_s: float = option(
        BIND_S,
        "timeout of a bind at the API server, in seconds; an extender that takes the "
        "lease from a silent one waits a little longer before it decides",
        check=at_least(1),
    )
    identity: str = option(
        "",
        "unique name of this extender in the Lease; empty: made from host name and "
        "process",
    )
    preemption: str = option(
        "off",
        "evict: pods of lower priority are evicted where a pod or a job needs a free "
        "ring, card or whole node; off: only the scheduler evicts",
        check=one_of("off", "evict"),
    )
    rescheduling: str = option(
        "off",
        "report: a pod whose chip breaks is told which pods of its job would move, and "
        "where to, if the job asks for it; evict: these pods are evicted, and their "
        "successors get chips that are kept for them; off: nothing is told besides",
        check=one_of("off", "report", "evict"),
    )
    fault_brake: str = option(
        "on",
        "on: while chips are broken on very many nodes, no pod is evicted for it; off: "
        "pods are evicted all the same",
        check=one_of("on", "off"),
    )
    shadow: bool = option(
        default=False,
        text="true: decide nothing and write nothing; compare what another scheduler "
        "decides with what this one would (docs/shadow.md)",
    )
    resync_s: float = option(
        600.0,
        "seconds between two comparisons of the whole cache with the API server; "
        "0: never",
        check=at_least(0),
    )
    log_level: str = option(
        "info", f"one of {', '.join(logs.LEVELS)}", check=one_of(*logs.LEVELS)
    )
