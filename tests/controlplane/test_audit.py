"""The API server writes down what batchsched asks for, and the tests hear of what it may not do."""

import pytest

from tests.controlplane import audit
from tests.controlplane.audit import Right
from tests.controlplane.fixtures import eventually
from tests.controlplane.installed import service_account
from tests.controlplane.plane import Api, ApiFault

LEASES = "/apis/coordination.k8s.io/v1/namespaces/batchsched-system/leases"


def test_used_and_missing_permissions_are_recorded(own_plane):
    api = Api(own_plane.server, own_plane.certificate, service_account(own_plane))
    with audit.nothing_forbidden(own_plane.home):
        api.get("/api/v1/pods")
    assert audit.used(own_plane.home) == {Right("", "pods", "list")}
    own_plane.admin.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/batchsched-system/roles/batchsched")
    with pytest.raises(AssertionError, match=r"create .*/leases"), audit.nothing_forbidden(own_plane.home):
        eventually(lambda: is_refused(api), 60)


def is_refused(api: Api) -> bool:
    """Tell whether a right is gone; the API server hears of its roles a little later."""
    try:
        api.create(LEASES, {"metadata": {"generateName": "batchsched-"}})
    except ApiFault as fault:
        return fault.status == 403
    return False
