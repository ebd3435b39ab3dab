from pydantic import BaseModel

from batchsched.settings.page import page
from batchsched.settings.plugins import Plugins, PluginSet
from batchsched.settings.schema import BatchSchedulerConfiguration, PolicySettings, Profile, SolverSettings


def test_page_has_every_field_with_its_default():
    text = page()
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
