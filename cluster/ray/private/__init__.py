"""The uses of Ray's internals: names, messages and variables that any release may change.

No other package uses them. Each use checks Ray's version and the signature of the part (``guard``). It has a public
substitute, or states what is lost without the part. ``_CODECFLEET_RAY_PRIVATE=off`` switches all of them off.
"""
