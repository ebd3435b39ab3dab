"""ImageLocality: prefers nodes that already have the pod's images."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.node import ContainerImage
from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.interface import ScorePlugin, SignaturePlugin
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.scores import MAX_SCORE
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import IndexArray, IntArray
from batchsched.framework.traits import PluginTraits, ResultScope

MEBIBYTE: Final = 1024 * 1024
MIN_IMAGE_BYTES: Final = 23 * MEBIBYTE
"""Size of images on a node, in bytes, below which they do not count."""
MAX_BYTES_PER_CONTAINER: Final = 1000 * MEBIBYTE
"""Size in bytes for each container above which more images do not count. Image volumes increase it since 1.37."""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A container image, with the size in bytes that one node reports, and the nodes that have the image."""

    size: int
    nodes: IndexArray


class ImageLocality(SignaturePlugin, ScorePlugin):
    """Scores nodes by the total size of the pod's images that are already on the node.

    An image counts less if fewer nodes have it.

    Source: kube-scheduler's plugins/imagelocality.
    """

    name: ClassVar[str] = "ImageLocality"
    traits: ClassVar[PluginTraits] = PluginTraits(
        result_scope=ResultScope.ALL_NODE_OBJECTS, reads_priority=False
    )

    @override
    def signature(self, pod: Pod) -> Hashable:
        return image_names_of_pod(pod), len(pod.spec.containers) + len(pod.spec.init_containers or ())

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        names = image_names_of_pod(pod.pod)
        spec = pod.pod.spec
        sources = len(spec.containers) + len(spec.init_containers or ())
        if nodes.table.release.counts_image_volumes:
            sources = len(names)
        most = MAX_BYTES_PER_CONTAINER * sources
        key = ("image score", names, most)
        return nodes.table.cached_value_of_nodes(key, lambda table: _score(table, names, most))[nodes.where]


def image_names_of_pod(pod: Pod) -> tuple[str, ...]:
    """Return the names, with tags, of the images of a pod's containers and image volumes."""
    spec = pod.spec
    names = [container.image for container in (*(spec.init_containers or ()), *spec.containers)]
    names += [volume.image.reference for volume in spec.volumes or () if volume.image]
    return tuple(with_default_tag(name) for name in names)


def with_default_tag(name: str) -> str:
    """Return an image name, with `:latest` if it has no tag. A colon before the last slash belongs to a port."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _score(table: NodeTable, names: tuple[str, ...], most: int) -> IntArray:
    images = table.incrementally_updated_value(
        "images", ImageTable, partial(ImageTable.update_images_of_nodes, table=table)
    )
    total = np.zeros(len(table.nodes), np.int64)
    for name in names:
        image = images.find_image(name)
        if image is not None:
            total[image.nodes] += int(image.size * (len(image.nodes) / len(table.nodes)))
    if most <= MIN_IMAGE_BYTES:
        return np.zeros(len(table.nodes), np.int64)
    return MAX_SCORE * (np.clip(total, MIN_IMAGE_BYTES, most) - MIN_IMAGE_BYTES) // (most - MIN_IMAGE_BYTES)


class ImageTable:
    """The container images that are on nodes, by name."""

    def __init__(self, table: NodeTable) -> None:
        self._reported: list[tuple[ContainerImage, ...] | None] = [None] * len(table.nodes)
        self._sizes: dict[str, dict[int, int]] = {}
        self._images: dict[str, Image] = {}
        self.update_images_of_nodes(np.arange(len(table.nodes), dtype=np.int32), table)

    def update_images_of_nodes(self, changed: IndexArray, table: NodeTable) -> "ImageTable":
        """Read again which images the nodes at the indexes `changed` have, and return the updated table."""
        for index in changed.tolist():
            before, after = self._reported[index], table.nodes[index].status.images
            if before is not after:
                self._reported[index] = after
                self._leave(index, before)
                self._enter(index, after)
        return self

    def _leave(self, node: int, images: tuple[ContainerImage, ...] | None) -> None:
        for name in _names(images):
            self._images.pop(name, None)
            self._sizes[name].pop(node, None)

    def _enter(self, node: int, images: tuple[ContainerImage, ...] | None) -> None:
        for image in images or ():
            for name in image.names or ():
                self._images.pop(name, None)
                self._sizes.setdefault(name, {}).setdefault(node, image.size_bytes)

    def find_image(self, name: str) -> Image | None:
        """Return the container image with this name; None if no node has the image."""
        image, sizes = self._images.get(name), self._sizes.get(name)
        if image is None and sizes:
            nodes = np.asarray(sorted(sizes), np.int32)
            image = self._images[name] = Image(sizes[int(nodes[0])], nodes)
        return image


def _names(images: tuple[ContainerImage, ...] | None) -> Iterable[str]:
    return (name for image in images or () for name in image.names or ())
