"""Asks Ray's autoscaler for nodes."""

from collections.abc import Mapping, Sequence


def request_nodes(bundles: Sequence[Mapping[str, float]], labels: Sequence[Mapping[str, str]]) -> None:
    """Have it keep room for these bundles on nodes with these labels, whatever it was asked for before."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[dict(each) for each in bundles], bundle_label_selectors=[dict(each) for each in labels])
