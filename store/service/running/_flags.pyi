class StateFlags:
    closed: bool
    forked: bool
    unwritable: bool

class SectionFlag:
    begun: bool
