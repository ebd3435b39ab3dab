import time
from typing import Any

import msgspec
import pytest

from batchsched.api.core.device import Device
from batchsched.devices.selectors import (
    CelSelectorError,
    attributes_and_capacities_in_expression,
    compile_selector,
)

H100: Any = msgspec.convert(
    {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "h100"},
            "index": {"int": 3},
            "healthy": {"bool": True},
            "driverVersion": {"version": "535.104.9"},
            "vendor.example.com/serial": {"string": "s1"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    },
    Device,
)
OWN = 'device.attributes["gpu.example.com"]'


def matches(expression: str, device: Device = H100) -> bool:
    return compile_selector(expression).matches("gpu.example.com", device)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{OWN}.model == "h100" && {OWN}.index % 2 == 1',
        f'{OWN}.model.matches("^[ah]100$")',
        f"{OWN}.healthy",
        f'{OWN}.driverVersion.isGreaterThan(semver("535.104.5"))',
        f'{OWN}.driverVersion.major() == 535 && isSemver("1.2.3")',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
        'device.capacity["gpu.example.com"].memory == quantity("81920Mi")',
        'quantity("1Gi").add(quantity("1Gi")).sub(1).isLessThan(quantity("2Gi"))',
        'quantity("5").asInteger() == 5 && quantity("0").sign() == 0 && !quantity("500m").isInteger()',
        f"cel.bind(own, {OWN}, own.index == 3)",
        f'{OWN}.?link.orValue("none") == "none"',
        '!("x" in device.attributes["unknown.example.com"])',
        '!("unknown.example.com" in device.attributes)',
        f'["a100", "h100"].exists(model, model == {OWN}.model)',
        '!device.allowMultipleAllocations && device.attributes["vendor.example.com"].serial == "s1"',
        f'sets.contains(["a100", "h100"], [{OWN}.model]) && !sets.intersects(["l4"], [{OWN}.model])',
        "sets.equivalent([1, 2, 2], [2, 1])",
        f'{OWN}.model.find("[0-9]+") == "100" && {OWN}.model.find("x") == ""',
        '"a1b22".findAll("[0-9]+") == ["1", "22"] && "a1b22".findAll("[0-9]", 2).size() == 2',
        r'"a(b)1".find("(a)(\\(b\\))(?P<n>[)(1])") == "a(b)1"',
        "[1, 2, 3].sum() == 6 && [].sum() == 0 && [2, 1].min() == 1 && [1.5, 2.5].max() == 2.5",
        '[1, 2].isSorted() && !["b", "a"].isSorted()',
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1",
        f"{OWN}.model.indexOf('0') == 2 && [true].indexOf(1) == -1",
        "lists.range(3) == [0, 1, 2] && [3, 1].sort() == [1, 3] && [1, 2].reverse() == [2, 1]",
        "[1, 1].distinct() == [1] && [[1], [2]].flatten() == [1, 2] && [1, 2, 3].slice(1, 2) == [2]",
        "[1, 2].sortBy(n, -n) == [2, 1]",
        f'{OWN}.exists(name, value, name == "index" && value == 3)',
        "[5, 6].all(index, value, value == index + 5) && [5, 6].transformList(i, v, i) == [0, 1]",
        'semver("v01.2", true) == semver("1.2.0") && semver("1.2.3", false).minor() == 2',
        'isSemver("v1", true) && !isSemver("v1.0") && !isSemver("1.2-rc", true) && isSemver("1.02.3-rc", true)',
        "device.attributes[device.driver].index == 3",
        'device.attributes[device.driver + ".unknown"].size() == 0',
        "cel.bind(domain, r'unknown.example.com', !has(device.capacity[domain].memory))",
        "\"device.attributes['x']\" != device.driver",
    ],
)
def test_an_expression_of_kubernetes_matches(expression):
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'url("http://a").getHost() == "a"',
        'ip("10.0.0.1").family() == 4',
        '!format.dns1123Label().validate("a").hasValue()',
        '"a".includes("a")',
        "[1, 2].transformMap(index, value, index) == {0: 0, 1: 1}",
        "(" * 40 + "true" + ")" * 40,
        "lists.range(device.attributes.size()).size() == 2",
        "lists.range(100000).size() == 2",
        "lists. // range(1)\n range(99999999).size() == 2",
    ],
)
def test_an_expression_with_what_docs_devices_md_excludes_is_an_error(expression):
    problems = r"CEL compile error|lists\.range: expected a number|No overload found .* cel\.@mapInsert"
    with pytest.raises(CelSelectorError, match=problems):
        matches(expression)


