import gzip

from batchsched.simulator.trace_text import open_text


def test_a_trace_is_the_same_text_gzipped_or_not_whatever_its_name(tmp_path):
    for name, data in (("plain.gz", b"a\xff\nb"), ("packed.swf", gzip.compress(b"a\xff\nb"))):
        (tmp_path / name).write_bytes(data)
        with open_text(tmp_path / name) as lines:
            assert list(lines) == ["a\ufffd\n", "b"]
