"""The templates of `-o jsonpath`, checked against the examples of the page of kubectl about JSONPath."""

import pytest

from batchsched.cli.jsonpath import parse_jsonpath
from batchsched.errors import InvalidInput

DATA = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {
                "capacity": {"cpu": "4"},
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {"capacity": {"cpu": "8"}, "addresses": [{"type": "another", "address": "127.0.0.2"}]},
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
    "counts": [1, 2, 30],
}


@pytest.mark.parametrize(
    "template, printed",
    [
        ("kind is {.kind}", "kind is List"),
        ("{.kind}", "List"),
        ("{['kind']}", "List"),
        ("{$.kind}", "List"),
        (".kind", "List"),
        ("kind", "List"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[0:1].name}", "myself"),
        ("{.counts[::2]}", "1 30"),
        ("{.counts[0,2]}", "1 30"),
        ("{.items[*]['metadata.name','kind']}", "None None"),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "127.0.0.1"),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.name!='e2e')].name}", "myself"),
        ("{.users[?(@.user.password)].name}", "e2e"),
        ("{.counts[?(@>1)]}", "2 30"),
        ('{.counts[?(@>"a")]}', ""),
        (
            '{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}]{"\\n"}{end}',
            "[127.0.0.1, 4]\n[127.0.0.2, 8]\n",
        ),
        ("{.items[0].status.capacity}", '{"cpu":"4"}'),
        ("{.absent.field}", ""),
        ("{.users.*.name}", "myself e2e"),
        ("{@}", None),
    ],
)
def test_template_prints_what_kubectl_prints(template, printed):
    text = parse_jsonpath(template).render(DATA)
    assert text == printed if printed is not None else text.startswith('{"kind":"List"')


@pytest.mark.parametrize(
    "template, message",
    [
        ("{.items[}", "cannot read"),
        ("{.items[foo]}", "is not a name in quotes, an index or a slice"),
        ("{.counts[::0]}", "has the step 0"),
        ("{range .items[*]}{.kind}", "{range} without {end}"),
        ("{end}", "{end} without {range}"),
        ("{.kind", "unbalanced braces"),
        ("{.users[?(name)]}", "is not a condition"),
        ("{.users[?(@.name==e2e)]}", "put text in quotes"),
    ],
)
def test_template_that_cannot_be_read_is_refused_with_the_reason(template, message):
    with pytest.raises(InvalidInput) as caught:
        parse_jsonpath(template)
    assert message in str(caught.value)
