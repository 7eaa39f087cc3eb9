"""The uses of Ray's internals: names, messages and variables that any release may change.

No other package uses Ray's internals. Each use first checks Ray's version and the signature of the internal part
(``guard``), and has a public substitute or states what is lost without the part. The variable
``_CODECFLEET_RAY_PRIVATE=off`` switches off all these uses.
"""
