"""Warnings about objects in manifests that are valid but probably contain a mistake.

These are PriorityClasses, claims, templates and DeviceClasses that do not exist, PriorityClasses without effect,
misspelt labels, and amounts of memory in fractions of a byte.
The API server rejects a pod with an unknown PriorityClass, but it accepts any label. A pod with a misspelt gang label
has no gang, so it would be placed alone.
"""

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from batchsched.api.core.pod import (
    LAST_CHECKPOINT,
    POD_GROUP_LABEL,
    QUEUE_LABEL,
    SUB_GROUP_LABEL,
    USER_LABEL,
    Pod,
    PodSpec,
)
from batchsched.api.core.quantity import BYTES, parse_quantity
from batchsched.api.crd.base import GROUP
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.crd.validation import similar_name_hint, suggest_name
from batchsched.api.external.coscheduling import COSCHEDULING_LABEL
from batchsched.api.external.kai import KAI_ANNOTATION, KAI_QUEUE, KAI_SUB_GROUP
from batchsched.api.external.volcano import VOLCANO_ANNOTATIONS, VOLCANO_QUEUE, VOLCANO_TASK
from batchsched.api.gang import gang_identity
from batchsched.api.owner_keys import (
    OWNER_KEYS,
    is_spark_driver_without_application,
    owner_title_for_messages,
)
from batchsched.api.priority import SYSTEM_PRIORITIES, PriorityTable
from batchsched.api.queue_access import DEFAULT_QUEUE_LABEL
from batchsched.api.snapshot import Snapshot
from batchsched.api.template_claims import is_hypothetical_pod

_POD_LABELS: Final = frozenset(
    {
        POD_GROUP_LABEL,
        SUB_GROUP_LABEL,
        QUEUE_LABEL,
        USER_LABEL,
        COSCHEDULING_LABEL,
        KAI_SUB_GROUP,
        KAI_QUEUE,
        VOLCANO_TASK,
    }
)
"""Labels of pods that batchsched reads."""
_POD_ANNOTATIONS: Final = frozenset(
    {LAST_CHECKPOINT, KAI_ANNOTATION, *VOLCANO_ANNOTATIONS, VOLCANO_TASK, VOLCANO_QUEUE}
)
"""Annotations of pods that batchsched reads."""
_OWN_PREFIX: Final = f"{GROUP}/"
_LEAST_SIMILARITY: Final = 0.9
"""The ratio of difflib from which a key counts as misspelt. Two keys of one API group often reach 0.8."""


def input_warnings(snapshot: Snapshot) -> Iterator[str]:
    """Yield a warning for each probable mistake in valid objects, such as a misspelt label key.

    Other mistakes are references to objects that do not exist, and amounts with a fraction of a byte.
    """
    pending = [pod for pod in snapshot.pods if not pod.node_name]
    yield from _unknown_priority_classes(snapshot, pending)
    yield from _capped_priorities(snapshot)
    yield from _absent_claims(snapshot, pending)
    yield from _absent_device_objects(snapshot, pending)
    yield from _misspelt_keys("label", _POD_LABELS, _POD_ANNOTATIONS, pending)
    yield from _misspelt_keys("annotation", _POD_ANNOTATIONS, _POD_LABELS, pending)
    yield from _similar_references(snapshot, pending)
    yield from _fractions_of_bytes(pending)
    for namespace in snapshot.namespaces:
        for key in namespace.labels:
            if key != DEFAULT_QUEUE_LABEL and _is_misspelt(key, (DEFAULT_QUEUE_LABEL,)):
                yield f"Namespace {namespace.name}: unknown label {key!r}; did you mean {DEFAULT_QUEUE_LABEL}?"


def _unknown_priority_classes(snapshot: Snapshot, pending: Iterable[Pod]) -> Iterator[str]:
    known_classes = {*SYSTEM_PRIORITIES, *(entry.name for entry in snapshot.priority_classes)}
    pods: dict[str, list[str]] = {}
    for pod in pending:
        name = pod.spec.priority_class_name
        if name and name not in known_classes and pod.spec.priority is None:
            pods.setdefault(name, []).append(pod.key)
    for name, keys in sorted(pods.items()):
        yield (
            f"{_first_of('pod', keys)}: there is no PriorityClass {name!r}, so the default priority counts; "
            f"{suggest_name(name, sorted(known_classes))}"
        )
    groups: dict[str, list[str]] = {}
    for group in snapshot.pod_groups:
        name = group.spec.priority_class_name
        if name and name not in known_classes:
            groups.setdefault(name, []).append(group.key)
    for name, keys in sorted(groups.items()):
        yield (
            f"{_first_of('PodGroup', keys)}: there is no PriorityClass {name!r}, so spec.priorityClassName has no "
            f"effect; {suggest_name(name, sorted(known_classes))}"
        )


