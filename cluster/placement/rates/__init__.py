"""How fast a device decodes and encodes."""

from .rates import Rates, start_rates

__all__ = ["Rates", "start_rates"]
