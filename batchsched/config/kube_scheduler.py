"""kube-scheduler's own configuration, `KubeSchedulerConfiguration` v1, so that an existing file loads as it is.

Its profiles become ours. What has no meaning in batchsched is checked as kube-scheduler does, and said once.

Source: k8s.io/kube-scheduler/config/v1, and the validation of kube-scheduler's apis/config.
"""

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from batchsched.api.crd.validation import path
from batchsched.config.extenders import Extender, check_one_binds
from batchsched.config.plugins import Lenient, PluginConfig, Plugins, check_configured_once
from batchsched.config.schema import BatchSchedulerConfiguration, Profile
from batchsched.config.serving import ClientConnection, LeaderElection

KUBE_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KUBE_KIND: Final = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER: Final = "default-scheduler"
WITHOUT_EFFECT: Final = {
    "parallelism": "all nodes are judged at once",
    "percentage_of_nodes_to_score": "all nodes are judged and scored while the solver is on",
    "client_connection": "only its kubeconfig counts",
    "pod_initial_backoff_seconds": "a session takes every pending pod",
    "pod_max_backoff_seconds": "a session takes every pending pod",
    "enable_profiling": "there is no profiling endpoint",
    "enable_contention_profiling": "there is no profiling endpoint",
    "delay_cache_until_active": "there is no cache to delay",
}
"""Fields that are read and checked and that change nothing, and why."""


class KubeClientConnection(ClientConnection):
    """How kube-scheduler reaches the API server."""

    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: int = Field(default=100, ge=0)


class KubeLeaderElection(LeaderElection):
    """How one of several kube-schedulers is elected."""

    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"

    def ours(self) -> LeaderElection:
        """Return it as ours; a Lease that is not stated has our name: kube-scheduler may run beside us."""
        stated = self.model_dump(include=self.model_fields_set & LeaderElection.model_fields.keys())
        return LeaderElection(**stated)


class KubeProfile(Lenient):
    """A profile as kube-scheduler has it."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    @model_validator(mode="after")
    def _only_what_kube_scheduler_has(self) -> Self:
        check_configured_once(self.plugin_config)
        for short in ("enabled", "disabled"):
            if short in self.plugins.model_fields_set:
                raise ValueError(f"plugins.{short}: unknown field; did you mean multiPoint.{short}?")
        return self


class KubeSchedulerConfiguration(Lenient):
    """The configuration file of kube-scheduler."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    parallelism: int = Field(default=16, gt=0)
    leader_election: KubeLeaderElection = KubeLeaderElection()
    client_connection: KubeClientConnection = KubeClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    pod_initial_backoff_seconds: int = Field(default=1, gt=0)
    pod_max_backoff_seconds: int = Field(default=10, gt=0)
    profiles: tuple[KubeProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            raise ValueError(
                f"podMaxBackoffSeconds: expected podInitialBackoffSeconds, {self.pod_initial_backoff_seconds}, "
                f"or more, found {self.pod_max_backoff_seconds}"
            )
        check_one_binds(self.extenders)
        self._check_scheduler_names()
        return self

    def _check_scheduler_names(self) -> None:
        names: list[str] = []
        for at, profile in enumerate(self.profiles):
            place = path(("profiles", at, "schedulerName"))
            if not profile.scheduler_name and len(self.profiles) > 1:
                raise ValueError(f"{place}: is required beside other profiles; add it")
            if profile.scheduler_name in names:
                raise ValueError(
                    f"{place}: {profile.scheduler_name!r} is another profile's name; choose one of its own"
                )
            names.append(profile.scheduler_name)

    def ours(self) -> BatchSchedulerConfiguration:
        """Return it as our configuration: its profiles, with our defaults for what it does not know."""
        profiles = tuple(
            Profile(
                scheduler_name=one.scheduler_name or DEFAULT_SCHEDULER,
                plugins=one.plugins,
                percentage_of_nodes_to_score=(
                    self.percentage_of_nodes_to_score
                    if one.percentage_of_nodes_to_score is None
                    else one.percentage_of_nodes_to_score
                ),
                plugin_config=one.plugin_config,
                extenders=self.extenders,
            )
            for one in self.profiles or (KubeProfile(),)
        )
        return BatchSchedulerConfiguration(
            profiles=profiles,
            leader_election=self.leader_election.ours(),
            client_connection=ClientConnection(kubeconfig=self.client_connection.kubeconfig),
        )

    def warnings(self) -> tuple[str, ...]:
        """Say why a field that asks for something has no effect; what kube-scheduler does anyway asks nothing."""
        fields = type(self).model_fields
        stated = self.model_copy(
            update={"client_connection": self.client_connection.model_copy(update={"kubeconfig": ""})}
        )
        lines = [
            f"{fields[name].alias}: has no effect; {why}"
            for name, why in WITHOUT_EFFECT.items()
            if getattr(stated, name) not in (fields[name].default, *_ASKS_NOTHING.get(name, ()))
        ]
        shared = "percentage_of_nodes_to_score"
        for at, profile in enumerate(self.profiles):
            if profile.percentage_of_nodes_to_score not in _ASKS_NOTHING[shared]:
                place = path(("profiles", at, "percentageOfNodesToScore"))
                lines.append(f"{place}: has no effect; {WITHOUT_EFFECT[shared]}")
        return tuple(lines)


_ASKS_NOTHING: Final = {"percentage_of_nodes_to_score": (None, 0, 100)}
"""Values beside the default that need no word: 0 leaves the choice to the scheduler, and 100 is what it is."""
