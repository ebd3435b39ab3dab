from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

import batchsched
from batchsched.observability import metrics
from batchsched.observability.metrics import Metrics


def test_every_metric_is_updated_somewhere_in_the_package():
    updated = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(batchsched.__file__).parent.rglob("*.py")
        if path != Path(metrics.__file__)
    )
    names = [name for name, value in vars(Metrics()).items() if isinstance(value, MetricWrapperBase)]
    assert len(names) > 40
    assert not [name for name in names if f".{name}" not in updated]
