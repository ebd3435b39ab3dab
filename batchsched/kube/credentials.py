"""Where the API server is and who we are, as the official client's loaders say it (kubeconfig, in-cluster, exec).

Tokens and certificates are rotated while we run. The loaders know of tokens only, so the files behind a configuration
are watched here, and whoever asks gets what is in them now.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config

from batchsched.errors import UnusableInput

_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


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

    @property
    def namespace(self) -> str:
        """The namespace that we run in, "default" outside a cluster."""
        told = _SERVICE_ACCOUNT / "namespace"
        return told.read_text().strip() if self._in_cluster and told.exists() else "default"

    def load(self, *, anew: bool = False) -> Identity:
        """Return what is valid now; `anew` also asks an exec plugin again (the server said 401).

        Raises:
          UnusableInput: there is no configuration, or it cannot be used.
        """
        try:
            if anew or not self._seen or self._files() != self._seen:
                self._load()
            authorization = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except (config.ConfigException, OSError, ssl.SSLError) as error:
            raise UnusableInput(
                f"no usable Kubernetes configuration: {error}; set KUBECONFIG or --kubeconfig"
            ) from error
        now = self._configuration
        return Identity(
            server=now.host.rstrip("/"),
            authorization=_bearer(authorization) or _basic(now),
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
            path = str(self._kubeconfig) if self._kubeconfig else None
            config.load_kube_config(path, self._context, fresh, persist_config=False)  # type: ignore[no-untyped-call]
        self._configuration = fresh
        self._tls = _tls(fresh) if fresh.host.startswith("https:") else None
        self._seen = self._files()

    def _files(self) -> tuple[tuple[str, float], ...]:
        """Return the files behind the configuration, and when each was written."""
        now = self._configuration
        named: list[Any] = [now.ssl_ca_cert, now.cert_file, now.key_file]
        if self._in_cluster:
            named.append(_SERVICE_ACCOUNT / "token")
        else:
            named += str(
                self._kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube/config"
            ).split(os.pathsep)
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


def _bearer(key: str | None) -> str:
    """Return the header of a token; the loaders write `bearer` and `Bearer` before it, or nothing."""
    if not key:
        return ""
    token = key.split()[-1]
    return f"Bearer {token}"


def _basic(configuration: Any) -> str:
    return str(configuration.get_basic_auth_token() or "") if configuration.username else ""