def _capped_priorities(snapshot: Snapshot) -> Iterator[str]:
    """Yield a warning for each PodGroup that has pods of a lower priority than its own PriorityClass.

    The running scheduler states the same in the condition PriorityCapped.
    """
    groups = [group for group in snapshot.pod_groups if group.spec.priority_class_name]
    if not groups:
        return
    members: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        members[gang_identity(pod)].append(pod)
    table = PriorityTable(snapshot.priority_classes)
    for group in groups:
        advice = table.advice_on_ineffective_priority_class(group, members[group.key])
        if advice:
            yield f"PodGroup {group.key}: spec.{advice}"


def _absent_claims(snapshot: Snapshot, pending: Iterable[Pod]) -> Iterator[str]:
    claims = {claim.key for claim in snapshot.persistent_volume_claims}
    pods: dict[str, list[str]] = {}
    for pod in pending:
        for volume in pod.spec.volumes or ():
            source = volume.persistent_volume_claim
            if source is not None and f"{pod.namespace}/{source.claim_name}" not in claims:
                pods.setdefault(f"{pod.namespace}/{source.claim_name}", []).append(pod.key)
    for claim, keys in sorted(pods.items()):
        yield (
            f"{_first_of('pod', keys)}: there is no PersistentVolumeClaim {claim}, without which no node accepts the "
            "pod; add it to the input, which `batchsched dump` writes with claims and volumes"
        )


def _absent_device_objects(snapshot: Snapshot, pending: Iterable[Pod]) -> Iterator[str]:
    """Yield a warning for each ResourceClaim, ResourceClaimTemplate and DeviceClass that is named and does not exist.

    A pod with a UID comes from a cluster, in which a claim is created after the pod.
    """
    claims = {claim.key for claim in snapshot.resource_claims}
    templates = {template.key for template in snapshot.resource_claim_templates}
    absent: dict[tuple[str, str, str], list[str]] = {}
    for pod in pending:
        for index, entry in enumerate(pod.spec.resource_claims or ()):
            names = (
                ("ResourceClaim", "resourceClaimName", entry.resource_claim_name, claims),
                (
                    "ResourceClaimTemplate",
                    "resourceClaimTemplateName",
                    entry.resource_claim_template_name if is_hypothetical_pod(pod) else None,
                    templates,
                ),
            )
            for kind, field, name, existing in names:
                if name and f"{pod.namespace}/{name}" not in existing:
                    place = (f"spec.resourceClaims[{index}].{field}", kind, f"{pod.namespace}/{name}")
                    absent.setdefault(place, []).append(pod.key)
    for (field, kind, key), keys in sorted(absent.items()):
        namespace, _, name = key.partition("/")
        names_in_namespace = {
            other.partition("/")[2]
            for other in (claims if kind == "ResourceClaim" else templates)
            if other.startswith(f"{namespace}/")
        }
        advice = similar_name_hint(name, names_in_namespace) or "; add it to the input"
        yield f"{_first_of('pod', keys)}: {field}: there is no {kind} {name!r} in namespace {namespace}{advice}"
    classes = {device_class.name for device_class in snapshot.device_classes}
    specs = [(f"ResourceClaim {claim.key}", "spec", claim.spec) for claim in snapshot.resource_claims]
    specs += [
        (f"ResourceClaimTemplate {template.key}", "spec.spec", template.spec.spec)
        for template in snapshot.resource_claim_templates
    ]
    for title, field, spec in specs:
        for name in sorted({*spec.device_class_names} - classes - {""}):
            advice = similar_name_hint(name, classes) or "; add it to the input"
            yield f"{title}: {field}.devices.requests: there is no DeviceClass {name!r}{advice}"