def test_a_missing_attribute_is_an_error_unless_the_result_is_certain_without_it():
    with pytest.raises(CelSelectorError, match="Key not found"):
        matches(f'{OWN}.link == "nvl"')
    assert matches(f'{OWN}.link == "nvl" || true')


def test_a_result_that_is_no_boolean_is_an_error():
    with pytest.raises(CelSelectorError, match="no boolean"):
        matches(f"{OWN}.model")


def test_an_expression_with_an_unknown_function_cannot_be_compiled():
    with pytest.raises(CelSelectorError, match="CEL compile error"):
        matches("nonsense(device.driver)")


def test_devices_that_differ_in_unread_attributes_share_one_evaluation():
    selector = compile_selector(f'{OWN}.model == "h100" && {OWN}.index == 3')
    other = msgspec.structs.replace(H100, attributes={**H100.attributes, "serial": H100.attributes["model"]})
    assert selector.names == frozenset({"model", "index"})
    assert selector.matches("gpu.example.com", H100)
    assert selector.matches("gpu.example.com", other)
    assert len(selector._results) == 1


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["a.b"].exists(key, true)',
        "cel.bind(own, device, own.driver == 'x')",
        'device.attributes["a.b"] == device.attributes["c.d"]',
        'device["driver"] == "x"',
    ],
)
def test_an_expression_that_may_read_everything_is_evaluated_by_whole_content(expression):
    assert attributes_and_capacities_in_expression(expression) is None


NUMBERS = f"[{','.join(map(str, range(99)))}]"


def nested(depth: int, body: str = "true") -> str:
    for number in range(depth):
        body = f"{NUMBERS}.all(n{number}, {body})"
    return body


def test_an_expression_with_too_many_iterations_is_an_error():
    with pytest.raises(CelSelectorError, match="Iteration budget exceeded"):
        matches(nested(3))


def test_a_longer_expression_than_kubernetes_allows_is_an_error_at_once():
    started = time.process_time()
    with pytest.raises(CelSelectorError, match="longer than 10240 bytes"):
        matches('("a" in device.attributes["b"] && ' * 3000)
    assert time.process_time() - started < 0.5
    assert matches("||".join(["true"] * 1700))


def test_a_map_that_resembles_a_huge_quantity_is_an_error_at_once():
    started = time.process_time()
    for amount in ("1e99999999", "-1e99999999", "Infinity", "NaN"):
        with pytest.raises(CelSelectorError, match="CEL runtime error"):
            matches(f"{{'kubernetes.Quantity': '{amount}'}}.asInteger() == 1")
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    "expression, most",
    [
        (f'{OWN}.model == "h100" && {OWN}.index % 2 == 1', 20),
        (f'{OWN}.driverVersion.isGreaterThan(semver("535.104.5"))', 30),
        (f'["a100", "h100"].exists(model, model == {OWN}.model)', 100),
        (f'["a", "h"].exists(m, m == {OWN}.model) && ["b"].all(m, m != {OWN}.model)', 200),
        (f'{OWN}.all(name, name.startsWith("x"))', 2000),
        (f'sets.contains(["a100", "h100"], [{OWN}.model]) && {OWN}.model.find("[0-9]+") == "100"', 80),
    ],
)
def test_the_estimated_work_of_usual_expressions_is_low(expression, most):
    assert 10 <= compile_selector(expression).work <= most


@pytest.mark.parametrize(
    "expression",
    [
        nested(2, "&&".join(['quantity("1").sign() == 1'] * 20)),
        nested(2, "&&".join(['")" == \')\' || """)""" == ")"'] * 20)),
        f"cel.bind(list, {NUMBERS}, cel.bind(more, list + list, more.all(n, more.exists(m, m > n))))",
        '"1-2-3-4-5-6-7-8-9-0-1-2-3-4-5-6-7-8-9".split("-").all(a, "1-2".split("-").all(b, true))',
        "lists.range(2000).map(n, [n]).distinct().size() == 2000",
        "sets.contains(lists.range(2000), lists.range(2000))",
        f"cel.bind(a, {NUMBERS}, cel.bind(b, a + a, cel.bind(c, b + b, sets.contains(c + c, c + c))))",
    ],
    ids=["calls", "parentheses in texts", "bind", "split", "distinct", "sets", "doubled"],
)
def test_the_estimated_work_of_nested_iterations_is_not_below_the_time_in_microseconds(expression):
    selector = compile_selector(expression)
    started = time.process_time()
    selector.matches("gpu.example.com", H100)
    assert selector.work > 1e6 * (time.process_time() - started) / 4
    assert selector.work > 5_000
