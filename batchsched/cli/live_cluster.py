"""Access of commands to a live cluster: the options that select it, and a list of all its objects."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchsched.cli.session_input import pod_grouper_settings, print_warnings
from batchsched.config.schema import Profile

if TYPE_CHECKING:
    from batchsched.scheduler.app import SchedulerApp


@dataclass(frozen=True, slots=True)
class LiveClusterOptions:
    """The options that state which live cluster a command reads, and which profile it uses.

    Args:
      kubeconfig, context: values of the options `--kubeconfig` and `--context`; None: the defaults of kubectl.
      config, profile: the configuration file and the name of the profile; None: the default profile.
      stated_namespace: value of the option `--namespace`.
    """

    kubeconfig: Path | None
    context: str | None
    config: Path | None
    profile: str | None
    stated_namespace: str | None = None

    @property
    def namespace(self) -> str:
        """The value of `--namespace`, or else the namespace that `kubectl` would use by default.

        This is the namespace of the kubeconfig context or, in a pod without a kubeconfig, the namespace of the pod.
        """
        from batchsched.kube.credentials import CredentialsReader

        return self.stated_namespace or CredentialsReader(self.kubeconfig, self.context).kubectl_namespace


async def create_scheduler_from_live_cluster(access: LiveClusterOptions, profile: Profile) -> "SchedulerApp":
    """List all objects of a cluster once, and return a scheduler that holds them in its cluster state.

    Print a warning if the cluster lacks the CRDs of batchsched.
    """
    from batchsched.api.crd.base import API_VERSION
    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection
    from batchsched.kube.credentials import CredentialsReader
    from batchsched.scheduler.live_snapshot import create_scheduler_from_cluster

    clock = SystemClock()
    grouping = pod_grouper_settings(access.config)
    async with Connection(CredentialsReader(access.kubeconfig, access.context), clock) as connection:
        service = await create_scheduler_from_cluster(connection, clock, [profile], grouping)
    own_kinds = [
        reflector for reflector in service.reflectors if reflector.resource.api_version == API_VERSION
    ]
    unknown = ", ".join(sorted(reflector.resource.plural for reflector in own_kinds if not reflector.lists))
    if unknown:
        print_warnings(
            [
                f"warning: the cluster does not know {unknown} of batchsched; `batchsched install` adds the CRDs"
            ]
        )
    return service
