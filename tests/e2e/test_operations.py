"""What operators have of a running `batchsched run`: health, metrics, sessions to replay, a new configuration."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from batchsched.cli import run_command
from tests.controlplane.fixtures import eventually
from tests.controlplane.plane import ApiFault, ControlPlane
from tests.e2e.running import group, make
from tests.e2e.serving import WITHIN, Served, bind_a_gang, serving


@pytest.fixture(scope="module")
def served(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A scheduler that serves, alone, for all tests of this module."""
    one = Served(plane, "operated", tmp_path_factory.mktemp("operated") / "batchsched.yaml")
    with serving(one):
        yield one


def reader(plane: ControlPlane, path: str) -> str:
    """Return the token of a ServiceAccount with permission to read one path."""
    name = f"reader-of-{path.strip('/').replace('/', '-')}"
    rule = {"nonResourceURLs": [path], "verbs": ["get"]}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for where, made in (
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}}),
        (f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]}),
        (
            f"{rbac}/clusterrolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
            },
        ),
    ):
        with contextlib.suppress(ApiFault):
            plane.admin.create(where, made)
    return plane.token_of("default", name)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/informer-sync"])
def test_health_needs_no_token(served, path):
    assert served.ask(path, "") == (200, b"ok")


@pytest.mark.parametrize("path", ["/metrics", "/configz", "/debug", "/debug/cache", "/debug/sessions"])
def test_other_paths_need_a_token_with_permission(served, path):
    assert served.ask(path, "")[0] == 403
    assert served.ask(path, "no-such-token")[0] == 401
    assert served.ask(path)[0] == 200


def test_permission_to_read_metrics_opens_no_other_path(served, plane):
    token = reader(plane, "/metrics")
    eventually(lambda: served.ask("/metrics", token)[0] == 200)
    assert served.ask("/debug/sessions", token)[0] == 403


def test_gang_that_is_bound_shows_in_the_metrics(served, namespace):
    namespace.nodes(2)
    before = served.metric("scheduler_schedule_attempts_total", result="scheduled", profile="batchsched")
    bind_a_gang(namespace)
    eventually(
        lambda: (
            served.metric("scheduler_schedule_attempts_total", result="scheduled", profile="batchsched")
            == before + 3
        ),
        WITHIN,
    )
    found = served.metrics
    assert found["scheduler_cache_size", (("type", "nodes"),)] == 2
    assert found["leader_election_master_status", (("name", "batchsched"),)] == 1
    assert any(name == "rest_client_requests_total" for name, _ in found)


def test_pending_gang_and_its_reason_are_in_the_debug_pages_and_metrics(served, namespace):
    namespace.nodes(1)
    group(namespace, "late", 4)
    make(namespace, "late", 2)
    key = f"{namespace.name}/late"

    def waiting() -> dict[str, Any] | None:
        found = served.read("/debug/queue")["batchsched"]
        return next((one for one in found if one["podGroup"] == key and len(one["pods"]) == 2), None)

    assert eventually(lambda: (waiting() or {}).get("refusedBy") == ["NotEnoughPods"], WITHIN)
    assert eventually(lambda: served.metric("scheduler_pending_pods", queue="unschedulable") == 2, WITHIN)
    assert key in served.ask("/debug/cache")[1].decode()


def test_cache_agrees_with_the_api(served, namespace):
    namespace.nodes(2)
    bind_a_gang(namespace)
    assert eventually(
        lambda: served.ask("/debug/cache/drift")[1] == b"the cache agrees with the API\n", WITHIN
    )


def test_downloaded_session_repeats(served, namespace, tmp_path, capfd):
    namespace.nodes(2)
    bind_a_gang(namespace, "kept", 4)
    kept = served.read("/debug/sessions")
    number = max(one["id"] for one in kept if one["podsPlaced"])
    status, content = served.ask(f"/debug/sessions/{number}")
    assert status == 200
    file = tmp_path / "session.json.gz"
    file.write_bytes(content)
    assert run_command(["replay", str(file)]) == 0
    assert "the decision repeats, byte for byte" in capfd.readouterr().out
    assert served.ask("/debug/sessions/999999")[0] == 404


def in_force(served: Served) -> int:
    window: int = served.read("/configz")["config.batchsched.dev"]["profiles"][0]["sessionWindow"]
    return window


def test_changed_configuration_is_taken_up_and_a_bad_one_refused(served, namespace):
    namespace.nodes(2)
    served.configure(sessionWindow=77)
    eventually(lambda: in_force(served) == 77, WITHIN)
    failed = served.metric("batchsched_config_reloads_total", result="failure")
    served.configure(sessionWindow="many")
    eventually(lambda: served.metric("batchsched_config_reloads_total", result="failure") > failed, WITHIN)
    assert in_force(served) == 77
    assert served.metric("batchsched_config_last_reload_successful") == 0
    bind_a_gang(namespace, "after")  # binding continues as before
    served.configure(sessionWindow=500)
    eventually(lambda: served.metric("batchsched_config_last_reload_successful") == 1, WITHIN)
    assert in_force(served) == 500


def test_what_operators_set_changes_without_a_start_and_what_does_not_is_named(served):
    served.sessions_kept = 1
    served.settings |= {"authorizationAlwaysAllowPaths": ["/metrics", "/readyz*"], "bindAddress": "127.0.0.2"}
    served.configure()
    eventually(lambda: served.ask("/metrics", "")[0] == 200, WITHIN)
    eventually(lambda: len(served.read("/debug/sessions")) <= 1, WITHIN)
    said = eventually(
        lambda: [one for one in served.scheduler.said.splitlines() if "at the next start" in one]
    )
    assert said[-1].endswith('"Takes effect at the next start" fields=["serving.bindAddress"]')
    served.sessions_kept = 10
    served.settings.pop("authorizationAlwaysAllowPaths")
    served.settings.pop("bindAddress")
    served.configure()
    eventually(lambda: served.ask("/metrics", "")[0] == 403, WITHIN)


def test_verbosity_changes_only_with_permission_to_write(served, plane, namespace):
    assert (
        served.put("/debug/flags/v", "3", reader(plane, "/debug/flags/v"))[0] == 403
    )  # to read is not to write
    assert served.put("/debug/flags/v", "many") == (400, b"expected a number from 0 to 10, found 'many'\n")
    assert served.put("/debug/flags/v", "3")[0] == 200
    namespace.nodes(1)
    namespace.pod("large", cpu=64)
    eventually(lambda: "Unable to schedule" in served.scheduler.said, WITHIN)
    assert served.put("/debug/flags/v", "1")[0] == 200


def test_other_scheduler_name_needs_a_start(served):
    failed = served.metric("batchsched_config_reloads_total", result="failure")
    served.configure(schedulerName="another")
    eventually(lambda: served.metric("batchsched_config_reloads_total", result="failure") > failed, WITHIN)
    assert "restart to change them" in served.scheduler.log.read_text()
    served.configure()
    eventually(lambda: served.metric("batchsched_config_last_reload_successful") == 1, WITHIN)


def test_sighup_reads_the_configuration_again(served):
    read = served.metric("batchsched_config_reloads_total", result="success")
    os.kill(served.scheduler.pid, signal.SIGHUP)
    eventually(lambda: served.metric("batchsched_config_reloads_total", result="success") > read, WITHIN)
    assert served.scheduler.runs
