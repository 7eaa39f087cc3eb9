"""Processes that this one starts: how they start, how two of them call each other, and how they end.

What both ends share::

    class Counter(Protocol):                        # what the child serves
        async def add(self, number: int) -> int: ...

    @dataclass(frozen=True, slots=True)
    class Add(Request[Counter, int]):               # served by a Counter, answered with an int
        number: int

        async def serve(self, server: Counter) -> int:
            return await server.add(self.number)

The parent, in an event loop (mypy knows that ``total`` is an int, and that only a ``Counter``'s requests go there)::

    child: Child[Counter] = Child(start_program("package.counting", 5), serves=news)
    total = await child.call(Add(3))                # cancelled there if it is cancelled here
    child.tell(Reset())                             # a Request[Counter, None] whose end is not awaited
    why = await child.death()                       # seen at once: "it was killed by SIGKILL", or its last words

The child, ``package/counting.py``::

    def main() -> None:
        end, (first,) = begin()                     # its end of the channel, and the settings after the program's name
        run_to_the_end(serve_parent(end, lambda parent: CountingFrom(first, parent)))

A channel is the same at both ends: the child's ``parent`` is a ``Channel`` too, and the parent's ``serves`` is what its
requests are for. Requests begin in the order in which they were sent. Large arrays, and bytes given to ``beside``, are
not copied into the message. A ``CodecfleetError`` that a server raises is raised by the call; any other becomes a
``WorkError``.
"""
