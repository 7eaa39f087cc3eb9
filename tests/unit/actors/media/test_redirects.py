"""The addresses to which a web server may redirect a reader."""

from ipaddress import ip_address

import pytest

from codecfleet.actors.media.stores import leads_inside


@pytest.mark.parametrize(
    ("source", "target", "inside"),
    [
        ("8.8.8.8", "1.1.1.1", False),
        ("8.8.8.8", "169.254.169.254", True),
        ("8.8.8.8", "127.0.0.1", True),
        ("8.8.8.8", "10.1.2.3", True),
        ("2001:4860:4860::8888", "fe80::1", True),
        ("2001:4860:4860::8888", "fd00:ec2::254", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3", "8.8.8.8", False),
        ("10.1.2.3", "169.254.169.254", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("169.254.1.2", "169.254.1.3", False),
    ],
)
def test_a_redirect_leads_no_further_inside(source: str, target: str, *, inside: bool) -> None:
    """Public servers cannot redirect to private addresses; only link-local servers can redirect to link-local ones."""
    assert leads_inside(ip_address(source), ip_address(target)) is inside
