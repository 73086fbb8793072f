"""A pool of processes that is none, for tests whose monkeypatches stay in this process."""


class Here:
    """What it is given runs at once, here."""

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def submit(self, function, *args):
        self.value = function(*args)
        return self

    def result(self):
        return self.value

    map = staticmethod(map)
