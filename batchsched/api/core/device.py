"""Objects of Dynamic Resource Allocation (`resource.k8s.io`): devices, device classes, and claims to devices.

Drivers publish devices in ResourceSlices. A ResourceClaim requests devices of DeviceClasses, and its status names the
allocated ones. Fields of alpha features that Kubernetes 1.37 disables by default are left out, except those that a
scheduler has to refuse.
"""

from typing import Any, Final

import msgspec

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.selector import NodeSelector

Amount = str | int | float
Amounts = dict[str, Amount]

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of the claim that kube-scheduler creates for the extended resources of a pod."""
DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every DeviceClass serves: this prefix and the name of the class."""
POD_GROUP_API_GROUP: Final = "scheduling.k8s.io"
"""The API group of the PodGroups of Kubernetes."""
MAX_DEVICES_PER_CLAIM: Final = 32
MAX_CONSUMERS_PER_CLAIM: Final = 256
MAX_SUB_REQUESTS: Final = 8


class DeviceAttribute(KubernetesValue, frozen=True, gc=False):
    """An attribute of a device: a value of one of four types."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)

    @property
    def type_and_value(self) -> tuple[str, int | bool | str] | None:
        """The type and value of the device attribute, such as `("int", 8)`; None if the type is unknown."""
        if self.int_value is not None:
            return "int", self.int_value
        if self.bool_value is not None:
            return "bool", self.bool_value
        if self.string_value is not None:
            return "string", self.string_value
        return None if self.version_value is None else ("version", self.version_value)


class CapacityRequestPolicyRange(KubernetesValue, frozen=True, gc=False):
    """The range of amounts of a capacity that a request may consume: minimum, maximum and step."""

    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class CapacityRequestPolicy(KubernetesValue, frozen=True, gc=False):
    """The rules for requests of a device capacity: the default amount, and the amounts that are allowed."""

    default: Amount | None = None
    valid_values: tuple[Amount, ...] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(KubernetesValue, frozen=True, gc=False):
    """A capacity of a device, such as its memory, with the rules for requests that share the device."""

    value: Amount = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(KubernetesValue, frozen=True, gc=False):
    """The amount of a counter in a CounterSet, such as the memory of a GPU that is divided into several devices."""

    value: Amount = 0


class CounterSet(KubernetesValue, frozen=True, gc=False):
    """A set of counters of a ResourceSlice pool, from which the devices of the pool consume amounts."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(KubernetesValue, frozen=True, gc=False):
    """The amounts of a counter set that a device consumes while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: tuple[str, ...] | None = None


class DeviceTaint(KubernetesValue, frozen=True, gc=False):
    """A taint of a device: the device is not allocated for requests that do not tolerate the taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None

    @property
    def prevents_allocation(self) -> bool:
        """True if the effect of the device taint is NoSchedule or NoExecute, so that the taint prevents allocation."""
        return self.effect in ("NoSchedule", "NoExecute")


