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
    ],
)
def test_an_expression_of_kubernetes_matches(expression):
    assert matches(expression)


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
    ],
    ids=["calls", "parentheses in texts", "bind", "split"],
)
def test_the_estimated_work_of_nested_iterations_is_not_below_the_time_in_microseconds(expression):
    selector = compile_selector(expression)
    started = time.process_time()
    selector.matches("gpu.example.com", H100)
    assert selector.work > 1e6 * (time.process_time() - started) / 4
    assert selector.work > 5_000
