import pytest

from batchsched.plugins.image_locality import ImageLocality, with_default_tag
from tests.plugins.cluster import node, pod, scores, table

MEBIBYTE = 1024 * 1024


def image(name, mebibytes):
    return {"names": [name], "sizeBytes": mebibytes * MEBIBYTE}


def running(*images, **spec):
    return pod(containers=[{"name": f"c{at}", "image": name} for at, name in enumerate(images)], **spec)


def test_a_node_with_the_image_is_better_and_a_rare_image_worth_less():
    made = table([node("has", images=[image("app:1", 1000)]), node("has-not")])
    assert scores(ImageLocality(), running("app:1"), made) == [100 * (500 - 23) // (1000 - 23), 0]


def test_small_images_do_not_count_and_large_ones_count_to_a_limit():
    made = table([node("small", images=[image("s:1", 40)]), node("large", images=[image("l:1", 9000)])])
    assert scores(ImageLocality(), running("s:1"), made) == [0, 0]
    assert scores(ImageLocality(), running("l:1"), made) == [0, 100]


def test_a_name_without_a_tag_means_latest():
    made = table([node("n", images=[image("host:5000/app:latest", 1000)])])
    assert scores(ImageLocality(), running("host:5000/app"), made) == [100]


@pytest.mark.parametrize(
    "name, full",
    [
        ("app", "app:latest"),
        ("app:1", "app:1"),
        ("host:5000/app", "host:5000/app:latest"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_tag_latest_is_added_to_names_without_a_tag_or_digest(name, full):
    assert with_default_tag(name) == full


def test_init_containers_and_image_volumes_add_up_but_volumes_do_not_raise_the_limit_of_1_36():
    images = [image("a:1", 500), image("i:1", 500), image("v:1", 500)]
    made = table([node("n", images=images)], version="1.36")
    init = [{"name": "i", "image": "i:1"}]
    volumes = [{"name": "v", "image": {"reference": "v:1"}}]
    limit = 2000
    assert scores(ImageLocality(), running("a:1", initContainers=init), made) == [100 * 977 // (limit - 23)]
    both = running("a:1", initContainers=init, volumes=volumes)
    assert scores(ImageLocality(), both, made) == [100 * 1477 // (limit - 23)]
    assert ImageLocality().signature(both) != ImageLocality().signature(running("a:1", "i:1", "v:1"))


def test_image_volumes_raise_the_limit_of_1_37():
    made = table([node("n", images=[image("a:1", 500), image("v:1", 500)])], version="1.37")
    both = running("a:1", volumes=[{"name": "v", "image": {"reference": "v:1"}}])
    assert scores(ImageLocality(), both, made) == [100 * 977 // (2000 - 23)]


def test_a_pod_without_containers_scores_nothing():
    assert scores(ImageLocality(), running(), table([node("n")])) == [0]
