"""Configuration of the running scheduler: leader election, the connection to the API server, the HTTPS server.

Names and defaults are those of kube-scheduler's configuration file, or of its flags if the file has no such field.
"""

from typing import Self

from pydantic import Field, model_validator

from batchsched.config.extenders import Duration, seconds_of
from batchsched.config.plugins import Lenient


class LeaderElection(Lenient):
    """Leader election among replicas."""

    leader_elect: bool = Field(default=True, description="Acquire the Lease before scheduling.")
    lease_duration: Duration = Field(
        default="15s",
        description="Time after which another replica may take over a Lease that was not renewed.",
    )
    renew_deadline: Duration = Field(
        default="10s",
        description="Time after the last renewal at which the leader stops writing to the API server.",
    )
    retry_period: Duration = Field(
        default="2s", description="Time between two attempts to acquire or renew the Lease."
    )
    resource_name: str = Field(default="batchsched", min_length=1, description="Name of the Lease.")
    resource_namespace: str = Field(
        default="", description="Namespace of the Lease. Default: the namespace of the scheduler's pod."
    )

    @model_validator(mode="after")
    def _check_periods(self) -> Self:
        if not self.leader_elect:
            return self
        if seconds_of(self.lease_duration) <= seconds_of(self.renew_deadline):
            raise ValueError(f"leaseDuration: expected more than renewDeadline, found {self.lease_duration}")
        if seconds_of(self.renew_deadline) <= seconds_of(self.retry_period):
            raise ValueError(f"renewDeadline: expected more than retryPeriod, found {self.renew_deadline}")
        if seconds_of(self.retry_period) <= 0:
            raise ValueError(f"retryPeriod: expected more than 0, found {self.retry_period}")
        return self


class ClientConnection(Lenient):
    """Connection to the API server."""

    kubeconfig: str = Field(
        default="",
        description="Path of the kubeconfig. Default: KUBECONFIG, the in-cluster configuration, or ~/.kube/config.",
    )


class Serving(Lenient):
    """The HTTPS server for health, metrics, the status page and debugging."""

    bind_address: str = Field(default="0.0.0.0", description="Address to listen on.")
    secure_port: int = Field(
        default=10259, ge=0, le=65535, description="Port of the HTTPS server. 0: no server."
    )
    tls_cert_file: str = Field(
        default="",
        description="File with the server certificate, PEM. Default: a self-signed certificate. The file is read "
        "again "
        "when it changes.",
    )
    tls_private_key_file: str = Field(
        default="", description="File with the key of the server certificate, PEM."
    )
    authorization_always_allow_paths: tuple[str, ...] = Field(
        default=("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"),
        description="Paths that are served without authorization. A * at the end matches any suffix.",
    )

    @model_validator(mode="after")
    def _check_certificate_and_key(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError("tlsCertFile and tlsPrivateKeyFile: expected both or none")
        return self
