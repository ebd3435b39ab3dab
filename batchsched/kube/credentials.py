"""Where the API server is and who we are, as the official client's loaders say it (kubeconfig, in-cluster, exec).

Tokens and certificates are rotated while we run. The loaders know of tokens only, so the files behind a configuration
are watched here, and whoever asks gets what is in them now.
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

from batchsched.errors import UnusableInput

_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNUSABLE: Final = (
    *(config.ConfigException, OSError, yaml.YAMLError),
    # What the loaders make of a file that is half written.
    *(AttributeError, KeyError, TypeError, ValueError),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request needs.

    Args:
      server: the URL of the API server, without a slash at its end.
      authorization: the header's value, "" for none (a client certificate speaks for itself).
      tls: how the server is trusted and what we show it; None: plain HTTP.
      server_name: the name that the server's certificate must have, None: its host's.
      proxy: the URL of a proxy, None for none.
    """

    server: str
    authorization: str
    tls: ssl.SSLContext | None
    server_name: str | None = None
    proxy: str | None = None


class Credentials:
    """Loads a configuration, and loads it again when its files changed. All of it blocks: call it in a thread.

    Args:
      kubeconfig: a file; None: `KUBECONFIG`, else in-cluster where we run in one, else `~/.kube/config`.
      context: a context of it; None: its current one.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = client.Configuration()
        self._seen: tuple[tuple[str, float], ...] = ()
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    @property
    def namespace(self) -> str:
        """The namespace that we run in, "default" outside a cluster."""
        told = _SERVICE_ACCOUNT / "namespace"
        return told.read_text().strip() if self._in_cluster and told.exists() else "default"

    @property
    def preferred_namespace(self) -> str:
        """The namespace of the context, or that we run in: the one that `kubectl` would take.

        Raises:
          UnusableInput: the configuration cannot be used.
        """
        if self._in_cluster:
            return self.namespace
        try:
            context = self._chosen(self._stated())
        except _UNUSABLE as error:
            raise self._unusable(error) from error
        return str(context.get("namespace") or "default")

    def load(self, *, anew: bool = False) -> Identity:
        """Return what is valid now; `anew` also asks an exec plugin again (the server said 401).

        Raises:
          UnusableInput: there is no configuration, or it cannot be used.
        """
        with self._lock:
            try:
                if anew or not self._seen or self._files(self._configuration) != self._seen:
                    self._load()
                # The loaders ask an exec plugin again here, when its token has expired.
                key = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            except _UNUSABLE as error:
                raise self._unusable(error) from error
            return self._identity(key)

    def _unusable(self, error: Exception) -> UnusableInput:
        where = "in-cluster" if self._in_cluster else os.pathsep.join(map(str, self._paths()))
        return UnusableInput(
            f"no usable Kubernetes configuration ({where}): {error}; set KUBECONFIG or --kubeconfig"
        )

    def _identity(self, key: str | None) -> Identity:
        now = self._configuration
        if not key and not now.cert_file and any("exec" in user for _, user in self._users()):
            # The loaders log why; nobody wants to go on as system:anonymous.
            raise UnusableInput("the exec plugin of the kubeconfig gave no credentials")
        return Identity(
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
        # Together, or not at all: a certificate may be there whose key is not yet.
        self._configuration, self._tls, self._seen = fresh, tls, self._files(fresh)

    def _paths(self) -> list[Path]:
        """Return the kubeconfigs, the first of which counts most."""
        told = str(self._kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        return [Path(part).expanduser() for part in told.split(os.pathsep) if part]

    def _users(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Yield what the kubeconfigs say of the user of the context, and where it is said."""
        if self._in_cluster:
            return
        found = self._stated()
        name = self._chosen(found).get("user")
        for path, file in found:
            for user in file.get("users") or ():
                if name is not None and user["name"] == name:
                    yield path, user.get("user") or {}

    def _stated(self) -> list[tuple[Path, Mapping[str, Any]]]:
        return [(path, yaml.safe_load(path.read_text()) or {}) for path in self._paths() if path.exists()]

    def _chosen(self, found: list[tuple[Path, Mapping[str, Any]]]) -> Mapping[str, Any]:
        """Return the context, {} where there is none."""
        wanted = self._context or next(
            (one["current-context"] for _, one in found if one.get("current-context")), ""
        )
        contexts = [one for _, file in found for one in file.get("contexts") or () if one["name"] == wanted]
        return (contexts[0].get("context") or {}) if contexts else {}

    def _files(self, now: client.Configuration) -> tuple[tuple[str, float], ...]:
        """Return the files behind a configuration, and when each was written."""
        named: list[Any] = [now.ssl_ca_cert, now.cert_file, now.key_file]
        if self._in_cluster:
            named.append(_SERVICE_ACCOUNT / "token")
        else:
            named += self._paths()
            # A relative path is meant from the file that states it.
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
    """Return the header of a key: the loaders write `bearer`, `Bearer` or `Basic` before it, or nothing."""
    scheme, _, rest = (key or "").strip().partition(" ")
    return f"{scheme.capitalize()} {rest}" if rest else scheme and f"Bearer {scheme}"
