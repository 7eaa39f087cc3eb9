"""Child processes: how they start, how two processes call each other, and how they end.

Shared by both ends::

    class Counter(Protocol):                        # what the child serves
        async def add(self, number: int) -> int: ...

    @dataclass(frozen=True, slots=True)
    class Add(Request[Counter, int]):               # served by a Counter, answered with an int
        number: int

        async def serve(self, server: Counter) -> int:
            return await server.add(self.number)

The parent, in an event loop (mypy knows that ``total`` is an int, and that only a ``Counter``'s requests go there)::

    child: Child[Counter] = Child(start_program("package.counting", 5), serves=news)
    total = await child.call(Add(3))                # cancelling the call cancels the request
    child.tell(Reset())                             # a Request[Counter, None] that is not awaited
    why = await child.death()                       # how it ended: "it was killed by SIGKILL", or its last output line

The child, ``package/counting.py``::

    def main() -> None:
        end, (first,) = begin()                     # its end of the channel, and the settings
        run_to_the_end(serve_parent(end, lambda parent: CountingFrom(first, parent)))

Both ends are alike: the child calls its ``parent``, a ``Channel``, whose requests the parent's ``serves`` answers.
Requests begin in the order in which they were sent. Large arrays, and bytes given to ``beside``, are not copied. The
call raises a server's ``CodecfleetError``; any other error becomes a ``WorkError``.
"""
