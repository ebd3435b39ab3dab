"""The schema of kube-scheduler's configuration file, so that batchsched can load an existing file unchanged.

Its profiles become batchsched profiles. Fields without effect in batchsched are validated as kube-scheduler validates
them, and reported as warnings.

Source: k8s.io/kube-scheduler/config/v1, and the validation of kube-scheduler's apis/config.
"""

from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from batchsched.api.crd.validation import field_path
from batchsched.config.extenders import Extender, check_single_binder
from batchsched.config.plugins import (
    EMPTY_PLUGIN_SET,
    NullTolerantModel,
    PluginConfig,
    Plugins,
    PluginSet,
    check_plugins_configured_once,
)
from batchsched.config.schema import BatchSchedulerConfiguration, ClientConnection, LeaderElection, Profile

DEFAULT_SCHEDULER: Final = "default-scheduler"
WITHOUT_EFFECT: Final = {
    "parallelism": "all nodes are filtered at once",
    "percentage_of_nodes_to_score": "all nodes are filtered and scored while the solver is enabled",
    "client_connection": "only kubeconfig is used",
    "pod_initial_backoff_seconds": "refused pods wait 1 to 10 s, or for an event that may help them",
    "pod_max_backoff_seconds": "refused pods wait 1 to 10 s, or for an event that may help them",
    "enable_profiling": "there is no profiling endpoint",
    "enable_contention_profiling": "there is no profiling endpoint",
    "delay_cache_until_active": "there is no cache to delay",
}
"""Fields that are validated but have no effect, with the reason."""


PLACEMENT_POINTS: Final = ("placement_generate", "placement_score", "pod_group_post_filter")
"""Extension points of kube-scheduler 1.37 for PodGroups."""


class KubeClientConnection(ClientConnection):
    """Settings of kube-scheduler for its connection to the API server."""

    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: int = Field(default=100, ge=0)


class KubeLeaderElection(LeaderElection):
    """Settings of kube-scheduler for leader election."""

    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"

    def to_batchsched(self) -> LeaderElection:
        """Return the equivalent leader election settings of batchsched.

        An unset Lease name becomes the default of batchsched, because kube-scheduler may run in the same cluster.
        """
        set_fields = self.model_dump(include=self.model_fields_set & LeaderElection.model_fields.keys())
        return LeaderElection(**set_fields)


class KubePlugins(Plugins):
    """The plugins that a profile of kube-scheduler enables or disables, by extension point."""

    placement_generate: PluginSet = EMPTY_PLUGIN_SET
    placement_score: PluginSet = EMPTY_PLUGIN_SET
    pod_group_post_filter: PluginSet = EMPTY_PLUGIN_SET

    def to_batchsched(self) -> Plugins:
        """Convert kube-scheduler's plugin settings to equivalent changes to batchsched's default plugins.

        The extension points that batchsched lacks are left out.
        """
        return Plugins(**{name: getattr(self, name) for name in Plugins.model_fields})


class KubeProfile(NullTolerantModel):
    """A profile in the configuration file of kube-scheduler."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    plugins: KubePlugins = KubePlugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    @model_validator(mode="after")
    def _check_fields_exist_upstream(self) -> Self:
        check_plugins_configured_once(self.plugin_config)
        for short in ("enabled", "disabled"):
            if short in self.plugins.model_fields_set:
                raise ValueError(f"plugins.{short}: unknown field; did you mean multiPoint.{short}?")
        return self


class KubeSchedulerConfiguration(NullTolerantModel):
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
        check_single_binder(self.extenders)
        self._check_scheduler_names()
        return self

    def _check_scheduler_names(self) -> None:
        names: list[str] = []
        for index, profile in enumerate(self.profiles):
            place = field_path(("profiles", index, "schedulerName"))
            if not profile.scheduler_name and len(self.profiles) > 1:
                raise ValueError(f"{place}: is required if there are several profiles; add it")
            if profile.scheduler_name in names:
                raise ValueError(
                    f"{place}: {profile.scheduler_name!r} is the name of another profile; choose a different one"
                )
            names.append(profile.scheduler_name)

    def to_batchsched(self) -> BatchSchedulerConfiguration:
        """Return the equivalent batchsched configuration; fields that kube-scheduler lacks get defaults."""
        profiles = tuple(
            Profile(
                scheduler_name=profile.scheduler_name or DEFAULT_SCHEDULER,
                plugins=profile.plugins.to_batchsched(),
                percentage_of_nodes_to_score=(
                    self.percentage_of_nodes_to_score
                    if profile.percentage_of_nodes_to_score is None
                    else profile.percentage_of_nodes_to_score
                ),
                plugin_config=profile.plugin_config,
                extenders=self.extenders,
            )
            for profile in self.profiles or (KubeProfile(),)
        )
        return BatchSchedulerConfiguration(
            profiles=profiles,
            leader_election=self.leader_election.to_batchsched(),
            client_connection=ClientConnection(kubeconfig=self.client_connection.kubeconfig),
        )

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each field that differs from its default and has no effect in batchsched."""
        fields = type(self).model_fields
        without_kubeconfig = self.model_copy(
            update={"client_connection": self.client_connection.model_copy(update={"kubeconfig": ""})}
        )
        lines = [
            f"{fields[name].alias}: has no effect; {why}"
            for name, why in WITHOUT_EFFECT.items()
            if getattr(without_kubeconfig, name)
            not in (fields[name].default, *_VALUES_WITHOUT_WARNING.get(name, ()))
        ]
        shared = "percentage_of_nodes_to_score"
        for index, profile in enumerate(self.profiles):
            if profile.percentage_of_nodes_to_score not in _VALUES_WITHOUT_WARNING[shared]:
                place = field_path(("profiles", index, "percentageOfNodesToScore"))
                lines.append(f"{place}: has no effect; {WITHOUT_EFFECT[shared]}")
            lines += [
                f"{field_path(('profiles', index, 'plugins', to_camel(point)))}: has no effect; a session places all "
                "pods of a gang together"
                for point in PLACEMENT_POINTS
                if getattr(profile.plugins, point) != EMPTY_PLUGIN_SET
            ]
        return tuple(lines)


_VALUES_WITHOUT_WARNING: Final = {"percentage_of_nodes_to_score": (None, 0, 100)}
"""Values other than the default that cause no warning: 0 means automatic, and 100 is the actual behaviour."""
