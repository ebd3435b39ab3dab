"""The built site loads its scripts, styles and pictures from itself."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from typing_extensions import override

ROOT = Path(__file__).parents[2]
HOST = "docs.test"
WITH_PICTURES = (
    "index",
    "queues",
    "workloads/index",
    "reference/gang-life",
    "reference/scheduling-queue",
    "reference/pod-life",
)
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class LoadedAddresses(HTMLParser):
    """Collects the addresses that a browser loads for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        stated = dict(attrs)
        loads_link = tag == "link" and stated.get("rel") not in ("canonical", "next", "prev")
        for address in (stated.get("src"), stated.get("href") if loads_link else None):
            if address:
                self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **quiet})
    return folder


def test_no_page_loads_anything_from_another_host(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    foreign = []
    for page in pages:
        parser = LoadedAddresses()
        parser.feed(page.read_text("utf-8"))
        foreign += [
            (page.name, address)
            for address in parser.addresses
            if urlsplit(address).netloc or address.startswith("//")
        ]
    assert foreign == []


@pytest.mark.browser
def test_a_browser_draws_the_pictures_and_asks_no_other_host(chromium, site):
    from playwright.sync_api import sync_playwright

    foreign = []

    def answer(route: Any) -> None:
        address = urlsplit(route.request.url)
        if address.netloc != HOST:
            foreign.append(route.request.url)
            route.abort()
            return
        file = site / unquote(address.path).lstrip("/")
        file = file / "index.html" if file.is_dir() else file
        route.fulfill(path=file) if file.exists() else route.fulfill(status=404)

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        context = browser.new_context()
        context.route("**/*", answer)
        page = context.new_page()
        for name in WITH_PICTURES:
            page.goto(f"http://{HOST}/{name.removesuffix('index')}", wait_until="load")
            widths = page.locator("article img").evaluate_all("all => all.map(image => image.naturalWidth)")
            assert widths
            assert min(widths) > 0
    assert foreign == []
