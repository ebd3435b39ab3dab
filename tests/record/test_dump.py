import gzip

import msgspec
import pytest

from batchsched.errors import InvalidInput
from batchsched.record.cluster_files import read_cluster_files
from batchsched.record.dump import ClusterDump, decode_dump

NODE = msgspec.Raw(b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}')
DUMP = ClusterDump(1_767_603_600.0, (NODE,))


def test_dump_is_read_back_as_it_was_written():
    assert decode_dump(DUMP.encode(compress=False), "") == DUMP


def test_dump_is_a_list_of_kubernetes_objects():
    written = msgspec.json.decode(DUMP.encode(compress=False))
    assert (written["apiVersion"], written["kind"]) == ("v1", "List")
    assert written["items"] == [msgspec.json.decode(NODE)]


def test_equal_dumps_have_equal_bytes():
    assert DUMP.encode(compress=True) == DUMP.encode(compress=True)
    assert gzip.decompress(DUMP.encode(compress=True)) == DUMP.encode(compress=False)


@pytest.mark.parametrize("compress", [True, False])
def test_dump_is_recognised_by_its_content(tmp_path, compress):
    dump, other = tmp_path / "x.yaml", tmp_path / "other.yaml"
    dump.write_bytes(DUMP.encode(compress=compress))
    other.write_text("{apiVersion: v1, kind: List, items: []}")
    files = read_cluster_files([other, dump])
    assert (files.dump, files.session_time(), files.manifests) == (DUMP, DUMP.time, (other,))


def test_second_dump_is_refused(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(DUMP.encode(compress=False))
    with pytest.raises(InvalidInput, match="expected one dump or recorded session"):
        read_cluster_files([file, file])


def test_damaged_dump_is_refused_by_name(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(DUMP.encode(compress=False)[:-9])
    with pytest.raises(InvalidInput, match=r"cluster.json: is a damaged dump: .*; take the dump again"):
        read_cluster_files([file])


def test_dump_of_another_format_is_refused():
    content = DUMP.encode(compress=False).replace(b"dump/1", b"dump/9")
    with pytest.raises(
        InvalidInput, match=r"expected the format batchsched\.dump/1, found 'batchsched\.dump/9'"
    ):
        decode_dump(content, "x")
