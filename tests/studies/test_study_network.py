"""The weights of the network policy are learned from the playbook."""

import pytest
from studies.network import come_right, train

from policies.deciding.network import Network, NetworkPolicy, load_network


@pytest.mark.slow
def test_network_learns_from_the_playbook_and_the_same_each_time() -> None:
    data = train(seeds=2, rounds=2, steps=300)
    assert data == train(seeds=2, rounds=2, steps=300)
    shares = [
        come_right(NetworkPolicy(network).decide, seeds=3)
        for network in (Network.read(data), load_network())
    ]
    few, shipped = (sum(each.values()) / len(each) for each in shares)
    assert few > 0.5  # without any decision, one fault of fifteen comes right
    assert shipped > 0.95
