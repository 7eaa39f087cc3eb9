"""Who gets which worker: a pure core that decides, and the thin shells that carry it out on Ray or in this process."""
