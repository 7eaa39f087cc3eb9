"""Ray's public calls as small typed functions: nothing outside ``cluster/ray`` imports Ray.

Ray reads its environment when it is imported, so each function imports Ray late, after a connection has set up the
environment.
"""
