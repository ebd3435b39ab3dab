"""What the pod grouper asks of the API: rules for the role of whoever runs it."""

from typing import Final

from batchsched.api.crd.base import GROUP
from batchsched.api.external_podgroups import FOREIGN
from batchsched.kube.resources import plural
from batchsched.podgrouper.rules import OWNERS

Permission = tuple[str, str, tuple[str, ...]]
"""An API group ("" for the core), a resource, and the verbs."""
_FOLLOW: Final = ("list", "watch")

PERMISSIONS: Final[tuple[Permission, ...]] = tuple(
    sorted(
        {
            *((kind.group, plural(kind.name), _FOLLOW) for kind in OWNERS),
            *((kind.group, plural(kind.name), _FOLLOW) for kind in FOREIGN),
            (GROUP, "podgroups", ("create", "delete", "list", "patch", "watch")),
            ("", "pods", ("list", "patch", "watch")),
        }
    )
)
"""All that it does. Kinds that are not installed may stand in a role all the same."""
