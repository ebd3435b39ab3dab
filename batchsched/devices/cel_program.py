"""The programs of CEL expressions that select devices: compiled by the CEL library, evaluated for one device.

Source: k8s.io/dynamic-resource-allocation/cel, compile.go.
"""

from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from batchsched.api.core.device import Device
from batchsched.devices.cel_functions import KUBERNETES_FUNCTIONS, to_cel_quantity, to_cel_version
from batchsched.errors import InvalidInput


class CelProgram:
    """A compiled CEL expression with the variable `device`.

    Args:
      expression: the text of the expression.

    Raises:
      RuntimeError: the expression cannot be compiled.
    """

    def __init__(self, expression: str) -> None:
        self._program = _environment().compile(expression)

    def evaluate(self, driver: str, device: Device) -> bool | str:
        """Return the result for a device of the given driver; a text is the error of an evaluation that failed."""
        try:
            variables = device_cel_variable(driver, device)
        except (ValueError, InvalidInput) as error:
            return f"CEL runtime error: {error}"
        try:
            value = self._program.eval(data={"device": variables})
        except RuntimeError as error:  # the limit on iterations
            return f"CEL runtime error: {error}"
        if value.type() == cel.Type.BOOL:
            return bool(value.value())
        problem = value.value() if value.type() == cel.Type.ERROR else "the result is no boolean"
        return f"CEL runtime error: {problem}"


def device_cel_variable(driver: str, device: Device) -> dict[str, Any]:
    """Return the attributes and capacities of a device as the value of the variable `device` in CEL.

    Raises:
      ValueError: an attribute has an invalid version, or a value of an unknown type.
      InvalidQuantity: a capacity is no quantity.
    """
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in (device.attributes or {}).items():
        domain, _, own_name = name.rpartition("/")
        typed = attribute.type_and_value
        if typed is None:
            raise ValueError(f"attribute {name}: unsupported attribute value")
        value = to_cel_version(str(typed[1])) if typed[0] == "version" else typed[1]
        attributes.setdefault(domain or driver, {})[own_name] = value
    capacity: dict[str, dict[str, Any]] = {}
    for name, offered in (device.capacity or {}).items():
        domain, _, own_name = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[own_name] = to_cel_quantity(offered.value)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations or False,
        "attributes": attributes,
        "capacity": capacity,
    }


@lru_cache(1)
def _environment() -> Any:
    """Return the environment of all expressions.

    The extensions of Kubernetes without a class in the CEL library are named in a configuration. Functions of the same
    name are merged only if they are declared by a later extension.
    """
    kinds = cel.Type
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(
            "name: devices\nextensions: [{name: sets}, {name: lists}, {name: two-var-comprehensions}]"
        ),
        variables={"device": kinds.Map(kinds.STRING, kinds.DYN)},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_math.ExtMath(),
            cel.CelExtension("kubernetes", list(KUBERNETES_FUNCTIONS)),
        ],
    )
