"""Whole sweeps on a real S3 server, by the command line in a process of its own.

Source: semantics 1.2, 9; format 13.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.reference import CompareStores, ReferenceStore
from tests.support import servers
from tests.support.compare import compare_objects
from tests.support.processes import Ended, end, resume_command, run, start
from tests.support.proxy import Relay
from tests.support.small_stores import Objects, leaf_columns, plain_store, windowed_store
from tests.support.stamps import broken_stamps
from tests.support.sweeping import loaded, objects_in, read_tree, sweep
from typer.testing import CliRunner, Result

from sweep.cli.main import app
from sweep.store.base import ObjectStore
from sweep.store.io import fetch, put_all

pytestmark = pytest.mark.s3

NO_AWS = {
    **dict.fromkeys(("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"), ""),
    **servers.ACCESS,
}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_AWS.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def server() -> Iterator[servers.S3Server]:
    with servers.ministack() as started:
        yield started


@pytest.fixture(scope="module")
def moto() -> Iterator[servers.S3Server]:
    with servers.moto() as started:
        yield started


def upload(store: ObjectStore, objects: Objects) -> None:
    put_all(store, objects.items())


def download(store: ObjectStore) -> Objects:
    keys = [info.key for info in store.list()]
    return {key: data for key, data in zip(keys, fetch(store, keys), strict=True) if data is not None}


def local(root: str, endpoint: str, *more: str) -> Ended:
    return run("local", root, "--scope", "all", "--endpoint", endpoint, "--region", "us-east-1", *more)


def invoke(root: str, endpoint: str) -> Result:
    """The same in this process, where no sweep is to start."""
    return CliRunner().invoke(
        app, ["local", root, "--scope", "all", "--endpoint", endpoint, "--region", "us-east-1"]
    )


def swept(objects: Objects) -> Objects:
    store = loaded(objects)
    sweep(store)
    return objects_in(store)


@pytest.mark.parametrize("windowed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_store_in_a_bucket(server: servers.S3Server, windowed: bool) -> None:
    objects = windowed_store() if windowed else plain_store()
    store = server.open("deep/er/store")
    upload(store, objects)
    ended = local(store.root, server.endpoint, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["store_root"] == store.root
    assert compare_objects(swept(objects), download(store), same_runs=True) == []
    assert store.get("sweep.lease.json") is None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed"])
def test_a_reference_store_in_a_bucket(
    server: servers.S3Server,
    reference_store: ReferenceStore,
    compare_stores: CompareStores,
    tmp_path: Path,
    name: str,
) -> None:
    store = server.open()
    upload(store, read_tree(reference_store(name, "pre", mode="shared")))
    ended = local(store.root, server.endpoint)
    assert ended.code == 0, ended.err
    for key, data in download(store).items():
        path = tmp_path / "swept" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert " 0 differences" in compare_stores(reference_store(name, "post"), tmp_path / "swept")


@pytest.mark.slow
def test_a_whole_bucket_is_a_store_of_one_process(server: servers.S3Server) -> None:
    """Only a fleet needs room for the records beside it."""
    store = server.open(prefix="")
    upload(store, plain_store())
    ended = local(store.root, server.endpoint)
    assert ended.code == 0, ended.err
    assert compare_objects(swept(plain_store()), download(store), same_runs=True) == []


@pytest.mark.slow
def test_more_keys_than_one_listing_holds(moto: servers.S3Server) -> None:
    """At the root before the run records, and as debris under an artifact that is to be written."""
    store = moto.open()
    objects = plain_store()
    node = leaf_columns(objects)[0].split("/")[0]
    noise = {f"a{number:04d}": b"" for number in range(1100)}
    debris = {f"{node}/all.zarr/9/old/c/{number}": b"x" for number in range(1100)}
    upload(store, {**objects, **noise, **debris})
    ended = local(store.root, moto.endpoint, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["n_leaves"] == 4
    found = download(store)
    assert compare_objects({**swept(objects), **noise}, found, same_runs=True) == []


def test_a_bucket_that_is_not_there(server: servers.S3Server) -> None:
    result = invoke("s3://no-such-bucket/store", server.endpoint)
    assert result.exit_code == 6
    assert "s3://no-such-bucket/store" in result.stderr
    assert "the bucket does not exist: check the name and the endpoint" in result.stderr


def test_a_prefix_without_a_store(server: servers.S3Server) -> None:
    store = server.open("empty")
    result = invoke(store.root, server.endpoint)
    assert result.exit_code == 2
    assert f"no morton_hive.json at {store.root}" in result.stderr


@pytest.mark.slow
def test_credentials_that_are_not_known() -> None:
    """moto checks them from its third request on: the first is ours to see it up, then the bucket is made."""
    with servers.moto(INITIAL_NO_AUTH_ACTION_COUNT="2") as strict:
        bucket = strict.make_bucket()
        ended = local(f"s3://{bucket}/store", strict.endpoint)
    assert ended.code == 6
    assert "AWS_ACCESS_KEY_ID" in ended.err
    assert servers.ACCESS["AWS_SECRET_ACCESS_KEY"] not in ended.err.replace("testing/", "")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("windowed", [False, True])
def test_a_server_that_goes_away_and_comes_back(server: servers.S3Server, windowed: bool) -> None:
    objects = windowed_store() if windowed else plain_store()
    store = server.open()
    upload(store, objects)
    node = leaf_columns(objects)[-1].split("/")[0]
    landmark = f"PUT /{urlsplit(store.root).netloc}/some/store/{node}/".encode()
    seen = threading.Event()
    address = urlsplit(server.endpoint)
    relay = Relay(
        (str(address.hostname), int(address.port or 0)), lambda data: seen.set() if landmark in data else None
    )
    process = start(
        "local", store.root, "--scope", "all", "--endpoint", relay.endpoint, "--region", "us-east-1"
    )
    assert seen.wait(60)
    relay.cut()
    ended = end(process, timeout_s=300)
    assert ended.code == 6, ended.err
    assert store.root in ended.err
    assert "check the network and the endpoint" in ended.err
    assert broken_stamps(download(store)) == []
    relay.mend()
    command = resume_command(ended.err)
    assert relay.endpoint in command
    done = run(*command)
    assert done.code == 0, done.err
    relay.cut()
    assert compare_objects(swept(objects), download(store), same_runs=False) == []
