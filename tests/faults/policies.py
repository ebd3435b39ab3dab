"""A ValidatingAdmissionPolicy that denies one subresource of one pod."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.objects import Manifest
from tests.controlplane.plane import ApiFault

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
MESSAGE = "denied by a policy of the test"
REQUESTS: dict[str, Manifest] = {
    "binding": {"target": {"kind": "Node", "name": "none"}},
    "eviction": {"apiVersion": "policy/v1", "kind": "Eviction"},
}
"""Requests with which the policy is tried."""


@contextmanager
def policy_denies(namespace: Namespace, subresource: str, pod: str) -> Iterator[None]:
    """Deny the binding or the eviction of an existing pod."""
    name = f"{namespace.name}-{pod}-{subresource}"
    resources = [f"pods/{subresource}"]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.name != '{pod}'", "message": MESSAGE}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}}
    use = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    api = namespace.api
    api.create(POLICIES, {"metadata": {"name": name}, "spec": policy})
    api.create(POLICY_BINDINGS, {"metadata": {"name": name}, "spec": use})
    try:
        eventually(lambda: _is_denied(namespace, subresource, pod))
        yield
    finally:
        api.delete(f"{POLICY_BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")


def _is_denied(namespace: Namespace, subresource: str, pod: str) -> bool:
    request = {"metadata": {"name": pod}, **REQUESTS[subresource]}
    try:
        namespace.api.create(namespace.path("pods", f"{pod}/{subresource}?dryRun=All"), request)
    except ApiFault as fault:
        return MESSAGE.encode() in fault.body
    return False
