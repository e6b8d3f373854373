"""What do kubelets of other versions do differently, as far as device plugins see it?

One row for all versions that behave alike. Everything else of the two contracts is the
same in all of them: the rate limit of pod-resources, the options that are asked after
registration, `localhost` as the authority of calls to a plugin (since 1.26).

Source:
    Kubernetes, `pkg/features/kube_features.go` (stages of the gates by version), and
    `pkg/kubelet/apis/podresources/server_v1.go` of 1.28 and 1.36.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviour of kubelets from one minor version of 1 on to another."""

    first: int
    last: int
    #: pod-resources `Get` (gate KubeletPodResourcesGet, on from 1.34)
    has_get: bool = True
    #: pod-resources `List` shows pods until the API server forgets them, ended or not
    #: (gate KubeletPodResourcesListUseActivePods, from 1.34)
    lists_ended: bool = False
    #: names of CDI devices reach the container runtime (gate DevicePluginCDIDevices,
    #: on from 1.29)
    passes_cdi: bool = True

    def __str__(self) -> str:
        """The versions that it stands for."""
        if self.first == self.last:
            return f"1.{self.first}"
        return f"1.{self.first}-1.{self.last}"


#: Oldest first.
PROFILES = (
    Profile(first=28, last=28, has_get=False, lists_ended=True, passes_cdi=False),
    Profile(first=29, last=33, has_get=False, lists_ended=True),
    Profile(first=34, last=36),
)
NEWEST = PROFILES[-1]
