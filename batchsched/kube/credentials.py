"""Reads the address of the API server and the credentials, by the loaders of the official Kubernetes client.

Sources are a kubeconfig, the service account of a pod, and exec plugins. Tokens and certificates are rotated while the
process runs. The loaders reload tokens only, so this module checks the files for changes before each use.
"""

import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes import client, config

from batchsched.errors import CommandError

_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNUSABLE: Final = (
    *(config.ConfigException, OSError, yaml.YAMLError),
    # The loaders raise these for an incomplete file.
    *(AttributeError, KeyError, TypeError, ValueError),
)

_REMEDY: Final = "set KUBECONFIG or --kubeconfig"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The URL of the API server, with the credentials and TLS settings of requests to it.

    Args:
      server: the URL of the API server, without a slash at its end.
      authorization: the value of the header, "" for none, as with a client certificate.
      tls: the trusted authorities and the client certificate; None: plain HTTP.
      server_name: the name that the certificate of the server must have; None: its host name.
      proxy: the URL of a proxy, None for none.
    """

    server: str
    authorization: str
    tls: ssl.SSLContext | None
    server_name: str | None = None
    proxy: str | None = None


class CredentialsReader:
    """A reader of the API server's address and credentials, which reads their files again after a change.

    The sources are a kubeconfig or the service account of a pod. All methods block: call them in a thread.

    Args:
      kubeconfig: a file; None: `KUBECONFIG`, or the service account inside a pod, or `~/.kube/config`.
      context: a context of the kubeconfig; None: its current context.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = client.Configuration()
        self._seen: tuple[tuple[str, float], ...] = ()
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    @property
    def own_pod_namespace(self) -> str:
        """The namespace of the pod in which this process runs, "default" outside a cluster."""
        file = _SERVICE_ACCOUNT / "namespace"
        return file.read_text().strip() if self._in_cluster and file.exists() else "default"

    @property
    def kubectl_namespace(self) -> str:
        """The namespace that `kubectl` would use: that of the kubeconfig context, or of this pod.

        Raises:
          CommandError: the configuration cannot be used.
        """
        if self._in_cluster:
            return self.own_pod_namespace
        try:
            context = self._chosen(self._parsed_files())
        except _UNUSABLE as error:
            raise self._unusable(error) from error
        return str(context.get("namespace") or "default")

    def load_client_config(self, *, renew: bool = False) -> ClientConfig:
        """Return the current URL and credentials of the API server. With `renew`, an exec plugin runs again.

        Raises:
          CommandError: there is no configuration, or it cannot be used.
        """
        with self._lock:
            try:
                if renew or not self._seen or self._files(self._configuration) != self._seen:
                    self._load()
                # Here the loaders run an exec plugin again if its token has expired.
                key = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            except _UNUSABLE as error:
                raise self._unusable(error) from error
            return self._identity(key)

    def _unusable(self, error: Exception) -> CommandError:
        if not self._in_cluster and not any(path.exists() for path in self._paths()):
            return CommandError(f"{self._missing_files()}; {_REMEDY}")
        where = "in-cluster" if self._in_cluster else os.pathsep.join(map(str, self._paths()))
        return CommandError(
            f"no usable Kubernetes configuration ({where}): {str(error).rstrip('.')}; {_REMEDY}"
        )

    def _missing_files(self) -> str:
        """Return which kubeconfig was looked for, and why."""
        paths = ", ".join(map(str, self._paths()))
        if self._kubeconfig is not None:
            return f"--kubeconfig: there is no file {paths}"
        if os.environ.get("KUBECONFIG"):
            return f"KUBECONFIG: there is no file {paths}"
        reasons = f"KUBECONFIG is not set, there is no file {paths}, and the command does not run in a pod"
        return f"no cluster is configured: {reasons}"

    def _identity(self, key: str | None) -> ClientConfig:
        now = self._configuration
        if not key and not now.cert_file and any("exec" in user for _, user in self._users()):
            # The loaders log the reason. Without this check requests would be sent as system:anonymous.
            raise CommandError("the exec plugin of the kubeconfig returned no credentials")
        return ClientConfig(
            server=now.host.rstrip("/"),
            authorization=_header(key),
            tls=self._tls,
            server_name=now.tls_server_name or None,
            proxy=now.proxy or None,
        )

    @property
    def _in_cluster(self) -> bool:
        return self._kubeconfig is None and "KUBECONFIG" not in os.environ and _IN_CLUSTER in os.environ

    def _load(self) -> None:
        fresh = client.Configuration()
        if self._in_cluster:
            config.load_incluster_config(fresh)  # type: ignore[no-untyped-call]
        else:
            path = os.pathsep.join(map(str, self._paths()))
            config.load_kube_config(path, self._context, fresh, persist_config=False)  # type: ignore[no-untyped-call]
        tls = _tls(fresh) if fresh.host.startswith("https:") else None
        # Assigned together: a new certificate may exist before its key does.
        self._configuration, self._tls, self._seen = fresh, tls, self._files(fresh)

    def _paths(self) -> list[Path]:
        """Return the kubeconfig files. Earlier files take precedence."""
        names = str(self._kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        return [Path(part).expanduser() for part in names.split(os.pathsep) if part]

    def _users(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Yield the entries of the context's user, each with the kubeconfig that contains it."""
        if self._in_cluster:
            return
        files = self._parsed_files()
        name = self._chosen(files).get("user")
        for path, file in files:
            for user in file.get("users") or ():
                if name is not None and user["name"] == name:
                    yield path, user.get("user") or {}

    def _parsed_files(self) -> list[tuple[Path, Mapping[str, Any]]]:
        return [(path, yaml.safe_load(path.read_text()) or {}) for path in self._paths() if path.exists()]

    def _chosen(self, files: list[tuple[Path, Mapping[str, Any]]]) -> Mapping[str, Any]:
        """Return the context, {} if it does not exist."""
        name = self._context or next(
            (file["current-context"] for _, file in files if file.get("current-context")), ""
        )
        contexts = [
            entry for _, file in files for entry in file.get("contexts") or () if entry["name"] == name
        ]
        return (contexts[0].get("context") or {}) if contexts else {}

    def _files(self, now: client.Configuration) -> tuple[tuple[str, float], ...]:
        """Return the files of a configuration with their modification times."""
        named: list[Any] = [now.ssl_ca_cert, now.cert_file, now.key_file]
        if self._in_cluster:
            named.append(_SERVICE_ACCOUNT / "token")
        else:
            named += self._paths()
            # A relative path is relative to the kubeconfig that contains it.
            named += [
                path.parent / user["tokenFile"] for path, user in self._users() if user.get("tokenFile")
            ]
        paths = [Path(one) for one in named if one]
        return tuple((str(path), path.stat().st_mtime) for path in paths if path.exists())


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    return context


def _header(key: str | None) -> str:
    """Return the header for a key. The loaders prefix a key with `bearer`, `Bearer`, `Basic` or nothing."""
    scheme, _, rest = (key or "").strip().partition(" ")
    return f"{scheme.capitalize()} {rest}" if rest else scheme and f"Bearer {scheme}"
