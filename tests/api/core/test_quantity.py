"""Quantities against the grammar of k8s.io/apimachinery/pkg/api/resource."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.quantity import (
    format_quantities_in_same_unit,
    format_quantity,
    parse_quantity,
    parse_quantity_in_base_units,
)
from batchsched.errors import InvalidQuantity

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    "text, value",
    [
        ("0", 0),
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("1.5", 2),
        ("1.", 1),
        (".5", 1),
        ("0.5Gi", 2**29),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("5E-1", 1),
        ("1n", 1),
        ("1u", 1),
        ("1500m", 2),
        ("1000000000n", 1),
        (7, 7),
        (0.25, 1),
        (str(LARGEST), LARGEST),
        (f"-{LARGEST}", -LARGEST),
    ],
)
def test_amount_in_whole_units_rounds_up_as_upstream_does(text, value):
    assert parse_quantity_in_base_units("memory", text) == value


@pytest.mark.parametrize(
    "text, milli",
    [("1", 1000), ("500m", 500), ("0.1", 100), ("0.0001", 1), ("1u", 1), ("2k", 2_000_000), (0.5, 500)],
)
def test_cpu_is_counted_in_thousandths(text, milli):
    assert parse_quantity_in_base_units("cpu", text) == milli


OUTSIDE_THE_GRAMMAR = "a 1gi 1KI 1ki 1mi --1 1.2.3 1e e3 Gi 1e3Gi 1Gim 0x10 1_000 nan inf ∞ ٣ None"


@pytest.mark.parametrize("text", ["", " ", "1 Gi", " 1", "1\n", *OUTSIDE_THE_GRAMMAR.split()])
def test_text_outside_the_grammar_is_refused_with_an_example(text):
    with pytest.raises(InvalidQuantity, match=r"500m, 4, 1\.5Gi or 2e3"):
        parse_quantity_in_base_units("memory", text)


@pytest.mark.parametrize("text", [str(LARGEST + 1), "8Ei", "1e19", "9223372036854775.808E3", "1e999", "-8Ei"])
def test_amount_beyond_63_bits_is_refused(text):
    with pytest.raises(InvalidQuantity, match="63 bits"):
        parse_quantity_in_base_units("memory", text)


def test_exponent_of_many_digits_is_refused_before_it_is_computed():
    with pytest.raises(InvalidQuantity, match="exponent"):
        parse_quantity_in_base_units("memory", "1e99999999999")


def test_cpu_that_only_fits_without_its_thousandths_is_refused():
    assert parse_quantity_in_base_units("memory", "9223372036854775807") == LARGEST
    with pytest.raises(InvalidQuantity, match="cpu"):
        parse_quantity_in_base_units("cpu", "9223372036854775807")


@given(
    st.integers(-(10**6), 10**6),
    st.integers(0, 9),
    st.sampled_from(["n", "u", "m", "", "k", "Ki", "Mi", "G"]),
)
def test_parsed_value_is_exact(whole, digits, suffix):
    factor = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
    factor |= {"k": Fraction(1000), "Ki": Fraction(1024), "Mi": Fraction(2**20), "G": Fraction(10**9)}
    number = Fraction(f"{whole}.{digits}") if whole >= 0 else Fraction(f"{whole}")
    text = f"{whole}.{digits}{suffix}" if whole >= 0 else f"{whole}{suffix}"
    assert Fraction(parse_quantity(text)) == number * factor[suffix]


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "pods"]), st.integers(0, 2**62))
def test_shown_amount_reads_back_the_same(resource, amount):
    if resource == "cpu":
        amount //= 1000
    assert parse_quantity_in_base_units(resource, format_quantity(resource, amount)) == amount


def test_amounts_are_written_in_the_usual_notation():
    assert format_quantity("cpu", 1500) == "1500m"
    assert format_quantity("cpu", 4000) == "4"
    assert format_quantity("memory", 64 * 2**30) == "64Gi"
    assert format_quantity("memory", 0) == "0"
    assert format_quantity("nvidia.com/gpu", 8192) == "8192"


def test_compared_amounts_have_the_same_suffix():
    assert format_quantities_in_same_unit("cpu", 18250, 6000) == ("18250m", "6000m")
    assert format_quantities_in_same_unit("cpu", 18000, 6000) == ("18", "6")
    assert format_quantities_in_same_unit("memory", 2 * 2**30, 1000 * 2**20) == ("2048Mi", "1000Mi")
    assert format_quantities_in_same_unit("memory", 2**30 + 1, 2**30) == ("1073741825", "1073741824")
    assert format_quantities_in_same_unit("memory", 2**30, 0) == ("1Gi", "0")
