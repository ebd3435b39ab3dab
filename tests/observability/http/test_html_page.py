"""The policy of a page allows its own scripts and nothing else."""

import pytest

from batchsched.observability.http.html_page import (
    content_security_policy,
    page_headers,
    reload_script,
    table_style,
    template_values_of_table_pages,
)


def directives(policy):
    return dict(part.partition(" ")[::2] for part in policy.split("; "))


def test_a_page_can_load_send_and_frame_nothing():
    stated = directives(content_security_policy(in_file=False))
    for directive in ("default-src", "connect-src", "base-uri", "form-action", "frame-ancestors"):
        assert stated[directive] == "'none'"
    assert "script-src" not in stated  # default-src applies


def test_a_script_is_allowed_by_its_digest_and_no_other():
    stated = directives(content_security_policy(["alert(1)"]))
    assert stated["script-src"] == "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    assert "unsafe" not in stated["script-src"]


def test_a_policy_in_a_file_has_no_directive_that_browsers_ignore_there():
    assert "frame-ancestors" not in content_security_policy()


def test_a_page_is_not_cached_and_tells_no_referrer():
    headers = page_headers("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_readers_can_stop_the_reload():
    assert "reload.checked" in reload_script()
    assert "location.reload()" in reload_script()


@pytest.mark.parametrize("part", ["max-width: 720px", "attr(data-column)", "prefers-color-scheme: dark"])
def test_the_style_covers_narrow_screens_and_dark_schemes(part):
    assert part in table_style()
    assert part in template_values_of_table_pages()["style"]
