"""Ray's public calls as small typed functions; nothing outside ``cluster/ray`` imports Ray.

Ray reads its environment when it is imported. So each function imports Ray only when it is called, after a connection
has set up the environment.
"""
