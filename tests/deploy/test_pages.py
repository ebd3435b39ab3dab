"""What the pages for operators say of names: each is there, and each that is there is said."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from batchsched.api import owner_keys
from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.external.coscheduling import COSCHEDULING_LABEL, CoschedulingPodGroupSpec
from batchsched.api.external.kai import KAI_ANNOTATION, KAI_QUEUE, KAI_SUB_GROUP, KaiPodGroupSpec
from batchsched.api.external.volcano import VOLCANO_ANNOTATIONS, VOLCANO_TASK, VolcanoPodGroupSpec

ROOT = Path(__file__).parents[2]
MIGRATING = (ROOT / "docs" / "migrating.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize(
    "spec", [CoschedulingPodGroupSpec, VolcanoPodGroupSpec, KaiPodGroupSpec], ids=lambda spec: spec.__name__
)
def test_every_field_of_other_schedulers_that_is_read_is_on_the_migration_page(spec):
    for field in msgspec.structs.fields(spec):
        assert re.search(rf"\b{field.encode_name}\b", MIGRATING), field.encode_name


def test_every_gang_label_of_other_schedulers_is_on_the_migration_page():
    marks = [COSCHEDULING_LABEL, *VOLCANO_ANNOTATIONS, VOLCANO_TASK]
    marks += [KAI_ANNOTATION, KAI_SUB_GROUP, KAI_QUEUE]
    for mark in marks:
        assert f"`{mark}`" in MIGRATING


def test_every_kind_of_other_schedulers_that_is_read_is_on_the_migration_page():
    for kind in EXTERNAL_KINDS:
        group, version = kind.api_version.split("/")
        assert f"`{group}" in MIGRATING
        assert version in MIGRATING


@pytest.mark.parametrize("mark", [owner_keys.PRIORITY_CLASS, owner_keys.REQUIRED, owner_keys.PREFERRED])
def test_annotations_shared_with_kueue_are_on_the_migration_page(mark):
    assert f"`{mark}`" in MIGRATING


def test_every_alert_is_on_the_operations_page():
    found = yaml.safe_load((ROOT / "deploy" / "helm" / "batchsched" / "files" / "rules.yaml").read_text())
    alerts = {rule["alert"] for group in found["groups"] for rule in group["rules"]}
    assert alerts == set(re.findall(r"^\| `(Batchsched\w+)`", OPERATIONS, re.MULTILINE))


@pytest.mark.parametrize("page", ["operations", "quick-start", "migrating"])
def test_every_metric_that_is_named_exists(page):
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    text = (ROOT / "docs" / f"{page}.md").read_text()
    named = re.findall(r"`((?:batchsched|scheduler|rest_client|leader_election)_[a-z_]+)", text)
    assert not [name for name in named if f"`{name}`" not in metrics]
