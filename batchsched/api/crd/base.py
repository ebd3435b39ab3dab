"""The base of the custom resources: pydantic models with errors that name the invalid field."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from batchsched.api.core.quantity import MILLI, parse_quantity_in_base_units
from batchsched.errors import InvalidQuantity

LARGEST_INT32 = 2**31 - 1
"""Maximum of int32 fields, as in Kubernetes; it also keeps times within the calendar."""
LONGEST_NAME: Final = 253
MOST_RESOURCES: Final = 15
"""Maximum number of resources in one field. The API server limits the cost of validation rules over them."""
GROUP = "scheduling.batchsched.dev"
API_VERSION = f"{GROUP}/v1alpha1"


def remove_schema_default(schema: dict[str, Any]) -> None:
    """Remove the default from the schema of a field, so that the API server does not write it into objects.

    This is for fields with a default that depends on other fields, and for fields that mean more when they are stated.
    """
    del schema["default"]


def without_nulls(value: Any) -> Any:
    """Return a document (dicts and lists) without its null fields, which Kubernetes treats as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value


class StrictModel(BaseModel):
    """The base class of custom resources and settings: immutable values, for which an unknown field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class Condition(StrictModel):
    """A condition in the status of a custom resource."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(max_length=316)
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


Conditions = Annotated[
    tuple[Condition, ...],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


def validation_rule(expression: str, message: str, place: str = "") -> dict[str, str]:
    """Return a CEL rule for the schema of a custom resource, by which the API server validates objects.

    Args:
      expression: a CEL expression that is true for valid objects.
      message: the error message for invalid objects.
      place: path of the field to change, such as `.minMember`.
    """
    return {"rule": expression, "message": message, **({"fieldPath": place} if place else {})}


def validation_rules_schema_extension(*each: dict[str, str]) -> dict[str, Any]:
    """Return CEL validation rules as the extension `x-kubernetes-validations` of a JSON Schema."""
    return {"x-kubernetes-validations": list(each)}


def cel_quantity_expression(amount: str) -> str:
    """Return a CEL expression that converts the integer or string `amount` to a Kubernetes quantity.

    The expression avoids `quantity(string(…))`, because the API server estimates the cost of each conversion by the
    longest possible string.
    """
    return f"(type({amount}) == int ? quantity('0').add(int({amount})) : quantity({amount}))"


class CustomMeta(BaseModel):
    """The metadata of a custom resource. Fields that scheduling does not read are ignored."""

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
    resource_version: str = ""
    generation: int = 0


def _as_text(value: Any) -> Any:
    if isinstance(value, float):
        raise ValueError(f"expected a whole number, or a text such as '{value}', found {value}")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_amounts(amounts: dict[str, str]) -> dict[str, str]:
    for resource, text in amounts.items():
        try:
            amount = parse_quantity_in_base_units(resource, text)
        except InvalidQuantity as error:
            raise ValueError(f"{resource}: {error.message}") from error
        if text.startswith("-"):
            raise ValueError(f"{resource}: {text!r} is negative; expected 0 or more")
        if not _IN_RANGE.fullmatch(text) or (resource == "cpu" and amount > MOST_CPU * MILLI):
            raise ValueError(f"{resource}: {text!r} is more than any cluster has")
    return amounts


MOST_CPU: Final = 10**15
_LARGEST: Final = 10**18 - 1
_DIGITS: Final = {"k": 15, "M": 12, "G": 9, "T": 6, "P": 3}
"""Maximum number of integer digits that fit in 63 bits, by suffix."""
_PATTERN: Final = (
    r"^\+?([0-9]{1,18}(\.[0-9]*)?|\.[0-9]+)[num]?$|"
    + "|".join(
        rf"^\+?([0-9]{{1,{digits}}}(\.[0-9]*)?|\.[0-9]+){suffix}i?$"
        for suffix, digits in {**_DIGITS, "E": 0}.items()
        if digits
    ).replace("ki?", "(k|Ki)")
    + r"|^\+?([0-7](\.[0-9]*)?|\.[0-9]+)Ei?$"
    + r"|^\+?([0-9]{1,3}(\.[0-9]*)?|\.[0-9]+)[eE](-[0-9]{1,3}|\+?(0?[0-9]|1[0-5]))$"
)
_IN_RANGE: Final = re.compile(_PATTERN, re.ASCII)
_QUANTITY: Final = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": _PATTERN,
    "minimum": 0,
    "maximum": _LARGEST,
}
Quantity = Annotated[str, BeforeValidator(_as_text), WithJsonSchema(_QUANTITY)]
Resources = Annotated[
    dict[str, Quantity],
    Field(
        max_length=MOST_RESOURCES,
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
                f"self.all(r, r != 'cpu' || {cel_quantity_expression('self[r]')}"
                f".compareTo(quantity('{MOST_CPU}')) <= 0)",
                "more CPUs than any cluster has",
                ".cpu",
            )
        ),
    ),
    AfterValidator(_check_amounts),
]
"""Non-negative Kubernetes quantities by resource."""
Amounts = dict[str, Annotated[str, BeforeValidator(_as_text)]]
"""Amounts by resource, as the status controller writes them."""


def parse_quantities_in_base_units(resources: dict[str, str] | None) -> dict[str, int]:
    """Convert the Kubernetes quantity of each resource to an integer in base units; return {} for None."""
    return {
        resource: parse_quantity_in_base_units(resource, text) for resource, text in (resources or {}).items()
    }
