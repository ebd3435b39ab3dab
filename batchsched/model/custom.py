"""The base of the custom resources: pydantic models that name what they refuse."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from batchsched.errors import InvalidQuantity
from batchsched.model.quantity import base_units

LARGEST_INT32 = 2**31 - 1
"""The largest number that Kubernetes' own fields of this kind hold; seconds, too, stay inside the calendar."""
GROUP = "scheduling.batchsched.dev"
API_VERSION = f"{GROUP}/v1alpha1"


class Part(BaseModel):
    """A part of a custom resource: frozen, camelCase outside, unknown fields refused by name."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class CustomMeta(BaseModel):
    """Metadata of a custom resource; what scheduling does not read is passed over."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )

    name: str = Field(min_length=1, max_length=253)
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: int = 0


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _not_negative(amounts: dict[str, str]) -> dict[str, str]:
    for resource, text in amounts.items():
        try:
            amount = base_units(resource, text)
        except InvalidQuantity as error:
            raise ValueError(f"{resource}: {error.message}") from error
        if amount < 0:
            raise ValueError(f"{resource}: {text!r} is negative; expected 0 or more")
    return amounts


Quantity = Annotated[str, BeforeValidator(_as_text)]
Resources = Annotated[dict[str, Quantity], AfterValidator(_not_negative)]
"""Amounts by resource, as Kubernetes quantities that are not negative."""


def in_base_units(resources: dict[str, str] | None) -> dict[str, int]:
    """Return amounts in base units; nothing for None."""
    return {resource: base_units(resource, text) for resource, text in (resources or {}).items()}
