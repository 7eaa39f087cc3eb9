"""Everything of Ray that is not public: names, messages and variables that any release may change.

No other module uses any of it. What is called or replaced here is guarded twice (``guard``): by Ray's version, which
must be a tested one, and by the shape of each part. Each has a public substitute, which is slower, or states what is
lost without it. ``_CODECFLEET_RAY_PRIVATE=off`` in a process's environment switches all of it off: the contract tests
run so too.
"""
