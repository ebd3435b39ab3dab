"""CEL selectors of devices: each expression is compiled once, and evaluated once for each distinct device content.

Most expressions read a few attributes by name. Two devices with the same driver and the same values of these names
have the same result, whatever their other attributes are, such as serial numbers. So a cluster of forty thousand
devices needs a handful of evaluations.

Source: k8s.io/dynamic-resource-allocation/cel, compile.go.
"""

import re
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Final

from batchsched.api.core.device import Device

MAX_COMPILED_EXPRESSIONS: Final = 4096
MAX_RESULTS_PER_EXPRESSION: Final = 100_000
MAX_EXPRESSION_LENGTH: Final = 10 * 1024
"""Maximum length of an expression in bytes, as in Kubernetes (`CELSelectorExpressionMaxLength`)."""

_LITERAL: Final = r"""(?:"[^"\\\n]*"|'[^'\\\n]*')"""
_LOOKUP: Final = re.compile(
    rf"\bdevice\s*\.\s*(attributes|capacity)\s*\[\s*({_LITERAL})\s*\]"
    rf"(\s*(?:\.\s*\??\s*(\w+)\b(?!\s*\()|\[\s*\??\s*({_LITERAL})\s*\]))?"
)
"""An entry of a map of the device, with the name that follows it; a call of a macro is no such name."""
_CONTAINMENT: Final = re.compile(rf"({_LITERAL})\s*in\s*$")
_SIMPLE: Final = re.compile(r"\bdevice\s*\.\s*(?:driver|allowMultipleAllocations)\b")
_DEVICE: Final = re.compile(r"\bdevice\b")

