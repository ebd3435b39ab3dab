from pydantic import BaseModel

from batchsched.config.plugins import Plugins, PluginSet
from batchsched.config.schema import BatchSchedulerConfiguration, PolicySettings, Profile, SolverSettings
from docs.generate.configuration import configuration


def test_page_has_every_field_with_its_default():
    text = configuration()
    models: list[type[BaseModel]] = [
        BatchSchedulerConfiguration,
        Profile,
        SolverSettings,
        PolicySettings,
        Plugins,
        PluginSet,
    ]
    for model in models:
        for name, field in model.model_fields.items():
            if name not in ("api_version", "kind"):
                assert f"| `{field.alias}` |" in text
                assert field.description
    assert "| `gap` | number, ≥ 0, < 1 | `0.003` |" in text
    assert "| `selection` | `weight` or `ordered` | `weight` |" in text
