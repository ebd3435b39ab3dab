r"""Parses and renders the templates of `-o jsonpath=TEMPLATE`, in the dialect of kubectl.

A template is text with expressions in braces: `{.items[*].metadata.name}`, `{..node}`, `{.labels['app']}`, slices such
as `[0:2]`, `{.refusals[?(@.reason=="QueueLimit")].podGroup}`, or `{range .refusals[*]}{.podGroup}{"\n"}{end}`. Values
of one expression are separated by spaces; a missing field gives nothing.

Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.errors import InvalidInput

Selector = Callable[[Any], Iterator[Any]]
"""Returns the values to which one step of a path leads from a value."""

_SEGMENT: Final = re.compile(r"""\{((?:"[^"]*"|'[^']*'|[^{}"'])*)\}""")
_STEP: Final = re.compile(
    r"""\.\.(?P<deep>\*|[\w/-]+)
    |\.?\[\?\((?P<filter>.*?)\)\]
    |\.?\[(?P<items>(?:'[^']*'|"[^"]*"|[^\]'"])+)\]
    |\.(?P<field>\*|(?:\\.|[\w/-])+)
    """,
    re.VERBOSE,
)
_FILTER: Final = re.compile(r"\s*(@[^=!<>]*?)\s*(?:(==|!=|<=|>=|<|>)\s*(.+?)\s*)?")
_SLICE: Final = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+))?")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class TemplatePart:
    """An expression in a JSONPath template: a path such as `{.metadata.name}`, or `{range}` with its content.

    Args:
      path: the steps of the path.
      repeated: the parts between `{range}` and `{end}`, printed once for each value of the path; None for a path.
    """

    path: tuple[Selector, ...]
    repeated: "tuple[str | TemplatePart, ...] | None" = None

    def render(self, value: Any) -> str:
        """Return the text that this expression prints if its path is followed from `value`."""
        values = follow_path(self.path, value)
        if self.repeated is None:
            return " ".join(_text(found) for found in values)
        return "".join(_print_parts(self.repeated, found) for found in values)


@dataclass(frozen=True, slots=True)
class JsonPathTemplate:
    """A parsed JSONPath template: its plain texts and its expressions, in order."""

    parts: tuple[str | TemplatePart, ...]

    def render(self, data: Any) -> str:
        """Return the text that the template prints for the given data (plain Python values)."""
        return _print_parts(self.parts, data)


def parse_jsonpath(template: str) -> JsonPathTemplate:
    """Parse a JSONPath template in the dialect of kubectl, such as `{.items[*].metadata.name}`.

    A template that consists of one path needs no braces.

    Raises:
      InvalidInput: the template is not in the dialect of kubectl.
    """
    if "{" not in template:
        template = f"{{{template if template[:1] in '.[' else '.' + template}}}"
    stack: list[tuple[tuple[Selector, ...], list[str | TemplatePart]]] = [((), [])]
    position = 0
    for segment in _SEGMENT.finditer(template):
        stack[-1][1].append(_plain_text(template[position : segment.start()]))
        position = segment.end()
        expression = segment[1].strip()
        if expression.startswith("range "):
            stack.append((_parse_path(expression[6:].strip()), []))
        elif expression == "end":
            path, parts = stack.pop()
            if not stack:
                raise InvalidInput("{end} without {range}", object="jsonpath")
            stack[-1][1].append(TemplatePart(path, tuple(parts)))
        elif expression[:1] in ("'", '"'):
            stack[-1][1].append(_unescape(expression[1:-1]))
        else:
            stack[-1][1].append(TemplatePart(_parse_path(expression)))
    stack[-1][1].append(_plain_text(template[position:]))
    if len(stack) > 1:
        raise InvalidInput("{range} without {end}", object="jsonpath")
    return JsonPathTemplate(tuple(stack[0][1]))


def follow_path(path: Sequence[Selector], value: Any) -> list[Any]:
    """Return all values that the steps of a JSONPath path reach from `value`."""
    values = [value]
    for select in path:
        values = [found for start in values for found in select(start)]
    return values


def _plain_text(text: str) -> str:
    if "{" in text or "}" in text:
        raise InvalidInput(f"unbalanced braces in {text!r}", object="jsonpath")
    return text


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')