MAX_ITERATIONS: Final = 10_000
"""Iterations of macros after which the CEL library ends an evaluation with an error."""
_MOST_ENTRIES: Final = 64
"""More than a device has attributes, or parts that a text attribute is divided into."""
_EVALUATION_STEPS: Final = 10
_CALL_STEPS: Final = 5
_REGEX_STEPS: Final = 20
_COMPARISONS_PER_STEP: Final = 5
_MAX_DOUBLINGS: Final = 20
"""How often an expression may add a list to itself by `cel.bind`, at most, because of its depth."""
_BYTES_PER_STEP: Final = 10
_TEXT: Final = re.compile(
    r"""[bB]?[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')"""
    r"""|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"|//[^\n]*",
    re.DOTALL,
)
"""A literal text or a comment."""
_DOMAIN_OR_BRACKET: Final = re.compile(
    rf"{_TEXT.pattern}|(\bdevice\s*\.\s*(?:attributes|capacity)\s*\[(?!\s*\?))|[\[\]]", re.DOTALL
)
_RANGE: Final = re.compile(r"\blists\s*\.\s*range\s*\(\s*(\d{1,6})\s*\)")
_ANY_RANGE: Final = re.compile(r"\brange\b")
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter|sortBy|transform\w*)\s*\(")
_PARENTHESIS: Final = re.compile(rf"({_MACRO.pattern})|[()]")
_MACRO_OF_LIST: Final = re.compile(r"(?<![\w\])])\[[^\[\]]*\]" + _MACRO.pattern)
"""A macro over a list that the expression states."""
_CALL: Final = re.compile(r"\w\s*\(")
_REGEX_CALL: Final = re.compile(r"\.\s*find(?:All)?\s*\(")
_COMPARING_CALL: Final = re.compile(r"\bsets\s*\.\s*\w+\s*\(|\.\s*distinct\s*\(")
"""A call that compares all elements of a list with all elements of another list."""


class CelSelectorError(Exception):
    """Raised if a CEL expression cannot be compiled, or if its evaluation for a device fails."""


class CelSelector:
    """A compiled CEL expression that selects devices; it caches the result for devices of equal content.

    Args:
      expression: the text of the expression.

    Raises:
      CelSelectorError: the expression cannot be compiled.
    """

    def __init__(self, expression: str) -> None:
        if len(expression.encode()) > MAX_EXPRESSION_LENGTH:
            raise CelSelectorError(f"the expression is longer than {MAX_EXPRESSION_LENGTH} bytes")
        self.work = estimate_evaluation_work(expression)
        """The estimated work of one evaluation, in steps of a search for devices."""
        self.names = attributes_and_capacities_in_expression(expression)
        """The names of all attributes and capacities that the expression reads; None if they are not known."""
        _check_ranges(expression)
        # The CEL library is loaded for the first expression: most clusters have none, and it takes 15 ms.
        from batchsched.devices.cel_program import CelProgram

        try:
            self._program = CelProgram(_with_empty_unknown_domains(expression))
        except RuntimeError as error:
            raise CelSelectorError(f"CEL compile error: {error}") from error
        self._results: dict[Hashable, bool | str] = {}

    def matches(self, driver: str, device: Device) -> bool:
        """Return whether the CEL expression is true for a device of the given driver.

        Raises:
          CelSelectorError: the evaluation failed, or its result is no boolean.
        """
        key = device_content_key(driver, device, self.names)
        result = self._results.get(key)
        if result is None:
            if len(self._results) >= MAX_RESULTS_PER_EXPRESSION:
                self._results.clear()
            result = self._results[key] = self._program.evaluate(driver, device)
        if isinstance(result, str):
            raise CelSelectorError(result)
        return result


@lru_cache(MAX_COMPILED_EXPRESSIONS)
def compile_selector(expression: str) -> CelSelector:
    """Return the compiled form of a CEL expression.

    Raises:
      CelSelectorError: the expression cannot be compiled.
    """
    return CelSelector(expression)


def estimate_evaluation_work(expression: str) -> int:
    """Return an upper estimate of the cost of evaluating a CEL expression once.

    The unit is a step of the search for devices, which takes about a microsecond.

    The CEL library limits the iterations of macros such as `all`, but not the time, and it does not count the cost. The
    estimate is the work of the text, times the iterations of the macros that are nested.
    """
    text = _TEXT.sub('""', expression)
    iterations = 1
    depth = _macro_depth(text)
    elements = expression.count(",") + 1 + sum(map(int, _RANGE.findall(text)))
    if "split" in text:
        elements = max(elements, len(expression))
    if depth:
        width = elements
        if len(_MACRO_OF_LIST.findall(text)) < len(_MACRO.findall(text)):
            width = max(width, _MOST_ENTRIES)
        iterations = MAX_ITERATIONS if "bind" in text else min(MAX_ITERATIONS, width**depth)
    work = _EVALUATION_STEPS + len(expression) // _BYTES_PER_STEP + _CALL_STEPS * len(_CALL.findall(text))
    work += _REGEX_STEPS * len(_REGEX_CALL.findall(text))
    if "+" in text:
        elements *= 2 ** min(text.count("bind"), _MAX_DOUBLINGS)
    work += len(_COMPARING_CALL.findall(text)) * elements**2 // _COMPARISONS_PER_STEP
    return work * iterations


def _macro_depth(text: str) -> int:
    """Return how deeply macros with iterations are nested in an expression without its literal texts."""
    if '"' in text.replace('""', "") or "'" in text or text.count("(") != text.count(")"):
        return len(_MACRO.findall(text))  # not understood
    depths = [0]
    deepest = 0
    for match in _PARENTHESIS.finditer(text):
        if match.group() == ")":
            depths.pop()
            if not depths:
                return len(_MACRO.findall(text))
        else:
            depths.append(depths[-1] + bool(match.group(1)))
            deepest = max(deepest, depths[-1])
    return deepest


def attributes_and_capacities_in_expression(expression: str) -> frozenset[str] | None:
    """Return the names (without domains) of the device attributes and capacities that a CEL expression reads.

    Return None if it uses `device` in any other way than by such names: then its result may depend on everything.
    """
    names: set[str] = set()
    recognized = {match.start() for match in _SIMPLE.finditer(expression)}
    for match in _LOOKUP.finditer(expression):
        containment = _CONTAINMENT.search(expression[: match.start()])
        name = match.group(4) or (match.group(5) or "")[1:-1]
        if not name and containment is not None:
            name = containment.group(1)[1:-1]
        if name:
            names.add(name)
            recognized.add(match.start())
    if any(match.start() not in recognized for match in _DEVICE.finditer(expression)):
        return None
    return frozenset(names)


def device_content_key(driver: str, device: Device, names: Iterable[str] | None) -> Hashable:
    """Return a key that is equal for devices with equal values of the given attributes and capacities.

    Args:
      driver: the driver of the device.
      device: the device.
      names: names of attributes and capacities without their domains; None for all.
    """
    attributes, capacity = device.attributes or {}, device.capacity or {}
    selected_names = None if names is None else frozenset(names)
    return (
        driver,
        device.allow_multiple_allocations or False,
        tuple(
            (name, attributes[name].type_and_value)
            for name in sorted(attributes)
            if _is_wanted(name, selected_names)
        ),
        tuple((name, capacity[name].value) for name in sorted(capacity) if _is_wanted(name, selected_names)),
    )


def _is_wanted(name: str, selected_names: frozenset[str] | None) -> bool:
    return selected_names is None or name.rpartition("/")[2] in selected_names


def _with_empty_unknown_domains(expression: str) -> str:
    """Return an expression in which an unknown domain of the device is an empty map, as in Kubernetes.

    In Kubernetes, `device.attributes["unknown"]` is an empty map, but `"unknown" in device.attributes` is false. In the
    result, each such entry is optional: `dyn(device.attributes[?"unknown"].orValue({}))`, of any type as before.
    """
    opened: list[bool] = []

    def make_domain_optional(match: re.Match[str]) -> str:
        token = match.group()
        if match.group(1):
            opened.append(True)
            return f"dyn({token}?"
        if token == "[":
            opened.append(False)
        elif token == "]" and opened and opened.pop():
            return "].orValue({}))"
        return token

    return _DOMAIN_OR_BRACKET.sub(make_domain_optional, expression)


def _check_ranges(expression: str) -> None:
    """Check that an expression states the length of each `lists.range`, and that no such list is too long.

    Raises:
      CelSelectorError: a list is too long, or its length is not a number in the text.
    """
    if "lists" not in expression:
        return
    lengths = [int(length) for length in _RANGE.findall(expression)]
    if len(lengths) < len(_ANY_RANGE.findall(expression)) or max(lengths, default=0) > MAX_ITERATIONS:
        raise CelSelectorError(
            f"lists.range: expected a number of at most {MAX_ITERATIONS:,} as its argument"
        )
