"""What a person may set: `BatchSchedulerConfiguration`, and the profiles in it.

The JSON Schema that `batchsched schema config` prints, and the page docs/configuration.md, are made from the
descriptions here. Names of policies and plugins are not judged here: a registry above knows them.
"""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from batchsched.api.core.pod import SCHEDULER_NAME
from batchsched.api.crd.base import SpecPart
from batchsched.config.extenders import Extender, check_one_binds, ignored_resources
from batchsched.config.plugins import PluginConfig, Plugins, check_configured_once
from batchsched.config.serving import ClientConnection, LeaderElection, Serving

CONFIG_API_VERSION: Final = "config.batchsched.dev/v1alpha1"
CONFIG_KIND: Final = "BatchSchedulerConfiguration"
FIT: Final = "NodeResourcesFit"


class SolverSettings(SpecPart):
    """How the joint solver works."""

    enabled: bool = Field(
        default=True, description="Solve gangs jointly. Off: the plugin pipeline places pod by pod, in order."
    )
    deterministic_budget: float = Field(
        default=2.0,
        gt=0,
        le=3600,
        description="Work that one session may spend in CP-SAT, in its deterministic seconds: the same work on "
        "every machine, so that decisions repeat.",
    )
    rounds: int = Field(
        default=3,
        ge=1,
        le=100,
        description="How often a solution is realised on nodes, cut and solved again.",
    )
    gap: float = Field(
        default=0.003,
        ge=0,
        lt=1,
        description="Relative distance to the bound at which a tier is good enough.",
    )
    guard_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Seconds of wall clock after which the solver is stopped whatever it has. A decision that "
        "needed the guard says so, because it may not repeat.",
    )
    exact_variables: int = Field(
        default=2500,
        ge=0,
        description="Problems with at most this many node-level variables are solved exactly, node by node.",
    )


class PolicySettings(SpecPart):
    """The order of gangs, by the name under which it is registered."""

    name: str = Field(
        default="priority",
        min_length=1,
        description="A registered policy, such as priority, fcfs, sjf or ours.",
    )
    args: dict[str, Any] = Field(default={}, description="Arguments of the policy.")


class Profile(SpecPart):
    """How the pods of one scheduler name are scheduled."""

    scheduler_name: str = Field(
        default=SCHEDULER_NAME, min_length=1, description="Pods with this spec.schedulerName are ours."
    )
    solver: SolverSettings = Field(default=SolverSettings(), description="The joint solver.")
    selection: Literal["weight", "ordered"] = Field(
        default="weight",
        description="weight: the most weight wins, priority by priority. ordered: the policy's order is strict, "
        "and the solver only places.",
    )
    policy: PolicySettings = Field(default=PolicySettings(), description="Who is next.")
    queue_policy: PolicySettings | None = Field(
        default=None,
        description="How queues without a parent share the cluster, and all below them that state no policy of their "
        "own. Without it: drf, as soon as any queue states a guarantee, a weight, a priority or a policy.",
    )
    usage_half_life_seconds: float = Field(
        default=7 * 86400.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds after which what a queue used counts half, for policies that look at the past.",
    )
    backfill: Literal["none", "easy", "kept"] = Field(
        default="none",
        description="easy: the head that does not fit gets a reservation, and gangs behind it may start if they "
        "do not delay it. Who is the head each session finds anew. kept: a start is told only once the head has waited "
        "as long as promiseSlowdown says, and then it is a promise: gangs of its tier that come later do not delay it.",
    )
    promise_slowdown: float = Field(
        default=50.0,
        ge=1,
        allow_inf_nan=False,
        description="With backfill kept: a start is promised to a head whose wait and run time together are so many "
        "times its run time, 1 at once.",
    )
    blocking: bool = Field(
        default=False, description="With selection ordered: a head that does not fit blocks all behind it."
    )
    session_window: int = Field(
        default=500, ge=1, description="How many pending gangs, in order, one session looks at."
    )
    percentage_of_nodes_to_score: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="With the solver off: the search for a pod's node ends when so many of the nodes, and at least "
        "100, take it, and the next pod's begins where it ended. 0: 50 % less 1 % for each 125 nodes, at least 5 %. "
        "Without it all nodes are scored, as they are with the solver on whatever stands here.",
    )
    placement: Literal["pack", "spread"] = Field(
        default="pack", description="Fill nodes one after the other, or use them evenly."
    )
    consolidate: bool = Field(
        default=False,
        description="With the solver on: evict gangs of no higher priority that all find another place at once, where "
        "that puts free room into one place for a gang that waits. They begin anew.",
    )
    plugins: Plugins = Field(default=Plugins(), description="Which plugins take part.")
    plugin_config: tuple[PluginConfig, ...] = Field(default=(), description="Arguments of plugins.")
    plugin_deadline_seconds: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="Seconds that a call of a plugin from another package may take. One that takes longer fails the "
        "pod it was asked about, and is left out until the next start.",
    )
    extenders: tuple[Extender, ...] = Field(
        default=(),
        description="Web services that are asked after the plugins, in this order, ignorable ones last.",
    )

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_configured_once(self.plugin_config)
        check_one_binds(self.extenders)
        return self

    def arguments(self, plugin: str) -> dict[str, Any]:
        """Return the arguments of a plugin, {} where none are stated.

        As in kube-scheduler, what extenders keep to themselves takes the place of NodeResourcesFit's own list.
        """
        stated = next((one.stated for one in self.plugin_config if one.name == plugin), {})
        ignored = ignored_resources(self.extenders) if plugin == FIT else []
        return stated | {"ignoredResources": ignored} if ignored else stated


class BatchSchedulerConfiguration(SpecPart):
    """The configuration file of batchsched."""

    api_version: Literal["config.batchsched.dev/v1alpha1"] = CONFIG_API_VERSION
    kind: Literal["BatchSchedulerConfiguration"] = CONFIG_KIND
    profiles: tuple[Profile, ...] = Field(
        default=(Profile(),), min_length=1, description="One profile for each scheduler name."
    )
    leader_election: LeaderElection = Field(
        default=LeaderElection(), description="How `run` finds out who schedules."
    )
    client_connection: ClientConnection = Field(
        default=ClientConnection(), description="How `run` reaches the cluster."
    )
    serving: Serving = Field(default=Serving(), description="What `run` shows to operators.")
    sessions_kept: int = Field(
        default=10, ge=0, le=1000, description="How many sessions `run` keeps for download and `replay`."
    )

    @model_validator(mode="after")
    def _scheduler_names_are_unique(self) -> Self:
        names = [profile.scheduler_name for profile in self.profiles]
        if len(set(names)) != len(names):
            raise ValueError("profiles: two of them have one schedulerName; each needs a name of its own")
        return self
