"""Configuration of scheduler extenders, as in kube-scheduler.

Source: Extender of k8s.io/kube-scheduler/config/v1, and ValidateKubeSchedulerConfiguration of kube-scheduler's
apis/config/validation.
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from batchsched.api.crd.validation import field_path
from batchsched.config.plugins import LARGEST_WEIGHT, NullTolerantModel, check_unique

DEFAULT_TIMEOUT: Final = 5.0
_DURATION: Final = re.compile(r"[+-]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(duration: str) -> float:
    """Parse a duration in Go syntax, such as `1m30s` or `100ms`, and return seconds.

    Raises:
      ValueError: the text is not a duration.
    """
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"expected a duration such as 15s or 1m30s, found {duration!r}")
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", duration)
    total = math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    return -total if duration.startswith("-") else total


def _duration(text: str) -> str:
    parse_duration(text)
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class TlsConfig(NullTolerantModel):
    """TLS settings of a scheduler extender. They are never written to session files."""

    insecure: bool = False
    """Do not verify the server certificate."""
    server_name: str = ""
    """Expected host name in the server certificate."""
    cert_file: str = ""
    """File with the client certificate, PEM."""
    key_file: str = ""
    """File with the key of the client certificate, PEM."""
    ca_file: str = ""
    """File with the trusted certificate authorities, PEM."""
    cert_data: str = ""
    """The client certificate, PEM in base64."""
    key_data: str = Field(default="", repr=False)
    """The key of the client certificate, PEM in base64."""
    ca_data: str = ""
    """The trusted certificate authorities, PEM in base64."""


class ManagedResource(NullTolerantModel):
    """An extended resource that a scheduler extender manages."""

    name: str = Field(min_length=1)
    """Name of the resource, such as example.com/gpu-share."""
    ignored_by_scheduler: bool = False
    """NodeResourcesFit and the solver ignore the resource."""


class Extender(NullTolerantModel):
    """A scheduler extender: a web service that filters or scores nodes, selects victims or binds pods."""

    url_prefix: str = Field(alias="urlPrefix", min_length=1)
    """URL prefix; the verbs are appended to it."""
    filter_verb: str = ""
    """Verb of the filter call. Empty: no filter call."""
    preempt_verb: str = ""
    """Verb of the preemption call. Empty: no preemption call."""
    prioritize_verb: str = ""
    """Verb of the scoring call, which returns scores from 0 to 10. Empty: no scoring call."""
    weight: int = Field(default=0, ge=0, le=LARGEST_WEIGHT)
    """Weight of the extender's scores."""
    bind_verb: str = ""
    """Verb of the bind call, which replaces the Bind plugins. At most one extender may bind."""
    enable_https: bool = Field(alias="enableHTTPS", default=False)
    """Use HTTPS. Without certificate authorities, the certificate is not verified."""
    # Keys are secret: the field is excluded from every dump and so from session files.
    tls_config: TlsConfig = Field(default=TlsConfig(), exclude=True)
    """TLS settings."""
    http_timeout: Duration = Field(alias="httpTimeout", default="5s")
    """Timeout of one call. 0: 5s."""
    node_cache_capable: bool = False
    """The extender caches nodes: calls contain node names instead of Node objects."""
    managed_resources: tuple[ManagedResource, ...] = ()
    """The extender is called only for pods that request one of these resources. Empty: for all pods."""
    ignorable: bool = False
    """If a call fails, continue without the extender."""

    @model_validator(mode="after")
    def _check_fields_agree(self) -> Self:
        if self.prioritize_verb and not self.weight:
            raise ValueError("weight: expected 1 or more because prioritizeVerb is set, found 0")
        check_unique([resource.name for resource in self.managed_resources], "managedResources")
        if self.timeout_seconds <= 0:
            raise ValueError(f"httpTimeout: expected 0 or more, found {self.http_timeout}")
        return self

    @property
    def timeout_seconds(self) -> float:
        """Timeout of one call of the extender in seconds."""
        return parse_duration(self.http_timeout) or DEFAULT_TIMEOUT


def check_single_binder(extenders: Sequence[Extender]) -> None:
    """Check that at most one scheduler extender has a bind verb.

    Raises:
      ValueError: more than one extender has a bind verb.
    """
    binding = [index for index, extender in enumerate(extenders) if extender.bind_verb]
    if len(binding) > 1:
        raise ValueError(
            f"{field_path(('extenders', binding[1], 'bindVerb'))}: only one extender may bind; "
            f"remove bindVerb from the others"
        )


def resources_ignored_by_scheduler(extenders: Sequence[Extender]) -> list[str]:
    """Return the extended resources that only extenders check, because of the field `ignoredByScheduler`.

    The plugin NodeResourcesFit ignores these resources.
    """
    return [
        resource.name
        for extender in extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    ]
