"""How the running scheduler is reached and reaches others: leader election, the connection, the port for operators.

Names and defaults are those of kube-scheduler's configuration file, and of its flags where the file has none.
"""

from typing import Self

from pydantic import Field, model_validator

from batchsched.config.extenders import Duration, seconds_of
from batchsched.config.plugins import Lenient


class LeaderElection(Lenient):
    """How one of several processes is elected."""

    leader_elect: bool = Field(default=True, description="Wait for the Lease before scheduling.")
    lease_duration: Duration = Field(
        default="15s", description="After so long others take over a Lease that is not renewed."
    )
    renew_deadline: Duration = Field(
        default="10s", description="So long after its last renewal the leader stops to write."
    )
    retry_period: Duration = Field(default="2s", description="The time between two attempts.")
    resource_name: str = Field(default="batchsched", min_length=1, description="The name of the Lease.")
    resource_namespace: str = Field(default="", description="Its namespace; nothing: the one that we run in.")

    @model_validator(mode="after")
    def _periods_fit_into_each_other(self) -> Self:
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
    """How the API server is reached."""

    kubeconfig: str = Field(
        default="",
        description="The file; nothing: KUBECONFIG, the cluster that we run in, or ~/.kube/config.",
    )


class Serving(Lenient):
    """The port on which health, metrics and what is known are served, over TLS."""

    bind_address: str = Field(default="0.0.0.0", description="The address to listen on.")
    secure_port: int = Field(default=10259, ge=0, le=65535, description="The port; 0: none.")
    tls_cert_file: str = Field(
        default="", description="Our certificate, PEM; nothing: we sign one ourselves. A new one is taken up."
    )
    tls_private_key_file: str = Field(default="", description="Its key, PEM.")
    authorization_always_allow_paths: tuple[str, ...] = Field(
        default=("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"),
        description="Paths that everybody may read; * at the end stands for anything.",
    )

    @model_validator(mode="after")
    def _a_certificate_has_its_key(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError("tlsCertFile: expected tlsPrivateKeyFile beside it, and the other way round")
        return self
