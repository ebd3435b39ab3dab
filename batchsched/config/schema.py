"""The configuration file: `BatchSchedulerConfiguration` with its profiles, and the settings of the running scheduler.

The descriptions in this module become the JSON Schema that `batchsched schema config` prints and the page
docs/reference/configuration.md. The names of policies and plugins are not validated here: the registries in
`batchsched.queues` and `batchsched.framework` know them. Names and defaults of leader election, of the connection to
the API server and of the HTTPS server are those of kube-scheduler's file, or of its flags if the file has no such
field.
"""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from batchsched.api.core.pod import SCHEDULER_NAME
from batchsched.api.crd.base import StrictModel
from batchsched.config.extenders import (
    Duration,
    Extender,
    check_single_binder,
    parse_duration,
    resources_ignored_by_scheduler,
)
from batchsched.config.kubernetes_release import (
    DEFAULT_VERSION,
    RELEASES,
    KubernetesRelease,
    KubernetesVersion,
)
from batchsched.config.owner_rules import OwnerRule
from batchsched.config.plugins import NullTolerantModel, PluginConfig, Plugins, check_plugins_configured_once


class LeaderElection(NullTolerantModel):
    """Settings of leader election among the replicas of the scheduler."""

    leader_elect: bool = True
    """Acquire the Lease before scheduling."""
    lease_duration: Duration = "15s"
    """Time after which another replica may take over a Lease that was not renewed."""
    renew_deadline: Duration = "10s"
    """Time after the last renewal at which the leader stops writing to the API server."""
    retry_period: Duration = "2s"
    """Time between two attempts to acquire or renew the Lease."""
    resource_name: str = Field(default="batchsched", min_length=1)
    """Name of the Lease."""
    resource_namespace: str = ""
    """Namespace of the Lease. Default: the namespace of the scheduler's pod."""

    @model_validator(mode="after")
    def _check_periods(self) -> Self:
        if not self.leader_elect:
            return self
        if parse_duration(self.lease_duration) <= parse_duration(self.renew_deadline):
            raise ValueError(f"leaseDuration: expected more than renewDeadline, found {self.lease_duration}")
        if parse_duration(self.renew_deadline) <= parse_duration(self.retry_period):
            raise ValueError(f"renewDeadline: expected more than retryPeriod, found {self.renew_deadline}")
        if parse_duration(self.retry_period) <= 0:
            raise ValueError(f"retryPeriod: expected more than 0, found {self.retry_period}")
        return self


class PodGrouperSettings(StrictModel):
    """Settings of the pod grouper, which creates PodGroups for the pods of Jobs and other owners."""

    enabled: bool = True
    """Form a gang of the pods of one owner, and write a PodGroup for it.

    If false, the pods of an owner are a gang only if their labels name a PodGroup.
    """
    patch_pods: bool = True
    """Write the labels of their gang to pods that are pending for some seconds.

    If false, batchsched needs no permission to patch pods. API servers of version 1.35 or later then write the labels
    with the binding.
    """
    rules: tuple[OwnerRule, ...] = Field(default=(), max_length=100)
    """Rules for kinds of owners that batchsched does not know, and rules that replace those of known kinds.

    batchsched needs the permissions `list` and `watch` for each of these kinds.
    """

    @model_validator(mode="after")
    def _kinds_are_unique(self) -> Self:
        kinds = [(rule.api_version.partition("/")[0], rule.kind) for rule in self.rules]
        for index, (group, kind) in enumerate(kinds):
            if (group, kind) in kinds[:index]:
                raise ValueError(f"rules: two rules are for {kind} of {group}; remove one of them")
        return self


class ExplanationSettings(StrictModel):
    """The budget for explanations of refused gangs.

    An explanation verifies which change would admit the gang: it decides the session again on changed inputs, while no
    session is being decided.
    """

    cpu_share: float = Field(default=0.25, ge=0, le=1)
    """Maximum part of the time of one CPU. 0: what would help is estimated and not verified."""
    gangs_per_minute: int = Field(default=30, ge=1, le=6000)
    """Maximum number of explanations in a minute; each one may change the conditions of the gang's pods."""


class ClientConnection(NullTolerantModel):
    """Settings of the connection to the API server."""

    kubeconfig: str = ""
    """Path of the kubeconfig. Default: KUBECONFIG, the in-cluster configuration, or ~/.kube/config."""


