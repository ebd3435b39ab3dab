"""The pages of plugins and of a pod's life say what the code does."""

import re
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from batchsched.config.plugins import DEFAULT_PLUGINS
from batchsched.framework.runtime.result_validation import POINTS
from docs.generate.plugins import _arguments, _docstring, plugins, pod_life, points_of
from docs.generate.point_texts import POINT_TEXTS


class Inner(BaseModel):
    weight: int = Field(1, ge=1, le=9, description="How much.")


class Args(BaseModel):
    some_mode: Literal["A", "B"] = "A"
    inner: tuple[Inner, ...] = ()
    must: str
    maybe: float | None = None


class Plugin:
    """Looks at something.

    Args:
      args: for callers.

    Source: nowhere.
    """

    name: ClassVar[str] = "Plugin"

    def prefilter(self) -> None: ...

    def score(self) -> None: ...


def test_every_plugin_has_its_section_and_the_defaults_stand_first_in_their_order():
    sections = re.findall(r"^## `(\w+)`$", plugins(), re.MULTILINE)
    assert sections[: len(DEFAULT_PLUGINS)] == [name for name in DEFAULT_PLUGINS if name in sections]
    assert len(set(sections)) == len(sections)


def test_every_point_has_its_section_in_call_order():
    assert re.findall(r"^## (\w+)$", pod_life(), re.MULTILINE) == list(POINTS)
    for name, point in POINTS.items():
        assert tuple(POINT_TEXTS[name].effects) == point.codes
        assert bool(point.codes) != bool(POINT_TEXTS[name].answer)
    assert "| Wait | the pod stays assumed until it is allowed" in pod_life()


def test_points_of_a_plugin_are_its_methods():
    assert points_of(Plugin) == ("PreFilter", "Score")


def test_docstring_is_shown_without_what_concerns_callers():
    assert _docstring(Plugin) == "Looks at something.\n\nSource: nowhere."


def test_arguments_are_listed_with_those_inside_them():
    assert _arguments(Args).splitlines()[2:] == [
        '| `someMode` | `A` or `B` | `"A"` | as in kube-scheduler |',
        "| `inner` | list | none | as in kube-scheduler |",
        "| `inner[].weight` | whole number, ≥ 1, ≤ 9 | `1` | How much. |",
        "| `must` | text | required | as in kube-scheduler |",
        "| `maybe` | number | none | as in kube-scheduler |",
    ]


def test_page_of_every_plugin_names_the_events_that_may_help_a_refused_pod():
    page = plugins()
    assert (
        "[Events](scheduling-queue.md) that may help a pod that it refused: Node (Add, UpdateNodeTaint), "
        in page
    )
    assert "AssignedPod (Delete), TargetPod (UpdatePodGeneratedResourceClaim)" in page
