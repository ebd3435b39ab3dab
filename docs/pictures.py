"""Draw the pictures of ``docs/assets``: the report of the demo, the web page of a scheduler, and the runs of a sweep.

``python docs/pictures.py`` needs chromium, and the control plane that ``make controlplane`` builds. It takes minutes.
The pictures are committed. Draw them again after a change of the report or of the web page.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.controlplane.fixtures import Namespace, eventually, start  # noqa: E402
from tests.controlplane.plane import ADMIN, Api  # noqa: E402
from tests.e2e.running import group  # noqa: E402
from tests.e2e.serving import Served, serving  # noqa: E402

ASSETS = ROOT / "docs/assets"
COMMAND = str(Path(sys.executable).with_name("batchsched"))
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
DRAWN = "html[data-drawn=light]"
"""The report sets this attribute when all its figures are drawn."""
REPORT_STYLE = """
    nav, .scroll, .note, dl, main > h2, main > h3, .tabs, .whole, .modebar, figcaption, header button { display: none }
    .legends { position: static }
"""
REPORT_FIGURES = [
    *(f"bars-{measure}" for measure in ("meanwait", "worstwait", "utilisation", "makespan")),
    "queue-length",
]
"""The figures of the picture of the report, besides the Gantt chart of one policy."""
REPORT_NODES = 16
"""Number of nodes in the Gantt chart of the picture."""
SHORTEN_REPORT = """([kept, nodes]) => {
    for (const figure of document.querySelectorAll("figure")) {
        const key = figure.querySelector(".plot").id;
        if (figure.hidden || !(kept.includes(key) || key.startsWith("gantt-"))) figure.remove();
    }
    const plot = document.querySelector(".plot[id^=gantt-]");
    const layout = report.figures[plot.id].layout;
    layout.height *= nodes / layout.yaxis.range[0];
    layout.yaxis.range[0] = nodes;
    plot.style.height = `${layout.height}px`;
    draw([plot.id]);
}"""
KINDS = "/apis/scheduling.batchsched.dev/v1alpha1"
LIMITS: dict[str, dict[str, Any]] = {
    "research": {"guarantee": {"nvidia.com/gpu": "32"}, "weight": 2},
    "vision": {"parent": "research", "limit": {"nvidia.com/gpu": "24"}},
    "language": {"parent": "research", "weight": 2},
    "product": {"guarantee": {"nvidia.com/gpu": "16"}, "limit": {"nvidia.com/gpu": "32"}},
}
# Gangs in the order of their creation: queue, name, minMember, existing pods, GPUs of a pod.
GANGS = (
    ("vision", "segment", 2, 2, 8),
    ("language", "pretrain", 4, 4, 8),
    ("product", "ranking", 8, 8, 1),
    ("vision", "detect", 2, 2, 8),
    ("language", "finetune", 8, 3, 4),
    ("product", "embeddings", 2, 2, 8),
)


@contextlib.contextmanager
def opened(browser: Browser, address: str, scheme: Any, width: int) -> Iterator[Page]:
    """A page in a browser of a width, light or dark, with a token where the server requires one."""
    page = browser.new_context(
        ignore_https_errors=True,
        color_scheme=scheme,
        viewport={"width": width, "height": 400},
        http_credentials={"username": "token", "password": ADMIN},
    ).new_page()
    page.goto(address)
    page.wait_for_timeout(2000)
    yield page
    page.close()


def draw_report(browser: Browser, folder: Path) -> None:
    """The report of `batchsched demo`: its conclusion, its legend, and the figures that a picture has room for."""
    report = folder / "demo-report.html"
    subprocess.run(
        [COMMAND, "demo", "--report", str(report)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT
    )
    with opened(browser, report.as_uri(), "light", 1200) as page:
        page.wait_for_selector(DRAWN)
        page.click("[data-show] >> text=headroom")
        page.wait_for_selector(DRAWN)
        page.add_style_tag(content=REPORT_STYLE)
        page.evaluate(SHORTEN_REPORT, [REPORT_FIGURES, REPORT_NODES])
        page.wait_for_selector(DRAWN)
        page.screenshot(path=ASSETS / "report.png", full_page=True)


def draw_runs(browser: Browser, folder: Path) -> None:
    """The runs of a sweep, as `batchsched lab serve` lists them."""
    results = folder / "results"
    scenario = str(ROOT / "examples/lab/teams.yaml")
    subprocess.run([COMMAND, "lab", "run", scenario, "--to", str(results), "--set", "seeds=2"], check=True)
    server = subprocess.Popen(
        [COMMAND, "lab", "serve", str(results), "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr
        url = next(word for word in server.stderr.readline().split() if word.startswith("http"))
        with opened(browser, f"{url}runs", "light", 1400) as page:
            page.screenshot(path=ASSETS / "lab-runs.png", full_page=True)
    finally:
        server.terminate()
        server.wait()


def make_cluster(api: Api) -> None:
    """Create eight nodes with 8 GPUs each in two racks, queues, and gangs of which some must wait."""
    levels = {"levels": [{"name": "rack", "nodeLabel": "rack"}]}
    create(api, "topologies", "Topology", "default", levels)
    for name, spec in LIMITS.items():
        create(api, "queues", "Queue", name, spec)
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    cluster = Namespace(api, "vision")
    for rack, count in (("a", 4), ("b", 4)):
        for made in cluster.nodes(count, prefix=f"gpu-{rack}", cpu=96, memory="1Ti", gpu=8):
            api.merge(
                f"/api/v1/nodes/{made['metadata']['name']}",
                {"metadata": {"labels": {"rack": f"rack-{rack}"}}},
            )
    for queue, name, minimum, pods, gpus in GANGS:
        namespace = Namespace(api, queue)
        group(namespace, name, minimum, queue=queue)
        namespace.pods(pods, prefix=name, gang=name, cpu=8 * gpus, memory=f"{64 * gpus}Gi", gpu=gpus)
        time.sleep(2)


def create(api: Api, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    """Create an object of batchsched."""
    body = {
        "apiVersion": KINDS.removeprefix("/apis/"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    api.create(f"{KINDS}/{plural}", body)


def draw_page(browser: Browser, folder: Path) -> None:
    """The web page of a running scheduler, wide and light, narrow and dark."""
    with start(folder / "plane") as plane:
        plane.start_kwok()
        plane.install_definitions()
        scheduler = Served(plane, "page", folder / "batchsched.yaml", ("--no-leader-elect",))
        scheduler.sessions_kept = 4
        scheduler.configure()
        with serving(scheduler):
            make_cluster(plane.admin)
            eventually(lambda: scheduler.metric("scheduler_pending_pods", queue="unschedulable") >= 7)
            time.sleep(2)
            for scheme, width in (("light", 1200), ("dark", 700)):
                with opened(browser, f"https://127.0.0.1:{scheduler.port}/", scheme, width) as page:
                    page.screenshot(path=ASSETS / f"page-{scheme}.png", full_page=True)


def main(names: list[str]) -> None:
    """Draw the pictures that are named, or all."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        for name, draw in (("report", draw_report), ("runs", draw_runs), ("page", draw_page)):
            if not names or name in names:
                draw(browser, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
