"""`batchsched convert` prints the converted objects, names what has no counterpart, and exits as other commands."""

import yaml

QUEUE = """apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: team}
spec: {capability: {cpu: 2}, reclaimable: false}
"""


def test_objects_are_printed_as_yaml_and_warnings_on_standard_error(command, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUE)
    result = command("convert", "-f", file)
    assert result.code == 0
    (queue,) = yaml.safe_load_all(result.out)
    assert (queue["kind"], queue["spec"]) == ("Queue", {"limit": {"cpu": "2"}})
    assert result.err.startswith(f"warning: {file}: Queue team: spec.reclaimable: ")


def test_objects_of_several_files_are_printed_as_one_list_in_json(command, tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(QUEUE)
    second.write_text(QUEUE.replace("team", "other"))
    result = command("convert", "-f", first, "-f", second, "-o", "json")
    assert [one["metadata"]["name"] for one in result.data["items"]] == ["team", "other"]


def test_converted_queues_are_input_of_decide(command, tmp_path):
    source, output = tmp_path / "queues.yaml", tmp_path / "converted.yaml"
    source.write_text(QUEUE)
    output.write_text(command("convert", "-f", source).out)
    result = command("queues", output, "-o", "json")
    assert result.code == 0
    assert "team" in result.out


def test_input_without_queues_of_others_is_unusable(command, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    result = command("convert", "-f", file)
    assert result.code == 1
    assert "there is no queue or topology of Volcano, KAI or Kueue in it" in result.err


def test_invalid_object_is_unusable_input_with_its_field(command, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUE.replace("cpu: 2", "cpu: two"))
    result = command("convert", "-f", file)
    assert (result.code, result.out) == (1, "")
    assert "spec.capability.cpu" in result.err