class DeviceToleration(KubernetesValue, frozen=True, gc=False):
    """A toleration of a device request."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether this toleration tolerates a taint of a device.

        Source: `ToleratesTaint` of k8s.io/dynamic-resource-allocation/resourceclaim.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and self.value == taint.value


class Device(KubernetesValue, frozen=True, gc=False):
    """A device of a ResourceSlice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[DeviceCounterConsumption, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(KubernetesValue, frozen=True, gc=False):
    """The pool of a ResourceSlice: its name, its generation, and the number of slices of this generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a ResourceSlice: devices of one driver, and the nodes from which they are accessible."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None


class ResourceSlice(KubernetesObject, frozen=True, gc=False):
    """Devices that a driver offers on one node or on several nodes."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(KubernetesValue, frozen=True, gc=False):
    """The devices that a DeviceTaintRule taints: all with the given driver, pool and name."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a DeviceTaintRule: a taint, and the devices that get it."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(KubernetesObject, frozen=True, gc=False):
    """A rule of an administrator that adds a taint to devices."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class CELDeviceSelector(KubernetesValue, frozen=True, gc=False):
    """A CEL expression that selects devices."""

    expression: str = ""


class DeviceSelector(KubernetesValue, frozen=True, gc=False):
    """A selector of devices: a condition, as a CEL expression, that a device must meet."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(KubernetesValue, frozen=True, gc=False):
    """Parameters for a driver, which a scheduler copies and does not read."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class DeviceClassConfiguration(KubernetesValue, frozen=True, gc=False):
    """Configuration of all devices that are allocated through a DeviceClass."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a DeviceClass: selectors, configuration, and the extended resource that it serves."""

    selectors: tuple[DeviceSelector, ...] | None = None
    config: tuple[DeviceClassConfiguration, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(KubernetesObject, frozen=True, gc=False):
    """A DeviceClass: a named class of devices, from which ResourceClaims request devices."""

    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(KubernetesValue, frozen=True, gc=False):
    """The minimum amount of each capacity that a device request requires, such as `memory: 10Gi`."""

    requests: Amounts | None = None


class ExactDeviceRequest(KubernetesValue, frozen=True, gc=False):
    """A request for devices of one class: a number of them, or all."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[dict[str, Any], ...] | None = None


class DeviceSubRequest(KubernetesValue, frozen=True, gc=False):
    """One alternative of a device request with `firstAvailable`."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[dict[str, Any], ...] | None = None


class DeviceRequest(KubernetesValue, frozen=True, gc=False):
    """A device request of a ResourceClaim: an exact request, or alternatives in the order of preference."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] | None = None


class DeviceConstraint(KubernetesValue, frozen=True, gc=False):
    """A condition on the devices of several requests: one attribute is equal for all, or distinct for all."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(KubernetesValue, frozen=True, gc=False):
    """Configuration that a ResourceClaim states for the devices of some of its requests."""

    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(KubernetesValue, frozen=True, gc=False):
    """The devices that a ResourceClaim requests."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] | None = None
    config: tuple[DeviceClaimConfiguration, ...] | None = None


class ResourceClaimSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a ResourceClaim."""

    devices: DeviceClaim = DeviceClaim()

    @property
    def device_class_names(self) -> tuple[str, ...]:
        """The DeviceClasses that the requests name, alternatives included."""
        requests = [
            alternative
            for request in self.devices.requests
            for alternative in (request.exactly, *(request.first_available or ()))
        ]
        return tuple(request.device_class_name for request in requests if request is not None)


class DeviceRequestAllocationResult(KubernetesValue, frozen=True, gc=False):
    """A device that is allocated for a request of a ResourceClaim."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: Amounts | None = None


class DeviceAllocationConfiguration(KubernetesValue, frozen=True, gc=False):
    """Configuration of allocated devices that comes from a DeviceClass or from the ResourceClaim."""

    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(KubernetesValue, frozen=True, gc=False):
    """The allocated devices of a ResourceClaim, with their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] | None = None


class AllocationResult(KubernetesValue, frozen=True, gc=False):
    """The allocation of a ResourceClaim: the devices, and the nodes from which they are accessible."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(KubernetesValue, frozen=True, gc=False):
    """A consumer of a ResourceClaim: a pod, or a PodGroup of Kubernetes with pods that use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @property
    def is_pod(self) -> bool:
        """Whether the consumer is a pod."""
        return not self.api_group and self.resource == "pods"

    @property
    def is_pod_group(self) -> bool:
        """Whether the consumer is a PodGroup of Kubernetes."""
        return self.api_group == POD_GROUP_API_GROUP and self.resource == "podgroups"

    def includes_pod(self, uid: str, pod_group: str) -> bool:
        """Return whether the consumer is the pod with this UID, or its PodGroup of Kubernetes, given by name."""
        return self.uid == uid or (pod_group == self.name != "" and self.is_pod_group)


class DeviceCondition(KubernetesValue, frozen=True, gc=False):
    """A condition that a driver reports about an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(KubernetesValue, frozen=True, gc=False):
    """The conditions of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: tuple[DeviceCondition, ...] | None = None

    def has_true_condition(self, condition_type: str) -> bool:
        """Return whether an allocated device has a condition of this type with the status True."""
        return any(one.type == condition_type and one.status == "True" for one in self.conditions or ())


class ResourceClaimStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a ResourceClaim: the allocation, and the pods and PodGroups that use it."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] | None = None
    devices: tuple[AllocatedDeviceStatus, ...] | None = None


class ResourceClaim(KubernetesObject, frozen=True, gc=False):
    """A claim to devices, for one pod or for several pods."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """The `namespace/name` of the ResourceClaim."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def extended_resource_pod_name_and_uid(self) -> tuple[str, str] | None:
        """The name and UID of the pod that owns the claim, if a scheduler created it for extended resources.

        The result is None for all other ResourceClaims.
        """
        if self.metadata.annotation(EXTENDED_RESOURCE_CLAIM) != "true":
            return None
        owner = self.metadata.controller_owner
        return None if owner is None else (owner.name, owner.uid)

    @property
    def owner_pod_group_name_and_uid(self) -> tuple[str, str] | None:
        """The name and UID of the PodGroup of Kubernetes for which the claim was created from a template.

        The result is None for all other ResourceClaims.
        """
        owner = self.metadata.controller_owner
        if owner is None or owner.kind != "PodGroup":
            return None
        is_of_kubernetes = owner.api_version.startswith(f"{POD_GROUP_API_GROUP}/")
        return (owner.name, owner.uid) if is_of_kubernetes else None

    def is_reserved_for(self, uid: str, pod_group: str = "") -> bool:
        """Return whether the ResourceClaim is reserved for a pod, or for the Kubernetes PodGroup of the pod.

        Args:
          uid: the UID of the pod.
          pod_group: the name of the Kubernetes PodGroup of the pod, "" without one. Pods do not state its UID.
        """
        return any(consumer.includes_pod(uid, pod_group) for consumer in self.status.reserved_for or ())


class ContainerExtendedResourceRequest(KubernetesValue, frozen=True, gc=False):
    """An extended resource of one container, and the request in the pod's ResourceClaim that serves it."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


def evaluate_binding_conditions(claim: ResourceClaim) -> bool | None:
    """Return True if all devices of a claim are ready for binding, False if one failed, None while unknown.

    The result depends on the binding conditions and the binding failure conditions of the devices.

    Source: `isClaimReadyForBinding` of kube-scheduler's plugins/dynamicresources.
    """
    if claim.status.allocation is None:
        return None
    states = {(state.driver, state.pool, state.device): state for state in claim.status.devices or ()}
    for device in claim.status.allocation.devices.results:
        if not device.binding_conditions:
            continue
        state = states.get((device.driver, device.pool, device.device))
        if state is None:
            return None
        if any(state.has_true_condition(failure) for failure in device.binding_failure_conditions or ()):
            return False
        if not all(state.has_true_condition(condition) for condition in device.binding_conditions):
            return None
    return True


class ResourceClaimTemplateSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a ResourceClaimTemplate: the spec of each claim that is created from it."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(KubernetesObject, frozen=True, gc=False):
    """A template from which the controller of Kubernetes creates one claim for each pod that names it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()

    @property
    def key(self) -> str:
        """The `namespace/name` of the ResourceClaimTemplate."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"
