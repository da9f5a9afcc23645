"""What train.py has taught, as a policy: in this folder, `proctor run --policy learned:Learned`."""

from pathlib import Path

from policies.deciding.network import Network, NetworkPolicy


class Learned(NetworkPolicy):
    """The policy `network` with the weights that lie beside this file."""

    name = "learned"

    def __init__(self) -> None:
        super().__init__(Network.read(Path(__file__).with_name("learned.safetensors").read_bytes()))
