"""The served site: answers like a static host, and a mistake or a client's early leave ends in no traceback."""

from __future__ import annotations

import http.client
import os
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tests.render.conftest import ROOT, Site, render


@dataclass
class Served:
    address: str
    process: subprocess.Popen[str]

    def stop(self) -> str:
        """Ends the server and returns what it said on stderr."""
        self.process.terminate()
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def served(site: Site) -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, "-m", "probe.render", "serve", "--no-build", "--site", str(site.directory), "--port", "0"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    yield Served(process.stdout.readline().strip(), process)
    process.kill()
    process.communicate()


@pytest.mark.parametrize("path", ["nowhere/", "nowhere", "assets/", "llama/index.html/", "%00"])
def test_what_is_not_there_gets_the_sites_own_page(served: Served, site: Site, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(served.address + path)
    assert caught.value.code == 404
    assert caught.value.read() == (site.directory / "404.html").read_bytes()
    with urllib.request.urlopen(served.address + "llama/") as answer:
        assert answer.read() == (site.directory / "llama" / "index.html").read_bytes()
    assert served.stop() == ""


def test_the_head_of_what_is_not_there_has_no_body(served: Served) -> None:
    connection = http.client.HTTPConnection(urlsplit(served.address).netloc)
    connection.request("HEAD", "/nowhere")
    answer = connection.getresponse()
    assert answer.status == 404 and answer.read() == b"" and int(answer.headers["Content-Length"]) > 0


def test_a_client_that_leaves_early_is_met_with_silence(served: Served, site: Site) -> None:
    (site.directory / "large.bin").write_bytes(bytes(50_000_000))
    at = urlsplit(served.address)
    for _ in range(3):
        with socket.create_connection((at.hostname, at.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye
            client.sendall(b"GET /large.bin HTTP/1.0\r\n\r\n")
            assert client.recv(1000)
    os.unlink(site.directory / "large.bin")
    with urllib.request.urlopen(served.address) as answer:
        assert answer.status == 200
    assert served.stop() == ""


def test_a_port_that_is_taken_is_a_clear_error(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = render("serve", "--no-build", "--site", str(site.directory), "--port", port)
    assert (
        done.returncode == 2 and f"Port {port} cannot be served" in done.stderr and len(done.stderr.splitlines()) == 1
    )


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_what_is_no_port_is_a_clear_error(port: str) -> None:
    done = render("serve", "--no-build", "--port", port)
    assert done.returncode == 2 and "port" in done.stderr and len(done.stderr.splitlines()) == 1
