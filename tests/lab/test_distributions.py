import pytest

from batchsched.lab.distributions import box_plots_by_size, gang_size_bounds, gang_size_range_name
from batchsched.lab.run_columns import build_run_columns
from tests.lab.runs import played


@pytest.mark.parametrize("units, name", [(0, "0"), (1, "1"), (2, "2"), (3, "3–4"), (8, "5–8"), (9, "9–16")])
def test_size_classes_are_powers_of_two(units, name):
    assert gang_size_range_name(units, (0, 1, 2, 4, 8, 16)) == name


def test_the_largest_gang_has_a_class():
    runs = build_run_columns([played("a")])
    bounds = gang_size_bounds(runs)
    assert all(gang_size_range_name(int(units), bounds) for units in runs[0].units)


def test_boxes_contain_quartiles_and_the_maximum_without_samples():
    run = build_run_columns([played("a", gangs=300)])
    for figure in box_plots_by_size(run):
        box = figure.data[0]
        assert len(box["x"]) == len(box["median"]) == len(box["y"])
        for low, first, middle, third, high, worst in zip(
            *(box[name] for name in ("lowerfence", "q1", "median", "q3", "upperfence", "y")), strict=True
        ):
            assert low <= first <= middle <= third <= high <= worst[0]


def test_a_wait_of_zero_can_be_drawn_on_a_log_scale():
    waits, _ = box_plots_by_size(build_run_columns([played("a", nodes=512)]))
    assert min(waits.data[0]["lowerfence"]) == 1.0


def test_size_classes_are_in_ascending_order():
    waits, _ = box_plots_by_size(build_run_columns([played("a", gangs=300)]))
    order = waits.layout["xaxis"]["categoryarray"]
    assert order == sorted(order, key=lambda name: int(name.split("–")[0]))