class HttpsServerSettings(NullTolerantModel):
    """Settings of the HTTPS server for health, metrics, the status page and debugging."""

    bind_address: str = "0.0.0.0"
    """Address to listen on."""
    secure_port: int = Field(default=10259, ge=0, le=65535)
    """Port of the HTTPS server. 0: no server."""
    tls_cert_file: str = ""
    """File with the server certificate, PEM.

    Default: a self-signed certificate. The file is read again when it changes.
    """
    tls_private_key_file: str = ""
    """File with the key of the server certificate, PEM."""
    authorization_always_allow_paths: tuple[str, ...] = (
        "/healthz",
        "/healthz/*",
        "/livez",
        "/livez/*",
        "/readyz",
        "/readyz/*",
    )
    """Paths that are served without authorization. A * at the end matches any suffix."""

    @model_validator(mode="after")
    def _check_certificate_and_key(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError("tlsCertFile and tlsPrivateKeyFile: expected both or none")
        return self


CONFIG_API_VERSION: Final = "config.batchsched.dev/v1alpha1"
CONFIG_KIND: Final = "BatchSchedulerConfiguration"
KUBE_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KUBE_KIND: Final = "KubeSchedulerConfiguration"
FIT: Final = "NodeResourcesFit"


class SolverSettings(StrictModel):
    """Settings of the joint solver."""

    enabled: bool = True
    """Assign all gangs of a session jointly. If false, the plugin pipeline places pods one by one, in order."""
    deterministic_budget: float = Field(default=2.0, gt=0, le=3600)
    """Maximum work of CP-SAT in one session, in deterministic seconds.

    The unit is the same on every machine, so that decisions are reproducible. The rounds spend at most one unit. If the
    gap stays above `gap`, the improvement after the rounds spends what is above 2.0, and a twentieth of what is below.
    From one unit on, a larger budget never gives a worse solution.
    """
    rounds: int = Field(default=3, ge=1, le=100)
    """Maximum number of rounds.

    Each round solves the model, places the solution on nodes, and adds a cut for each gang that does not fit.
    """
    gap: float = Field(default=0.003, ge=0, lt=1)
    """Relative gap to the bound at which the solver stops improving a tier."""
    guard_seconds: float = Field(default=30.0, gt=0)
    """Wall-clock limit of the solver in seconds.

    A decision that was cut off by this limit has `guard: true`, because it may not be reproducible.
    """
    exact_variables: int = Field(default=2500, ge=0)
    """Problems with at most this many variables (pod classes × nodes) are solved exactly."""
    workers: int = Field(default=1, ge=1, le=64)
    """Number of processes that compute the improvement after the rounds, together with the process of the session.

    The scheduler starts one process less than this number, when a session first needs them. The decision is the same
    for every number, unless `guardSeconds` cuts it off. Replays and simulations use one process.
    """


class PolicySettings(StrictModel):
    """Settings that choose a gang policy or a queue policy by its registered name, with its arguments."""

    name: str = Field(default="priority", min_length=1)
    """Name of a registered policy, such as priority, fcfs, sjf or headroom."""
    args: dict[str, Any] = Field(default={})
    """Arguments of the policy."""


class Profile(StrictModel):
    """The scheduling profile for pods with one scheduler name."""

    scheduler_name: str = Field(default=SCHEDULER_NAME, min_length=1)
    """The profile schedules pods with this spec.schedulerName."""
    kubernetes_version: KubernetesVersion = DEFAULT_VERSION
    """The minor release of kube-scheduler that the plugins follow in their order, filters, scores and messages. Quote
    the value in YAML.
    """
    solver: SolverSettings = SolverSettings()
    """The joint solver."""
    selection: Literal["weight", "ordered"] = "weight"
    """weight: maximise the total weight of the placed gangs, priority by priority. ordered: follow the order of the
    policy strictly; the solver only chooses nodes.
    """
    policy: PolicySettings = PolicySettings()
    """The order of pending gangs."""
    queue_policy: PolicySettings | None = None
    """The sharing policy of queues without a parent, and of all queues below them that set no policy.

    Default: drf, if any queue sets a guarantee, a weight, a priority or a policy.
    """
    usage_half_life_seconds: float = Field(default=7 * 86400.0, ge=0, allow_inf_nan=False)
    """Half-life of recorded queue usage in seconds, for policies that depend on past usage."""
    backfill: Literal["none", "easy", "kept"] = "none"
    """easy: the first gang that does not fit gets a reservation, and later gangs may start if they do not delay it;
    each session determines that gang again. kept: the gang gets a reservation after it has been pending as long as
    promiseSlowdown states. The reservation is then sticky: gangs of the same tier that were submitted later do not
    delay it.
    """
    promise_slowdown: float = Field(default=50.0, ge=1, allow_inf_nan=False)
    """With `backfill: kept`: the minimum slowdown, (wait + run time) / run time, at which a gang gets a sticky
    reservation. 1: immediately.
    """
    blocking: bool = False
    """With `selection: ordered`: the first gang that does not fit blocks all gangs behind it."""
    session_window: int = Field(default=500, ge=1)
    """Maximum number of pending gangs, in order, that one session considers together."""
    session_seconds: float = Field(default=5.0, gt=0, le=3600)
    """If a session takes longer than this number of seconds, the next one takes fewer gangs. The namespaces with
    pending gangs have equal shares of each session, among gangs of equal priority.
    """
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    """With the solver disabled: the search for a node ends when this percentage of the nodes, and at least 100
    nodes, are feasible; the search for the next pod continues there. 0: 50 % minus 1 % for each 125 nodes, at least
    5 %. If unset, all nodes are scored. With the solver enabled, all nodes are always scored.
    """
    placement: Literal["pack", "spread"] = "pack"
    """pack: fill nodes one after another. spread: use nodes evenly."""
    consolidate: bool = False
    """With the solver enabled: evict gangs of equal or lower priority to consolidate free capacity for a pending
    gang, if all evicted gangs can be placed elsewhere at the same time. Evicted gangs restart.
    """
    plugins: Plugins = Plugins()
    """Enabled and disabled plugins."""
    plugin_config: tuple[PluginConfig, ...] = ()
    """Arguments of plugins."""
    plugin_deadline_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Deadline in seconds of one call of a plugin from another package.

    If a call exceeds it, its pod is refused and the plugin is disabled until the next start or a changed configuration.
    """
    extenders: tuple[Extender, ...] = ()
    """Scheduler extenders, called after the plugins in this order, ignorable extenders last."""

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_plugins_configured_once(self.plugin_config)
        check_single_binder(self.extenders)
        return self

    @property
    def kubernetes_release(self) -> KubernetesRelease:
        """The behavior of the Kubernetes release that the plugins of the profile follow."""
        return RELEASES[self.kubernetes_version]

    def gang_order_has_effect(self, *, entitled: bool) -> bool:
        """Return whether the gang order policy of the profile can influence which gangs start.

        Without the solver, gangs are placed one by one in its order, whatever `selection` states. With
        `selection: weight` it only decides which gangs of a queue are inside the entitlement of the queue.

        Args:
          entitled: whether some queue has an entitlement.
        """
        in_order = not self.solver.enabled or self.selection == "ordered"
        return in_order or entitled or self.queue_policy is not None

    @property
    def head_blocks(self) -> bool:
        """Whether the first gang that does not fit blocks all gangs behind it; with backfill, it has a reservation."""
        in_order = self.solver.enabled and self.selection == "ordered"
        return in_order and self.blocking and self.backfill == "none"

    def plugin_arguments(self, plugin: str) -> dict[str, Any]:
        """Return the configured arguments of a plugin, or {} if the profile has none for it.

        As in kube-scheduler, resources that extenders manage alone replace `ignoredResources` of NodeResourcesFit.
        """
        arguments = next((config.arguments for config in self.plugin_config if config.name == plugin), {})
        ignored = resources_ignored_by_scheduler(self.extenders) if plugin == FIT else []
        return arguments | {"ignoredResources": ignored} if ignored else arguments


class BatchSchedulerConfiguration(StrictModel):
    """The configuration file of batchsched."""

    api_version: Literal["config.batchsched.dev/v1alpha1"] = CONFIG_API_VERSION
    kind: Literal["BatchSchedulerConfiguration"] = CONFIG_KIND
    profiles: tuple[Profile, ...] = Field(default=(Profile(),), min_length=1)
    """One profile for each scheduler name."""
    leader_election: LeaderElection = LeaderElection()
    """Leader election of `run`."""
    client_connection: ClientConnection = ClientConnection()
    """Connection of `run` to the API server."""
    pod_grouper: PodGrouperSettings = PodGrouperSettings()
    """PodGroups that `run` creates for the pods of Jobs and other owners."""
    explanations: ExplanationSettings = ExplanationSettings()
    """Budget of `run` for verifying what would help refused gangs."""
    serving: HttpsServerSettings = HttpsServerSettings()
    """HTTPS server of `run` for health, metrics and debugging."""
    sessions_kept: int = Field(default=10, ge=0, le=1000)
    """Number of past sessions that `run` keeps for download and `replay`."""

    @model_validator(mode="after")
    def _scheduler_names_are_unique(self) -> Self:
        names = [profile.scheduler_name for profile in self.profiles]
        if len(set(names)) != len(names):
            raise ValueError("profiles: two profiles have the same schedulerName; each profile needs its own")
        return self
