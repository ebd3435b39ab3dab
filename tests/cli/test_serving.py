"""`lab serve` as a process: access control and shutdown."""

import json
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from batchsched.cli import run_command
from batchsched.cli.serving import ResultsServerOptions
from batchsched.lab.plan import plan_runs
from batchsched.lab.results import execute_missing_runs, write_run_plan
from batchsched.lab.workers import InProcessWorkers
from tests.lab.scenarios import scenario

PATIENCE = 120
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    runs = plan_runs(scenario(seeds=3))
    write_run_plan(folder, scenario(seeds=3), runs)
    execute_missing_runs(runs, folder, InProcessWorkers())
    return folder


@contextmanager
def serving(folder, *options):
    """Serve on any port, and say where; leave as Ctrl-C does."""
    code = "from batchsched.cli import main; main()"
    command = [sys.executable, "-c", code, "lab", "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"https?://\S+", line)
            assert found, line
            yield found.group()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def get(url, token=None):
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_on_loopback_the_report_the_runs_and_their_files_need_no_token(results):
    with serving(results) as url:
        assert url.startswith("http://127.0.0.1:")
        status, report = get(url)
        assert status == 200
        assert b"batchsched lab: small" in report
        status, page = get(f"{url}runs")
        assert status == 200
        (first, *_) = re.findall(rb'href="/(runs/\w+\.parquet)"', page)
        assert get(url + first.decode()) == (200, (results / first.decode()).read_bytes())
        assert get(f"{url}runs/..%2fplan.json")[0] == 404
        assert get(f"{url}../../../../etc/passwd")[0] == 404


def test_beyond_loopback_the_token_and_tls_are_required(results, tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with serving(results, "--address", "0.0.0.0", "--token-file", str(tmp_path / "token")) as url:
        assert url.startswith("https://0.0.0.0:")
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert get(here)[0] == 401
        assert get(here, "another")[0] == 401
        assert get(f"{here}runs", "s3cret")[0] == 200


@pytest.mark.browser
def test_a_browser_shows_the_runs_follows_the_report_link_and_saves_a_file(chromium, results, tmp_path):
    from playwright.sync_api import sync_playwright

    (tmp_path / "token").write_text("s3cret\n")
    with (
        serving(results, "--token-file", str(tmp_path / "token")) as url,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")):
            page, complaints = opened(browser, f"{url}runs", scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            assert page.evaluate("document.documentElement.scrollWidth") <= 1200
            with page.expect_download() as download:
                page.click("text=Parquet >> nth=0")
            name = download.value.suggested_filename
            download.value.save_as(tmp_path / name)
            assert (tmp_path / name).read_bytes() == (results / "runs" / name).read_bytes()
            page.click("text=The report")
            page.wait_for_selector(f"html[data-drawn={scheme}]", timeout=120_000)
            page.click("text=All runs and their files")
            page.wait_for_selector("text=6 of 6 runs finished")
            assert complaints == []


def opened(browser, address, scheme):
    """Open a page with the token, and see that it fetches nothing; also return what the browser complains of."""
    page = browser.new_context(
        color_scheme=scheme,
        viewport={"width": 1200, "height": 300},
        http_credentials={"username": "reader", "password": "s3cret"},
    ).new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    assert requests == [address]
    return page, complaints


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--address", "0.0.0.0"], "--token-file"),
        (["--address", "nowhere"], "is not an IP address"),
        (["--tls-cert-file", __file__], "go together"),
    ],
    ids=["no-token", "no-address", "no-key"],
)
def test_an_unreachable_or_unprotected_address_is_wrong_usage(results, options, complaint, capfd):
    assert run_command(["lab", "serve", str(results), *options]) == 2
    assert complaint in " ".join(capfd.readouterr().err.split())


def test_a_folder_without_results_is_reported_in_one_sentence(tmp_path, capfd):
    assert run_command(["lab", "serve", str(tmp_path)]) == 1
    assert "expected a folder that `lab run` wrote" in capfd.readouterr().err
    (tmp_path / "plan.json").write_text(json.dumps({"runs": [], "scenario": {"name": "none"}}))
    assert run_command(["lab", "serve", str(tmp_path)]) == 1
    assert "holds no result" in capfd.readouterr().err


@pytest.mark.parametrize(
    "address, here", [("127.0.0.2", True), ("::1", True), ("::", False), ("10.0.0.1", False)]
)
def test_only_loopback_addresses_are_local(address, here):
    assert ResultsServerOptions(address, 0).is_loopback is here
