HEAD = None
