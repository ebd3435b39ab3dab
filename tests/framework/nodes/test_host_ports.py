from batchsched.framework.nodes.host_ports import HostPort, any_conflict, host_ports
from tests.plugins.cluster import pod, with_ports

WEB = HostPort("0.0.0.0", "TCP", 80)


def test_address_and_protocol_have_defaults():
    assert host_ports(with_ports("x", {"hostPort": 80})) == (WEB,)
    assert host_ports(with_ports("x", {})) == ()
    assert host_ports(pod()) == ()


def test_init_containers_hold_ports_only_where_they_go_on_running():
    ports = [{"containerPort": 80, "hostPort": 80}]
    sidecar = {"name": "s", "restartPolicy": "Always", "ports": ports}
    assert host_ports(pod(initContainers=[sidecar])) == (WEB,)
    assert host_ports(pod(initContainers=[{"name": "i", "ports": ports}])) == ()


def test_conflicts():
    here, there = WEB._replace(address="10.0.0.1"), WEB._replace(address="10.0.0.2")
    assert WEB.conflicts(here)
    assert here.conflicts(WEB)
    assert here.conflicts(here)
    assert not here.conflicts(there)
    assert not WEB.conflicts(WEB._replace(protocol="UDP"))
    assert not WEB.conflicts(WEB._replace(number=81))
    assert any_conflict((there, WEB), (here,))
    assert not any_conflict((there,), (here,))
    assert not any_conflict((WEB,), ())
