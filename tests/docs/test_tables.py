"""The generated tables state what the code states."""

from batchsched.api import gang
from batchsched.api.decision import REASONS
from batchsched.observability.metrics import Metrics
from batchsched.scheduling_queue import entity
from docs.generate.tables import gang_life, metrics, reasons, scheduling_queue


def test_gang_page_lists_every_change_of_phase():
    page = gang_life()
    assert all(f"| {start} | {change} | {end} |\n" in page for (start, change), end in gang.MOVES.items())
    assert page.count("\n| ") == len(gang.MOVES) + 1


def test_queue_page_lists_every_move():
    page = scheduling_queue()
    assert all(f"| {start} | {end} | {when} |\n" in page for (start, end), when in entity.MOVES.items())
    assert page.count("\n| ") == len(entity.MOVES) + 1


def test_every_reason_is_on_the_page():
    assert all(f"| `{reason}` | {meaning} |" in reasons() for reason, meaning in REASONS.items())


def test_every_metric_is_on_the_page_with_its_type():
    page = metrics()
    for metric in Metrics().registry.collect():
        if metric.name.startswith(("process_", "python_")):
            continue
        name = metric.name + ("_total" if metric.type == "counter" else "")
        assert f"| `{name}` | {metric.type} |" in page