def _similar_references(snapshot: Snapshot, pending: Iterable[Pod]) -> Iterator[str]:
    """Yield a warning if a named PodGroup or Queue does not exist, but one with a similar name does.

    The session refuses such gangs without a suggestion, because its messages may not depend on unrelated objects.
    """
    set_aside = {record.object for record in snapshot.set_aside}
    queues = {DEFAULT_QUEUE, *(queue.name for queue in snapshot.queues)}
    groups = {group.key for group in snapshot.pod_groups}
    by_namespace: dict[str, list[str]] = {}
    for group in snapshot.pod_groups:
        by_namespace.setdefault(group.namespace, []).append(group.name)
    named_queues = {group.spec.queue: f"PodGroup {group.key}" for group in reversed(snapshot.pod_groups)}
    for pod in pending:
        named_queues.setdefault(pod.metadata.label(QUEUE_LABEL), f"pod {pod.key}")
    for name, place in sorted((name, place) for name, place in named_queues.items() if name):
        if name not in queues and f"Queue {name}" not in set_aside:
            hint = similar_name_hint(name, queues)
            if hint:
                yield f"{place}: there is no Queue {name!r}{hint}"
    first_pods: dict[tuple[str, str], str] = {}
    kinds: dict[tuple[str, str], str] = {}
    for pod in pending:
        name = pod.metadata.label(POD_GROUP_LABEL) or ""
        if name and f"{pod.namespace}/{name}" not in groups:
            first_pods.setdefault((pod.namespace, name), pod.key)
            # The PodGroup that the pod names is below a CompositePodGroup of this name.
            is_parent = pod.scheduling_group_name not in ("", name)
            kinds.setdefault((pod.namespace, name), "CompositePodGroup" if is_parent else "PodGroup")
    for (namespace, name), key in sorted(first_pods.items()):
        hint = similar_name_hint(name, by_namespace.get(namespace, ()))
        if hint and f"PodGroup {namespace}/{name}" not in set_aside:
            kind = kinds[namespace, name]
            yield f"pod {key}: there is no {kind} {name!r} in namespace {namespace}{hint}"


def _fractions_of_bytes(pending: Iterable[Pod]) -> Iterator[str]:
    pods: dict[tuple[str, str], list[str]] = {}
    fields_by_spec: dict[int, list[tuple[str, str]]] = {}
    for pod in pending:
        fields = fields_by_spec.get(id(pod.spec))  # pods of one template share a spec
        if fields is None:
            fields = fields_by_spec[id(pod.spec)] = list(_fractional_fields(pod.spec))
        for field_and_text in fields:
            pods.setdefault(field_and_text, []).append(pod.key)
    for (field, text), keys in sorted(pods.items()):
        hint = f"; did you mean {text.removesuffix('m')}Mi?" if text.endswith("m") else ""
        yield f"{_first_of('pod', keys)}: {field}: {text!r} is not a whole number of bytes{hint}"


def _fractional_fields(spec: PodSpec) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of each amount in a pod spec that is not a whole number of bytes."""
    for index, container in enumerate(spec.containers):
        for resource, text in ((container.resources and container.resources.requests) or {}).items():
            value = parse_quantity(text) if resource in BYTES else Decimal(0)
            if value != value.to_integral_value():
                yield f"spec.containers[{index}].resources.requests.{resource}", str(text)


def _misspelt_keys(
    place: str, known_keys: frozenset[str], known_elsewhere: frozenset[str], pods: Iterable[Pod]
) -> Iterator[str]:
    """Yield a warning for each misspelt label key, or misspelt annotation key, of pods.

    A key that batchsched reads as an annotation is wrong as a label, and vice versa.

    Args:
      place: `label` or `annotation`.
      known_keys: the keys that batchsched reads at this place.
      known_elsewhere: the keys that it reads at the other place.
      pods: the pending pods.
    """
    counts: Counter[str] = Counter()
    first: dict[str, Pod] = {}
    for pod in pods:
        for key in (pod.metadata.labels if place == "label" else pod.metadata.annotations) or ():
            if key not in OWNER_KEYS or not is_spark_driver_without_application(
                pod
            ):  # a driver owns its executors
                counts[key] += 1
                first.setdefault(key, pod)
    other_place = "annotation" if place == "label" else "label"
    for key in sorted(counts.keys() - known_keys):
        more = f" and {counts[key] - 1} more" if counts[key] > 1 else ""
        if key in known_elsewhere:
            yield f"pod {first[key].key}{more}: {key!r} is read as {_with_article(other_place)} only; make it one"
        elif key in OWNER_KEYS:
            yield (
                f"pod {first[key].key}{more}: {place} {key!r} has no effect on pods; "
                f"move it from the pod template to the metadata of {owner_title_for_messages(first[key])}"
            )
        elif key.startswith(_OWN_PREFIX) or _is_misspelt(key, known_keys):
            suggested_keys = known_keys | OWNER_KEYS if key.startswith(_OWN_PREFIX) else known_keys
            advice = suggest_name(key, sorted(suggested_keys))
            if any(advice == f"did you mean {name}?" for name in OWNER_KEYS - known_keys - known_elsewhere):
                advice = (
                    f"{advice.removesuffix('?')}, in the metadata of {owner_title_for_messages(first[key])}?"
                )
            yield f"pod {first[key].key}{more}: unknown {place} {key!r} has no effect; {advice}"


def _is_misspelt(key: str, known_keys: Iterable[str]) -> bool:
    return bool(difflib.get_close_matches(key, known_keys, n=1, cutoff=_LEAST_SIMILARITY))


def _first_of(kind: str, keys: list[str]) -> str:
    return f"{kind} {keys[0]}" + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun == "annotation" else f"a {noun}"
