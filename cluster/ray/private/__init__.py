"""Everything of Ray that is not public: names, messages and variables that any release may change.

No other module uses them. Each use is guarded by Ray's version and by the shape of the part (``guard``), and has a
public substitute or states what is lost without it. ``_CODECFLEET_RAY_PRIVATE=off`` switches all of them off.
"""
