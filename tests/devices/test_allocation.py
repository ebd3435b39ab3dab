"""The allocation of a ResourceClaim as it is written to the API server."""

from decimal import Decimal

import pytest

from batchsched.devices.allocation import format_amount


@pytest.mark.parametrize(
    "amount, text",
    [
        ("12", "12"),
        (str(80 * 1024**3), "80Gi"),
        ("0.5", "500m"),
        ("0.0005", "500u"),
        ("1.00000025", "1000000250n"),
        ("0.00000000001", "1n"),
    ],
)
def test_amount_is_written_as_a_quantity_that_is_never_smaller(amount, text):
    assert format_amount(Decimal(amount)) == text
