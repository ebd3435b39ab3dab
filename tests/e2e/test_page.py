"""The page of a running scheduler in a real browser: it asks for a token, and is light or dark, wide or narrow."""

import pytest

from batchsched.cli import run_command
from tests.controlplane.fixtures import eventually
from tests.controlplane.plane import ADMIN
from tests.e2e.running import group, make
from tests.e2e.serving import WITHIN, Served, bind_a_gang, serving

OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@pytest.fixture
def served(plane, namespace, tmp_path):
    """A scheduler with a gang that runs and one that waits."""
    racks = {f"node-{at}": f"rack-{at // 2}" for at in range(4)}
    for made in namespace.nodes(4, cpu="8"):
        name = made["metadata"]["name"]
        namespace.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"rack": racks[name]}}})
    namespace.topology(f"racks-{namespace.name}", rack="rack")
    namespace.queue(f"research-{namespace.name}", limit={"cpu": "64"})
    one = Served(plane, "page", tmp_path / "batchsched.yaml", ("--no-leader-elect",))
    with serving(one):
        bind_a_gang(namespace, "bert", 6)
        group(namespace, "large", 9, queue=f"research-{namespace.name}")
        make(namespace, "large", 3)
        eventually(lambda: one.metric("scheduler_pending_pods", queue="unschedulable") == 3, WITHIN)
        yield one


@pytest.mark.browser
def test_page_opens_in_a_browser_that_gives_a_token(chromium, served, namespace, tmp_path):
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        address = f"https://127.0.0.1:{served.port}/"
        stranger = browser.new_page(ignore_https_errors=True)
        asked = stranger.request.get(address, headers={"Accept": "text/html"})
        assert (asked.status, asked.headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")
        for scheme, paper, width in (("light", "rgb(255, 255, 255)", 1200), ("dark", "rgb(20, 24, 29)", 700)):
            page = opened(browser, address, scheme, width)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            gangs = page.locator("h2#gangs + div").inner_text()
            assert f"{namespace.name}/bert" in gangs
            assert "6 of 6" in gangs
            assert "NotEnoughPods" in gangs
            nodes = " ".join(page.locator("h2#nodes ~ div").all_inner_texts())  # a table for each topology
            assert {"rack-0", "rack-1"} <= set(nodes.split())
            assert f"research-{namespace.name}" in page.locator("h2#queues + div").inner_text()
        with page.expect_download() as download:
            page.click("text=for replay")
        file = tmp_path / "session.json.gz"
        download.value.save_as(file)
    assert run_command(["replay", str(file)]) == 0


def opened(browser, address, scheme, width):
    """Open the page with a token, and see that it fetches nothing and complains of nothing."""
    context = browser.new_context(
        ignore_https_errors=True,
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
        http_credentials={"username": "token", "password": ADMIN},
    )
    page = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(address)
    assert (requests, complaints) == ([address], [])
    return page
