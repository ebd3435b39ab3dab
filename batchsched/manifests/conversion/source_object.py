"""Reads the fields of objects of other schedulers, and records warnings for fields without counterpart."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from batchsched.api.core.quantity import format_quantity, parse_quantity_in_base_units
from batchsched.api.crd.base import API_VERSION, LARGEST_INT32
from batchsched.api.crd.validation import similar_name_hint
from batchsched.errors import InvalidInput, InvalidQuantity

Manifest = Mapping[str, Any]
_MAX_SHOWN_CHARACTERS: Final = 42
_MOST_SHOWN_BITS: Final = 128
_MAX_NUMBER: Final = 2**63


@dataclass(slots=True)
class SourceObject:
    """An object of another scheduler that is being converted, with the warnings about its fields.

    Args:
      manifest: the object.
      file: the file that contains it.
    """

    manifest: Manifest
    file: str
    warnings: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The kind of the source object."""
        return str(self.manifest.get("kind", ""))

    @property
    def metadata(self) -> Manifest:
        """The metadata of the source object."""
        return mapping_or_empty(self.manifest.get("metadata"))

    @property
    def name(self) -> str:
        """The name of the source object."""
        return str(self.metadata.get("name", ""))

    @property
    def kind_and_name(self) -> str:
        """The kind and the name of the source object, for messages."""
        namespace = self.metadata.get("namespace")
        return f"{self.kind} {f'{namespace}/' if namespace else ''}{self.name}"

    @property
    def spec(self) -> Manifest:
        """The spec of the source object."""
        return mapping_or_empty(self.manifest.get("spec"))

    def record_warning(self, field_name: str, text: str) -> None:
        """Record a warning that a field of the source object was not converted, or only inexactly."""
        where = f"{self.file}: " if self.file else ""
        self.warnings.append(f"{where}{self.kind_and_name}: {field_name}: {text}")

    def record_unconverted_field_warnings(self, converted: Iterable[str], remarks: Mapping[str, str]) -> None:
        """Record a warning for each field of the source object's spec that is not converted.

        Args:
          converted: the names of the fields that are converted.
          remarks: what to do instead, by the name of a field.
        """
        converted_names = frozenset(converted)
        known_names = converted_names.union(remarks)
        for name, value in self.spec.items():
            if name not in converted_names and value not in (None, {}, [], ""):
                unknown = f"batchsched has no counterpart{similar_name_hint(name, known_names)}"
                self.record_warning(f"spec.{name}", remarks.get(name, unknown))

    def parse_amounts(self, field_name: str, amounts: object) -> dict[str, int]:
        """Parse the quantities in a mapping such as `memory: 4Gi`; return integers in base units by resource.

        Raises:
          InvalidInput: a quantity is invalid.
        """
        return {
            str(resource): self.parse_amount(f"{field_name}.{resource}", str(resource), text)
            for resource, text in mapping_or_empty(amounts).items()
        }

    def parse_amount(self, field_name: str, resource: str, text: object) -> int:
        """Parse the quantity of one resource, such as `500m`; return an integer in base units.

        Raises:
          InvalidInput: the quantity is invalid.
        """
        try:
            return parse_quantity_in_base_units(resource, str(text))
        except InvalidQuantity as error:
            raise self.invalid_field_error(field_name, error.message) from error

    def parse_number(self, field_name: str, value: object, default: float = 0.0) -> float:
        """Parse a numeric field of the source object; return the default if the field is missing.

        Raises:
          InvalidInput: the value is not a number, or is infinite.
        """
        if value is None:
            return default
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or abs(number) > _MAX_NUMBER:
            raise self.invalid_field_error(field_name, f"expected a number, found {_shown(value)}")
        return number

    def parse_integer(self, field_name: str, value: object) -> int:
        """Parse an integer field of the source object; return 0 if the field is missing.

        Raises:
          InvalidInput: the value is not an integer of 32 bits.
        """
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST_INT32:
            raise self.invalid_field_error(
                field_name, f"expected a whole number of 32 bits, found {_shown(value)}"
            )
        return value

    def invalid_field_error(self, field_name: str, message: str) -> InvalidInput:
        """Return an exception about an invalid field, with the file, the source object and the field."""
        return InvalidInput(message, file=self.file, object=self.kind_and_name, field=field_name)


def _shown(value: object) -> str:
    text = (
        "a long number" if isinstance(value, int) and value.bit_length() > _MOST_SHOWN_BITS else repr(value)
    )
    return text[:_MAX_SHOWN_CHARACTERS]


def mapping_or_empty(value: object) -> Manifest:
    """Return a value of a manifest if the value is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, dict) else {}


def mapping_entries_of_list(value: object) -> Sequence[Manifest]:
    """Return those entries of a list that are mappings, or an empty list if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def format_amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Format integer amounts by resource (milli-CPU, bytes) as Kubernetes quantities such as `4Gi`."""
    return {resource: format_quantity(resource, amounts[resource]) for resource in sorted(amounts)}


_DEFAULTS: Final[Mapping[str, object]] = {"weight": 1.0, "priority": 0}


def queue_manifest(name: str, **fields: Any) -> dict[str, Any]:
    """Return the manifest of a batchsched Queue with the given fields in its spec.

    Fields that are empty or equal to the default are left out.
    """
    spec = {
        key: value
        for key, value in fields.items()
        if value not in (None, {}, "") and _DEFAULTS.get(key) != value
    }
    return batchsched_manifest("Queue", name, spec)


def batchsched_manifest(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a custom resource of batchsched with the given kind, name and spec."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
