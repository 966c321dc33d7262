"""The server: a token or 403, GET or 405, its own name or 403, and headers that let nothing else in."""

from __future__ import annotations

import html

import pytest
from starlette.testclient import TestClient
from tests.report.runs import record

from lading.kits.web.ui.site import Site, address
from lading.kits.web.ui.starlette import application

BASE = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Site:
    """A site of two small runs."""
    home = tmp_path_factory.mktemp("site")
    record(home / "a", range(20))
    record(home / "b", range(20))
    return Site({"a": home / "a", "b": home / "b"})


def client(site: Site, token: str | None = "secret") -> TestClient:
    return TestClient(application(site, token=token), base_url=BASE, follow_redirects=False)


PATHS = ["/", "/index.json", "/r/a", "/r/a.json", "/r/a/step/3", "/r/a/steps/3-9", "/r/a/sample/0/1",
         "/r/a/curves.json", "/r/a/verdict.json", "/compare", "/search?q=1", "/static/page.js", "/static/chart.js",
         "/nowhere"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_read(site, path):
    """Not even whether there is such a page."""
    for given in (path, f"{path}{'&' if '?' in path else '?'}token=wrong"):
        answer = client(site).get(given)
        assert answer.status_code == 403
        assert "lading ui" in answer.text and "step" not in answer.text


def test_the_token_becomes_a_cookie_and_leaves_the_address(site):
    """So that addresses can be shared without it."""
    browser = client(site)

    welcome = browser.get("/r/a/step/3?token=secret&x=1")

    assert (welcome.status_code, welcome.headers["location"]) == (303, "/r/a/step/3?x=1")
    cookie = welcome.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert browser.get("/r/a/step/3").status_code == 200
    assert browser.get(f"{BASE}//evil.example/?token=secret").headers["location"].startswith("/evil")


def test_a_program_gives_the_token_with_every_request(site):
    """It keeps no cookie: before, `curl` was sent to the address without the token, and refused there."""
    answer = client(site).get("/r/a/step/3.json?token=secret")

    assert answer.status_code == 200 and answer.json()["step"] == 3 and "set-cookie" not in answer.headers
    assert client(site).get("/r/a/step/3.json?token=wrong").status_code == 403


@pytest.mark.parametrize("name", ["lr=0.1 #2", "what?", "100%", "ümlaut/ß", "a;b&c=d"])
def test_a_run_is_shown_whatever_its_name(tmp_path, name):
    """Its own link opens it, with the token and without, and so does every page of it."""
    record(tmp_path / "run", range(20))
    browser = client(Site({name: tmp_path / "run", "other": tmp_path / "run"}))

    welcome = browser.get(f"{address(name)}/step/3?token=secret")

    assert welcome.headers["location"] == f"{address(name)}/step/3"
    found = {page: browser.get(address(name) + page).status_code for page in ("", ".json", "/step/3", "/sample/0/1")}
    assert found == dict.fromkeys(found, 200)
    assert f'href="{address(name)}"' in html.unescape(browser.get("/").text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_the_server_only_reads(site, method):
    """Every other method is refused, with and without the token."""
    browser = client(site)
    browser.get("/?token=secret")

    assert browser.request(method, "/r/a").status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/../page.js",
        "/static/%2e%2e/%2e%2e/page.py",
        "/static/page.py",
        "/r/%2e%2e/%2e%2e/etc/passwd",
        "/r/a/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/static//etc/passwd",
    ],
)
def test_no_path_leads_out(site, path):
    """Whatever is written, and however."""
    browser = client(site)
    browser.get("/?token=secret")

    assert browser.get(path).status_code == 404


def test_only_its_own_names_reach_it(site):
    """A site whose name is made to point here cannot read through a browser."""
    browser = TestClient(application(site, token=None), base_url="http://evil.example:8765")

    assert browser.get("/r/a").status_code == 403
    assert client(site, token=None).get("/r/a").status_code == 200


@pytest.mark.parametrize("path", ["/r/a", "/r/a.json", "/static/page.js", "/nowhere"])
def test_headers_let_nothing_else_in(site, path):
    """No script but our own, no frame, nothing from elsewhere, no token in a referrer."""
    headers = client(site, token=None).get(path).headers

    assert "default-src 'none'" in headers["content-security-policy"]
    assert "script-src 'self';" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
