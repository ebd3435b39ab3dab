import json

import jsonschema
import pytest
import yaml

from batchsched.cli.schema import SchemaKind, schema_of
from batchsched.config.schema import BatchSchedulerConfiguration


@pytest.mark.parametrize("subject", list(SchemaKind))
def test_schema_is_a_json_schema(command, subject):
    result = command("schema", subject.value)
    assert result.code == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(result.out))


def test_default_configuration_follows_its_schema():
    plain = BatchSchedulerConfiguration().model_dump(mode="json", by_alias=True)
    jsonschema.validate(plain, schema_of(SchemaKind.CONFIG))


def test_pod_group_of_the_docs_follows_its_schema_and_an_unknown_field_does_not():
    plain = yaml.safe_load(
        "{apiVersion: scheduling.batchsched.dev/v1alpha1, kind: PodGroup, metadata: {name: a}, spec: {minMember: 2}}"
    )
    jsonschema.validate(plain, schema_of(SchemaKind.PODGROUP))
    plain["spec"]["minMembers"] = 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, schema_of(SchemaKind.PODGROUP))
