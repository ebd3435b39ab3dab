"""The example of the page on devices is placed as the page shows, and not at all with one device less."""

import json
from pathlib import Path

import yaml

from batchsched.cli import ExitCode, run_command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "devices"
PAGE = (ROOT / "docs" / "devices.md").read_text("utf-8")


def test_page_includes_its_manifests_and_shows_the_decision(capfd):
    for file in ("cluster.yaml", "job.yaml"):
        assert f'--8<-- "docs/devices/{file}"' in PAGE
    assert run_command(["decide", str(FOLDER), "--now", "2026-01-05T09:00:00Z"]) == ExitCode.OK
    printed = capfd.readouterr()
    assert f"$ batchsched decide docs/devices/\n{printed.out.strip()}\n" in PAGE
    assert "warning" not in printed.err


def test_no_pod_of_the_example_is_placed_with_one_device_less(tmp_path, capfd):
    manifests = [*yaml.safe_load_all((FOLDER / "cluster.yaml").read_text("utf-8"))]
    next(one for one in manifests if one["kind"] == "ResourceSlice")["spec"]["devices"].pop()
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps(manifests))
    run_command(["decide", str(cluster), str(FOLDER / "job.yaml"), "-o", "json"])
    decision = json.loads(capfd.readouterr().out)
    assert decision["assignments"] == []
    assert len(decision["refusals"]) == 1
