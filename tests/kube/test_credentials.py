"""Credentials from a kubeconfig, a service account or an exec plugin, and their rotation."""

import datetime as dt
import os
import ssl
import stat
import textwrap
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes.config import incluster_config

from batchsched.errors import CommandError
from batchsched.kube import credentials
from batchsched.kube.credentials import CredentialsReader


def kubeconfig(folder, server="http://127.0.0.1:1", name="kubeconfig", **user):
    path = folder / name
    contexts = [{"name": "here", "context": {"cluster": "c", "user": "u"}}]
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
                "contexts": contexts,
            }
        )
    )
    return path


def later(path):
    """A file is newer than it was, however coarse the clock of the file system."""
    os.utime(path, ns=(path.stat().st_mtime_ns + 10**9,) * 2)


def plugin(folder, body):
    path = folder / "plugin"
    path.write_text("#!/bin/sh\n" + textwrap.dedent(body))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}


@pytest.mark.parametrize(
    "user, header",
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "ada", "password": "x y"}, "Basic YWRhOnggeQ=="),
        ({}, ""),
    ],
    ids=["token", "password", "anonymous"],
)
def test_kubeconfig_contains_server_and_identity(tmp_path, user, header):
    found = CredentialsReader(kubeconfig(tmp_path, "http://127.0.0.1:1/", **user)).load_client_config()
    assert (found.server, found.authorization, found.tls) == ("http://127.0.0.1:1", header, None)


def test_missing_kubeconfig_is_named_with_a_remedy(tmp_path):
    with pytest.raises(CommandError, match=r"nowhere.*set KUBECONFIG or --kubeconfig"):
        CredentialsReader(tmp_path / "nowhere").load_client_config()


def test_missing_default_kubeconfig_is_named_with_all_places_that_were_searched(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        CommandError, match=r"KUBECONFIG is not set, there is no file .*/\.kube/config, and .* in a pod;"
    ):
        CredentialsReader().load_client_config()


def test_variable_that_names_a_missing_kubeconfig_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(CommandError, match=r"^KUBECONFIG: there is no file .*nowhere; set KUBECONFIG or"):
        CredentialsReader().load_client_config()


def test_an_unknown_context_is_named(tmp_path):
    with pytest.raises(CommandError, match="elsewhere"):
        CredentialsReader(kubeconfig(tmp_path, token="x"), "elsewhere").load_client_config()


@pytest.mark.parametrize("text", ["a: [", "just text"])
def test_the_namespace_of_a_broken_kubeconfig_is_an_error(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(CommandError, match=r"(?s)no usable .*kubeconfig.*set KUBECONFIG or --kubeconfig"):
        assert CredentialsReader(path).kubectl_namespace


@pytest.mark.parametrize("text", ["", "apiVers", "a: [", "[]"])
def test_a_partially_written_file_is_refused_and_read_again(tmp_path, text):
    path = kubeconfig(tmp_path, token="old")
    ours = CredentialsReader(path)
    ours.load_client_config()
    path.write_text(text)
    later(path)
    with pytest.raises(CommandError):
        ours.load_client_config()
    kubeconfig(tmp_path, token="new")
    later(path)
    assert ours.load_client_config().authorization == "Bearer new"


def test_variable_names_the_kubeconfig_even_if_it_is_set_late(tmp_path, monkeypatch):
    first, second = kubeconfig(tmp_path, token="first"), tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (first, second))))
    assert CredentialsReader().load_client_config().authorization == "Bearer first"


def test_changed_token_file_is_read_again(tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")
    ours = CredentialsReader(kubeconfig(tmp_path, tokenFile="token"))
    assert ours.load_client_config().authorization == "Bearer old"
    token.write_text("new\n")
    later(token)
    assert ours.load_client_config().authorization == "Bearer new"


def test_in_a_cluster_the_service_account_is_used_and_its_token_is_read_again(tmp_path, monkeypatch):
    _, certificate = authority()
    (tmp_path / "ca.crt").write_bytes(pem(certificate))
    token = tmp_path / "token"
    token.write_text("old")
    (tmp_path / "namespace").write_text("batch\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(credentials, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    ours = CredentialsReader()
    found = ours.load_client_config()
    assert (found.server, found.authorization) == ("https://10.0.0.1:443", "Bearer old")
    assert found.tls is not None
    assert ours.own_pod_namespace == "batch"
    token.write_text("new")
    later(token)
    assert ours.load_client_config().authorization == "Bearer new"


def test_exec_plugin_runs_once_and_again_after_a_401(tmp_path):
    answer = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%s"}}'
    )
    asks = plugin(
        tmp_path,
        f"""
        echo . >> {tmp_path}/runs
        printf '{answer}' $(wc -l < {tmp_path}/runs)
        """,
    )
    ours = CredentialsReader(kubeconfig(tmp_path, exec=asks))
    assert [ours.load_client_config().authorization for _ in range(3)] == ["Bearer t1"] * 3
    assert ours.load_client_config(renew=True).authorization == "Bearer t2"
    assert ours.load_client_config().authorization == "Bearer t2"


def test_failed_exec_plugin_is_an_error(tmp_path):
    ours = CredentialsReader(kubeconfig(tmp_path, exec=plugin(tmp_path, "exit 1\n")))
    with pytest.raises(CommandError, match="exec plugin"):
        ours.load_client_config()


def test_rotated_client_certificate_is_loaded_with_its_key(tmp_path):
    key, certificate = authority()
    paths = {"client-certificate": tmp_path / "crt", "client-key": tmp_path / "key"}
    paths["client-certificate"].write_bytes(pem(certificate))
    paths["client-key"].write_bytes(key_pem(key))
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", **{name: str(path) for name, path in paths.items()})
    ours = CredentialsReader(config)
    first = ours.load_client_config().tls
    assert isinstance(first, ssl.SSLContext)
    assert ours.load_client_config().tls is first
    key, certificate = authority()
    paths["client-certificate"].write_bytes(pem(certificate))
    later(paths["client-certificate"])
    with pytest.raises(CommandError):
        ours.load_client_config()
    paths["client-key"].write_bytes(key_pem(key))
    later(paths["client-key"])
    assert ours.load_client_config().tls not in (None, first)


def authority():
    """A key, and a certificate that it signed for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    begins = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begins).not_valid_after(begins + dt.timedelta(days=36500))
    return key, builder.sign(key, hashes.SHA256())


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key):
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*encodings, serialization.NoEncryption())


def test_no_file_is_written_next_to_the_kubeconfig(tmp_path):
    CredentialsReader(kubeconfig(tmp_path, token="x")).load_client_config()
    assert [path.name for path in Path(tmp_path).iterdir()] == ["kubeconfig"]
