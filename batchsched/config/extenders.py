"""Extenders: web services that take part in a decision, in kube-scheduler's words.

Source: Extender of k8s.io/kube-scheduler/config/v1, and ValidateKubeSchedulerConfiguration of kube-scheduler's
apis/config/validation.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from batchsched.api.crd.validation import path
from batchsched.config.plugins import LARGEST_WEIGHT, Lenient

DEFAULT_TIMEOUT: Final = 5.0
_DURATION: Final = re.compile(r"[+-]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(duration: str) -> float:
    """Read a duration as Go writes it, such as `1m30s` or `100ms`, in seconds.

    Raises:
      ValueError: the text is none.
    """
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"expected a duration such as 15s or 1m30s, found {duration!r}")
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", duration)
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -total if duration.startswith("-") else total


def _duration(text: str) -> str:
    seconds_of(text)
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class TlsConfig(Lenient):
    """How an extender is reached over TLS; none of it is written to session files."""

    insecure: bool = Field(default=False, description="Do not check the server's certificate.")
    server_name: str = Field(default="", description="The name that the certificate must have.")
    cert_file: str = Field(default="", description="File with our own certificate, PEM.")
    key_file: str = Field(default="", description="File with its key, PEM.")
    ca_file: str = Field(default="", description="File with the authorities that are trusted, PEM.")
    cert_data: str = Field(default="", description="Our own certificate itself, PEM in base64.")
    key_data: str = Field(default="", repr=False, description="Its key itself, PEM in base64.")
    ca_data: str = Field(default="", description="The authorities themselves, PEM in base64.")


class ManagedResource(Lenient):
    """A resource that an extender looks after."""

    name: str = Field(min_length=1, description="The resource, such as example.com/gpu-share.")
    ignored_by_scheduler: bool = Field(
        default=False, description="NodeResourcesFit and the solver leave the resource to the extender."
    )


class Extender(Lenient):
    """A web service that is asked after the plugins: which nodes it refuses, how it ranks them, and more."""

    url_prefix: str = Field(alias="urlPrefix", min_length=1, description="What stands before each verb.")
    filter_verb: str = Field(default="", description="Asked which nodes fit; nothing: it is not.")
    preempt_verb: str = Field(default="", description="Asked about victims of preemption.")
    prioritize_verb: str = Field(default="", description="Asked for scores from 0 to 10.")
    weight: int = Field(default=0, ge=0, le=LARGEST_WEIGHT, description="Weight of its scores.")
    bind_verb: str = Field(default="", description="Binds the pod in our place; one extender may.")
    enable_https: bool = Field(
        alias="enableHTTPS",
        default=False,
        description="The prefix is https; without authorities the certificate is not checked.",
    )
    # A key is nobody's business but the extender's: no dump has it, so no session file does.
    tls_config: TlsConfig = Field(default=TlsConfig(), exclude=True, description="How TLS is spoken.")
    http_timeout: Duration = Field(
        alias="httpTimeout", default="5s", description="How long an answer may take; 0: 5s."
    )
    node_cache_capable: bool = Field(
        default=False, description="It knows the nodes itself: it is sent names, not objects."
    )
    managed_resources: tuple[ManagedResource, ...] = Field(
        default=(), description="It is asked only about pods that request one of these; none: about all."
    )
    ignorable: bool = Field(default=False, description="Where it fails, go on without it.")

    @model_validator(mode="after")
    def _what_it_does_hangs_together(self) -> Self:
        if self.prioritize_verb and not self.weight:
            raise ValueError("weight: expected 1 or more beside prioritizeVerb, found 0")
        names = [one.name for one in self.managed_resources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"managedResources: {', '.join(twice)} is stated more than once")
        if self.timeout_seconds <= 0:
            raise ValueError(f"httpTimeout: expected 0 or more, found {self.http_timeout}")
        return self

    @property
    def timeout_seconds(self) -> float:
        """How long an answer may take."""
        return seconds_of(self.http_timeout) or DEFAULT_TIMEOUT


def check_one_binds(extenders: Sequence[Extender]) -> None:
    """Refuse several extenders that bind.

    Raises:
      ValueError: there is more than one.
    """
    binding = [at for at, one in enumerate(extenders) if one.bind_verb]
    if len(binding) > 1:
        raise ValueError(
            f"{path(('extenders', binding[1], 'bindVerb'))}: only one extender may bind; take it out of the others"
        )


def ignored_resources(extenders: Sequence[Extender]) -> list[str]:
    """Name the resources that are left to extenders altogether."""
    return [
        resource.name
        for one in extenders
        for resource in one.managed_resources
        if resource.ignored_by_scheduler
    ]
