"""Hosts: values that stay as they are, wherever their bytes lie."""

import copy
import dataclasses
import pickle

import pytest

from cqstore.store.record.message import Host


@pytest.mark.parametrize("address", ["1.2.3.4", "::1"])
def test_a_host_is_frozen_alike_and_its_own_copy(address: str) -> None:
    host = Host.of(address, 5)
    for other in (
        copy.copy(host), copy.deepcopy(host), pickle.loads(pickle.dumps(host)),
        dataclasses.replace(host), Host(wire=host.wire),
    ):  # fmt: skip
        assert (other, hash(other), repr(other)) == (host, hash(host), repr(host))
        assert type(other) is Host
    assert host != dataclasses.replace(host, wire=host.wire[:-1] + b"\x06")
    assert [each.name for each in dataclasses.fields(host)] == ["wire"]
    for name in ("wire", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(host, name, b"12345678")
    with pytest.raises(dataclasses.FrozenInstanceError):
        del host.wire
    with pytest.raises(TypeError, match="wire"):
        Host()  # type: ignore[call-arg]
    assert not hasattr(host, "__dict__")
