class StateFlags:
    closed: bool
    forked: bool
    unwritable: bool

class EnteredFlag:
    begun: bool
