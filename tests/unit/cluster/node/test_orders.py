"""What is looked at before a node starts."""

import socket

import pytest

from codecfleet.cluster.node.orders import check_port
from codecfleet.errors import FleetUnavailable


def test_a_port_in_use_is_refused_at_once() -> None:
    """Ray would look for its control service for a minute, and name a log."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(FleetUnavailable, match=f"no head can listen on port {port}: Address already in use"):
            check_port(port)
    check_port(port)
