"""What all HTML pages of batchsched share: security policy, HTTP headers, style, and the reload script.

The pages are the status page of the scheduler, the list of runs of `batchsched lab serve`, and the reports. No page
loads anything from a network, and no page can send its content to another place.

Colors of text have a contrast of at least 4.5 with their background, as level AA of WCAG 2.2 requires.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

_NOTHING_ELSE: Final = (
    "default-src 'none'",
    "connect-src 'none'",
    "style-src 'unsafe-inline'",
    "base-uri 'none'",
    "form-action 'none'",
)


def content_security_policy(scripts: Sequence[str] = (), images: str = "", *, in_file: bool = True) -> str:
    """Return the content security policy of a page that loads nothing and runs only the given scripts.

    Args:
      scripts: The text of each script element.
      images: The sources of images, "" for none.
      in_file: True for a policy in a `meta` element, which cannot forbid that other pages frame the page.
    """
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    directives = [
        *_NOTHING_ELSE,
        *([f"script-src {allowed}"] if allowed else []),
        *([f"img-src {images}"] if images else []),
        *([] if in_file else ["frame-ancestors 'none'"]),
    ]
    return "; ".join(directives)


def page_headers(policy: str) -> dict[str, str]:
    """Return the HTTP headers of an HTML page, which set its content security policy and forbid caching."""
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }


@cache
def table_style() -> str:
    """Return the CSS of HTML pages with tables.

    Each cell states its column in the attribute `data-column`, for narrow screens.
    """
    return files(__package__).joinpath("tables.css").read_text(encoding="utf-8")


@cache
def reload_script() -> str:
    """Return the script that reloads a page until the reader clears the check box `reload`.

    Readers could not stop a `refresh` in the page itself.
    """
    return files(__package__).joinpath("reload.js").read_text(encoding="utf-8")


def template_values_of_table_pages() -> dict[str, str]:
    """Return the template values for pages with tables: content security policy, CSS, and reload script."""
    return {
        "policy": content_security_policy([reload_script()]),
        "style": table_style(),
        "script": reload_script(),
    }
