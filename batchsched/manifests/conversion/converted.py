"""The result of a conversion, and the reading of fields with a record of those that have no counterpart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from batchsched.api.core.quantity import format_quantity, parse_amount
from batchsched.api.crd.base import API_VERSION
from batchsched.errors import InvalidInput, InvalidQuantity

Manifest = Mapping[str, Any]


@dataclass(slots=True)
class SourceObject:
    """An object of another scheduler that is converted, with the warnings about its fields.

    Args:
      manifest: the object.
      file: the file that contains it.
    """

    manifest: Manifest
    file: str
    warnings: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return str(self.manifest.get("kind", ""))

    @property
    def metadata(self) -> Manifest:
        """The metadata of the object."""
        return as_mapping(self.manifest.get("metadata"))

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.metadata.get("name", ""))

    @property
    def title(self) -> str:
        """The kind and the name of the object, for messages."""
        namespace = self.metadata.get("namespace")
        return f"{self.kind} {f'{namespace}/' if namespace else ''}{self.name}"

    @property
    def spec(self) -> Manifest:
        """The spec of the object."""
        return as_mapping(self.manifest.get("spec"))

    def warn(self, field_name: str, text: str) -> None:
        """Record that a field is not converted, or not exactly."""
        where = f"{self.file}: " if self.file else ""
        self.warnings.append(f"{where}{self.title}: {field_name}: {text}")

    def warn_of_others(self, converted: Iterable[str], remarks: Mapping[str, str]) -> None:
        """Record the fields of the spec that are not converted.

        Args:
          converted: the names of the fields that are.
          remarks: what to do instead, by the name of a field.
        """
        converted_names = frozenset(converted)
        for name, value in self.spec.items():
            if name not in converted_names and value not in (None, {}, [], ""):
                self.warn(f"spec.{name}", remarks.get(name, "batchsched has no counterpart"))

    def amounts(self, field_name: str, amounts: object) -> dict[str, int]:
        """Return quantities by resource as integers in base units.

        Raises:
          InvalidInput: a quantity is invalid.
        """
        return {
            str(resource): self.amount(f"{field_name}.{resource}", str(resource), text)
            for resource, text in as_mapping(amounts).items()
        }

    def amount(self, field_name: str, resource: str, text: object) -> int:
        """Return a quantity as an integer in base units.

        Raises:
          InvalidInput: the quantity is invalid.
        """
        try:
            return parse_amount(resource, str(text))
        except InvalidQuantity as error:
            raise self.invalid(field_name, error.message) from error

    def invalid(self, field_name: str, message: str) -> InvalidInput:
        """Return the exception that names this object and a field of it."""
        return InvalidInput(message, file=self.file, object=self.title, field=field_name)


def as_mapping(value: object) -> Manifest:
    """Return a value of a manifest if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, dict) else {}


def as_mappings(value: object) -> Sequence[Manifest]:
    """Return the mappings in a list of a manifest."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def format_amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts in base units as quantities by resource."""
    return {resource: format_quantity(resource, amounts[resource]) for resource in sorted(amounts)}


_DEFAULTS: Final[Mapping[str, object]] = {"weight": 1.0, "priority": 0}


def new_queue(name: str, **fields: Any) -> dict[str, Any]:
    """Return a Queue of batchsched with these fields of its spec. Empty fields and defaults are left out."""
    spec = {
        key: value
        for key, value in fields.items()
        if value not in (None, {}, "") and _DEFAULTS.get(key) != value
    }
    return new_object("Queue", name, spec)


def new_object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of batchsched."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
