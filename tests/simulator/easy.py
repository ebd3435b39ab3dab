"""EASY on a cluster of one-slot nodes, in plain Python and from its definition: it shares no code with the product."""


def easy_starts(gangs, slots, key, backfill=True):
    """Start times of gangs given as (submit, runtime, size), by their number.

    At each moment: all ends, all arrivals, one pass in the order of (key, number).
    """
    starts = {}
    running: dict[int, int] = {}
    waiting = []
    coming = sorted(range(len(gangs)), key=lambda number: (gangs[number][0], number))
    while coming or running:
        now = min([gangs[number][0] for number in coming[:1]] + list(running.values()))
        for number in [number for number, end in running.items() if end <= now]:
            del running[number]
        while coming and gangs[coming[0]][0] <= now:
            waiting.append(coming.pop(0))
        for number in _pass(gangs, slots, now, waiting, running, key, backfill):
            starts[number] = now
            waiting.remove(number)
    return starts


def _pass(gangs, slots, now, waiting, running, key, backfill):
    free = slots - sum(gangs[number][2] for number in running)
    started = []
    shadow = extra = None
    for number in sorted(waiting, key=lambda one: (key(*gangs[one], now), one)):
        _, runtime, size = gangs[number]
        if shadow is None and size > free:
            if not backfill:
                break
            shadow, extra = _shadow(gangs, running, free, size)
            continue
        if size > free:
            continue
        if shadow is not None and now + runtime > shadow:
            if size > extra:
                continue
            extra -= size
        free -= size
        running[number] = now + runtime
        started.append(number)
    return started


def _shadow(gangs, running, free, size):
    for end in sorted(set(running.values())):
        free += sum(gangs[number][2] for number, at in running.items() if at == end)
        if free >= size:
            return end, free - size
    raise AssertionError("larger than the cluster")


KEYS = {
    "fcfs": lambda submit, runtime, size, now: submit,
    "sjf": lambda submit, runtime, size, now: runtime,
    "saf": lambda submit, runtime, size, now: runtime * size,
    "wfp3": lambda submit, runtime, size, now: -(((now - submit) / runtime) ** 3) * size,
}