def _print_parts(parts: Iterable[str | TemplatePart], value: Any) -> str:
    return "".join(part if isinstance(part, str) else part.render(value) for part in parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _parse_path(text: str) -> tuple[Selector, ...]:
    """Parse a JSONPath path; `$` or `@` at its start is the value from which it is followed.

    Raises:
      InvalidInput: the path has a step that is not known.
    """
    rest = text[1:] if text[:1] in ("$", "@") else text
    if rest in ("", "."):
        return ()
    if rest[0] not in ".[":
        rest = f".{rest}"
    selectors, position = [], 0
    while position < len(rest):
        step = _STEP.match(rest, position)
        if step is None:
            raise InvalidInput(
                f'cannot read {rest[position:]!r}; expected steps such as .name, [0], [*] or [?(@.a=="b")]',
                object="jsonpath",
            )
        selectors.append(_selector(step))
        position = step.end()
    return tuple(selectors)


def _selector(step: re.Match[str]) -> Selector:
    if step["deep"] is not None:
        return _deep_selector(step["deep"])
    if step["filter"] is not None:
        return _filter_selector(step["filter"])
    if step["field"] is not None:
        return _field_selector(re.sub(r"\\(.)", r"\1", step["field"]))
    return _union_selector([_item_selector(item.strip()) for item in step["items"].split(",")])


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


def _field_selector(name: str) -> Selector:
    def select_field(value: Any) -> Iterator[Any]:
        if name == "*":
            yield from _children(value)
        elif isinstance(value, Mapping) and name in value:
            yield value[name]

    return select_field


def _deep_selector(name: str) -> Selector:
    field = _field_selector(name)

    def select_at_any_depth(value: Any) -> Iterator[Any]:
        yield from field(value)
        for child in _children(value):
            yield from select_at_any_depth(child)

    return select_at_any_depth


def _union_selector(selectors: Sequence[Selector]) -> Selector:
    def select_union(value: Any) -> Iterator[Any]:
        for selector in selectors:
            yield from selector(value)

    return select_union


def _item_selector(text: str) -> Selector:
    """Return the selector for one entry in brackets: a name in quotes, `*`, an index, or a slice.

    Raises:
      InvalidInput: the entry is none of these.
    """
    if text[:1] in ("'", '"') or text == "*":
        return _field_selector(text.strip("'\""))
    bounds = _SLICE.fullmatch(text)
    if bounds is not None:
        start, stop, stride = (None if part is None else int(part) for part in bounds.groups())
        if stride == 0:
            raise InvalidInput(f"[{text}] has the step 0; expected 1 or more", object="jsonpath")
        chosen = slice(start, stop, stride)
    elif re.fullmatch(r"-?\d+", text):
        index = int(text)
        chosen = slice(index, index + 1 or None)
    else:
        raise InvalidInput(f"[{text}] is not a name in quotes, an index or a slice", object="jsonpath")

    def select_items(value: Any) -> Iterator[Any]:
        if isinstance(value, list | tuple):
            yield from value[chosen]

    return select_items


def _filter_selector(text: str) -> Selector:
    """Return the selector for the items of a list that fulfil a condition, such as `@.reason=="QueueLimit"`.

    Raises:
      InvalidInput: the condition is not a path, or a path compared with a value.
    """
    condition = _FILTER.fullmatch(text)
    if condition is None:
        raise InvalidInput(f"[?({text})] is not a condition; expected @.PATH==VALUE", object="jsonpath")
    path, compare = _parse_path(condition[1]), _OPERATORS.get(condition[2] or "")
    expected = _literal(condition[3]) if compare is not None else None

    def matches_filter(item: Any) -> bool:
        values = follow_path(path, item)
        if compare is None:
            return bool(values)
        return any(_compare(compare, value, expected) for value in values)

    return lambda value: (item for item in _children(value) if matches_filter(item))


def _compare(compare: Callable[[Any, Any], bool], value: Any, expected: Any) -> bool:
    try:
        return compare(value, expected)
    except TypeError:  # values of different types have no order
        return False


def _literal(text: str) -> Any:
    if text[:1] in ("'", '"'):
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{text} is not a value; put text in quotes", object="jsonpath") from error
