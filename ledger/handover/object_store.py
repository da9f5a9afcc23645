"""A bundle in object storage: the files of a bundle as objects below a prefix of an S3 bucket.

Each object appears whole or not at all, as S3 promises. What is written is sent by a few threads,
and awaited by sync() before the tree head that covers it.

Source: docs/reference/ledger-format.md, "Bundle"; Amazon S3 API, as obstore speaks it.
Trust: the store is hostile: nothing is read beyond its limit, and all that is read is verified.
I/O: the network. Credentials, region and endpoint come from the environment (AWS_ variables).
Memory: one object at a time that is no blob, and as many as threads send; blobs pass in pieces.
"""

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any

from ledger.errors import MalformedError, StorageError

BLOB = re.compile(r"blobs/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<key>[^?#]*?))?/*")
_CREDENTIALS = (  # any of these; otherwise the machine's own identity would be asked for
    *("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
_THREADS = 8  # that send
_PART = 5 << 20  # 5 MiB: the least that a part of an upload may have
_PIECE = 1 << 20  # 1 MiB
_RETRIES = 3
_SECONDS = 30  # without an answer
_LIKELY = (
    ("NoSuchBucket", "the bucket was not found; create it, or check its name and AWS_ENDPOINT_URL"),
    ("InvalidAccessKeyId", "the credentials are wrong; check AWS_ACCESS_KEY_ID"),
    ("SignatureDoesNotMatch", "the credentials are wrong; check AWS_SECRET_ACCESS_KEY"),
    ("InvalidToken", "the credentials are wrong; check AWS_SESSION_TOKEN"),
    ("ExpiredToken", "the credentials have expired; get new ones"),
    ("AccessDenied", "access was denied; check the credentials and what they may do"),
    ("403", "access was denied; check the credentials and what they may do"),
    ("401", "access was denied; check the credentials and what they may do"),
    ("301", "the bucket is in another region; set AWS_REGION"),
)


def blob_path(digest: str) -> str:
    """Return where a blob lies in a place, a bundle's or a ledger's."""
    return f"blobs/{digest[:2]}/{digest}"


def is_bucket(place: str) -> bool:
    """Tell whether a place is named as one in object storage."""
    return place.startswith("s3://")


class Bucket:
    """A prefix of a bucket as a place of files."""

    def __init__(self, url: str) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise StorageError(f"{url} is no place in object storage; give s3://BUCKET/KEY")
        self.url = url.rstrip("/")
        self._bucket = found["bucket"]
        self._prefix = found["key"] or ""
        self._sending: deque[Future[None]] = deque()
        self._extended = False  # whether objects may be there already, as they are to be

    def __str__(self) -> str:
        """Return the URL."""
        return self.url

    def begin(self, *, extended: bool) -> None:
        """Make ready for an export, which may extend an earlier one."""
        self._extended = extended

    def read(self, relative: str, *, limit: int) -> bytes:
        """Return an object's content; raise MalformedError if it is missing or longer."""
        with self._explained(relative):
            found = self._obstore.get(self._store, relative)
            if found.meta["size"] > limit:
                raise MalformedError(f"{relative} is too long")
            content = bytes(found.bytes())
            self._verify_whole(relative, found, len(content))
            return content

    def exists(self, relative: str) -> bool:
        """Tell whether there is an object of this name."""
        try:
            with self._explained(relative):
                self._obstore.head(self._store, relative)
        except MalformedError:
            return False
        return True

    def names(self, relative: str) -> list[str]:
        """Return the names directly below a prefix."""
        with self._explained(relative):
            found = self._obstore.list_with_delimiter(self._store, relative or None)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(str(path).rpartition("/")[2] for path in paths)

    def blobs(self) -> Iterator[tuple[str, int]]:
        """Yield the blobs by name, with their bytes."""
        for path, size in self._sizes("blobs"):
            if found := BLOB.fullmatch(path):
                yield found[2], size

    def others(self, is_part: Callable[[str], bool]) -> Iterator[str]:
        """Yield what lies here and is no part."""
        return (name for name, _ in self._sizes("") if not is_part(name))

    def free_bytes(self) -> int | None:
        """Return None: nobody knows how much room there is."""
        return None

    def _sizes(self, relative: str) -> Iterator[tuple[str, int]]:
        """Yield the names of all objects below a prefix, with their bytes."""
        with self._explained(relative):
            for page in self._obstore.list(self._store, relative or None, chunk_size=1_000):
                for each in page:
                    yield each["path"], each["size"]

    def chunks(self, relative: str) -> Iterator[bytes]:
        """Yield an object's content; raise StorageError if it ends early."""
        with self._explained(relative):
            found = self._obstore.get(self._store, relative)
            size = 0
            for chunk in found.stream(min_chunk_size=_PIECE):
                size += len(chunk)
                yield bytes(chunk)
            self._verify_whole(relative, found, size)

    def put(self, relative: str, content: bytes) -> None:
        """Let an object appear; sync() waits for it."""
        while len(self._sending) >= 2 * _THREADS:
            self._sending.popleft().result()
        self._sending.append(self._threads.submit(self._put, relative, content))

    def put_blob(self, digest: str, chunks: Iterator[bytes]) -> None:
        """Let a blob appear when all of its pieces have come; if they raise, it does not."""
        relative = blob_path(digest)
        with self._explained(relative):
            self._obstore.put(self._store, relative, chunks, chunk_size=_PART, max_concurrency=2)

    def sync(self) -> None:
        """Wait until everything has been stored that was put; raise what went wrong."""
        while self._sending:
            self._sending.popleft().result()

    def _put(self, relative: str, content: bytes) -> None:
        with self._explained(relative):
            if self._extended and self._says(relative, content):
                return
            self._obstore.put(self._store, relative, content, use_multipart=False)

    def _says(self, relative: str, content: bytes) -> bool:
        """Tell whether an object has this content, by its tag; some stores make others."""
        try:
            found = self._obstore.head(self._store, relative)["e_tag"]
        except FileNotFoundError:
            return False
        return bool(found == f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"')

    def _verify_whole(self, relative: str, found: Any, size: int) -> None:
        if size != found.meta["size"]:
            raise StorageError(
                f"{self.url}/{relative}: {size:,} of {found.meta['size']:,} bytes came; try again"
            )

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, thread_name_prefix="bundle")

    @cached_property
    def _obstore(self) -> Any:
        import obstore  # noqa: PLC0415 - an extra

        return obstore

    @cached_property
    def _store(self) -> Any:
        from obstore.store import S3Store  # noqa: PLC0415 - an extra

        if not any(os.environ.get(name) for name in _CREDENTIALS):
            raise StorageError(
                f"{self.url}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_SKIP_SIGNATURE=true for a public bucket"
            )
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        store = S3Store(
            self._bucket,
            prefix=self._prefix or None,
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_SECONDS)},
            client_options={
                "timeout": f"{_SECONDS}s",
                "connect_timeout": "10s",
                "allow_http": endpoint.startswith("http://"),
            },
        )
        with self._explained(""):  # a bucket that is missing looks like an object that is
            next(iter(self._obstore.list(store, chunk_size=1)), None)
        return store

    @contextmanager
    def _explained(self, relative: str) -> Iterator[None]:
        """Raise MalformedError for what is missing, StorageError for what else goes wrong."""
        where = f"{self.url}/{relative}".rstrip("/")
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StorageError(f"{where}: {_LIKELY[0][1]}") from error
            raise MalformedError(f"{relative} is missing") from error
        except (StorageError, MalformedError):
            raise
        except Exception as error:
            if not type(error).__module__.startswith(("obstore", "builtins")):
                raise
            if isinstance(error, (AssertionError, AttributeError, TypeError, ImportError)):
                raise
            text = str(error).partition("Debug source")[0]
            for word, advice in _LIKELY:
                if word in text:
                    raise StorageError(f"{where}: {advice}") from error
            raise StorageError(
                f"{where}: the connection failed or was cut: {' '.join(text.split())[:300]}"
            ) from error
